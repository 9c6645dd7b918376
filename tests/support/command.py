"""The mnemon command, run in this process, which saves the start of an interpreter."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from mnemon._cli.app import mnemon
from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(address: str, *arguments: str | Path, stdin: str = "") -> Done:
    """Runs the command against the server at the address."""
    words = [str(argument) for argument in arguments]
    result = CliRunner(env={"MNEMON_ADDRESS": address}).invoke(mnemon, words, input=stdin, prog_name="mnemon")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def run_json(address: str, *arguments: str | Path) -> list[dict[str, Any]]:
    """The JSON lines that the command prints. It must succeed."""
    done = run(address, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def printed(renderable: RenderableType, width: int = 200) -> str:
    """The text of a table or list on a screen of this width."""
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=False).print(renderable)
    return screen.getvalue()
