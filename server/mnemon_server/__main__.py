"""Entry point of `mnemon-server` and of `python -m mnemon_server`."""

import contextlib
import os
import sys


def main() -> None:
    """Runs the command line, or reports a missing package."""
    try:
        _run()
    finally:
        _flush()


def _flush() -> None:
    """Flushes the output. A closed pipe is not an error of the command."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            with contextlib.suppress(OSError):
                os.dup2(nothing, stream.fileno())
            os.close(nothing)


def _run() -> None:
    try:
        from mnemon_server.cli import cli

        cli(prog_name="mnemon-server")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "mnemon", "mnemon_server"):
            raise
        sys.exit(f"mnemon-server needs the package {package!r}, which is not installed: pip install mnemon-server")


if __name__ == "__main__":
    main()
