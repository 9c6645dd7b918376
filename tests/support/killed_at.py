"""Runs `mnemon-server` commands that are killed with SIGKILL just before a given step on the files."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.server import START_S, clean_environment

_CODE = """
import os, signal, sys
wanted, number, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seen = 0

def kill_in_time(event, arguments):
    global seen
    if event == wanted and place in str(arguments[0]):
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill_in_time)
from mnemon_server.cli import cli
cli(sys.argv[4:])
"""


def run_killed(event: str, number: int, place: Path, *arguments: str) -> None:
    """Runs a command until it is about to do something for the nth time with a file within `place`.

    `event` is one of Python's audit events, such as "os.rename".
    """
    done = subprocess.run(
        [sys.executable, "-c", _CODE, event, str(number), str(place), *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, (event, number, done.stdout, done.stderr)
