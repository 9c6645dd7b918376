"""The `mnemon` command, also `python -m mnemon`."""

import sys


def main() -> None:
    """Runs the command; without its extra, says which one to install."""
    try:
        from mnemon._cli.app import mnemon
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich"):
            raise
        sys.exit("the mnemon command needs click and rich; install them with: pip install 'mnemon-client[cli]'")
    mnemon(prog_name="mnemon")


if __name__ == "__main__":
    main()
