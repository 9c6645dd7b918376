"""The mnemon command, run in this process, which saves the start of an interpreter."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from mnemon._cli.app import mnemon


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
