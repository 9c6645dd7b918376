"""The command `mnemon-server`, run in this process, which saves the start of an interpreter."""

from pathlib import Path

from click.testing import CliRunner
from mnemon_server.cli import cli

from tests.support.command import Done


def run(*arguments: str | Path) -> Done:
    """Runs the command until it ends."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="mnemon-server")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
