"""Runs `mnemon-server` commands that are killed with SIGKILL just before a given step on the files."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.forks import Fork, run_main, run_to_end
from tests.support.server import START_S, clean_environment


def run_killed(event: str, number: int, place: Path, *arguments: str) -> None:
    """Runs a command until it is about to do something for the nth time with a file within `place`.

    `event` is one of Python's audit events, such as "os.rename".
    """
    done = run_to_end(
        Fork, _run, event, number, str(place), arguments, environment=clean_environment(), timeout_s=START_S
    )
    assert done.returncode == -signal.SIGKILL, (event, number, done.stdout, done.stderr)


def _run(wanted: str, number: int, place: str, arguments: Sequence[str]) -> None:
    seen = 0

    def kill_in_time(event: str, details: tuple[object, ...]) -> None:
        nonlocal seen
        if event == wanted and place in str(details[0]):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill_in_time)
    run_main("mnemon_server.__main__", arguments)
