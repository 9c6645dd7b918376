"""Entry point of `mnemon-server` and of `python -m mnemon_server`."""

import sys


def main() -> None:
    """Runs the command line, or says what is not installed."""
    try:
        from mnemon_server.cli import cli

        cli(prog_name="mnemon-server")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "mnemon", "mnemon_server"):
            raise
        sys.exit(f"mnemon-server needs the package {package!r}, which is not installed: pip install 'mnemon[server]'")


if __name__ == "__main__":
    main()
