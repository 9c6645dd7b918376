"""The command that makes a backup."""

import sys
from pathlib import Path

import click
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from mnemon._cli.options import json_option
from mnemon._cli.session import Session
from mnemon._sync.backups import Report
from mnemon._terminal import echo, filled
from mnemon._values.backups import Backup, BackupProgress


@click.command("backup")
@click.argument("folder", metavar="FOLDER", type=filled)
@click.option(
    "--base",
    type=filled,
    metavar="TEXT",
    help="An earlier backup: copy only what has changed since, and keep both side by side.",
)
@click.option("--on-server", is_flag=True, help="The server keeps it in its backup_dir; FOLDER and base are names.")
@json_option
@click.pass_obj
def back_up(session: Session, folder: str, *, base: str | None, on_server: bool, as_json: bool) -> None:
    """Copy the whole vault as it is now to a new FOLDER; for admins.

    It appears once it is complete, and only its owner can read it. `mnemon-server restore` restores it.
    """
    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    hidden = as_json or not sys.stderr.isatty()
    with Progress(*columns, console=session.error_console, transient=True, disable=hidden) as bar:
        task = bar.add_task("backing up", total=None)

        def report(progress: BackupProgress) -> None:
            bar.update(task, completed=progress.done_bytes, total=progress.total_bytes)

        made = _make(session, folder, base, report, on_server=on_server)
    if as_json:
        echo(made.to_json())
    else:
        echo(f"{folder}: {made.size_bytes:,} bytes, up to change {made.sequence:,}")
    for path in made.missing_files:
        echo(f"the vault has lost {path}; what was in it is not in the backup", err=True)


def _make(session: Session, folder: str, base: str | None, report: Report, *, on_server: bool) -> Backup:
    backups = session.client.backups
    if on_server:
        return backups.create_on_server(folder, base=base or "", report=report)
    try:
        return backups.create(Path(folder), base=Path(base) if base else None, report=report)
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror or error}") from error
