"""The command `mnemon-server backup`, for a data folder that no server uses."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo, filled

from mnemon_server.commands.master_keys import data_dir_option, master_key_option, master_keys
from mnemon_server.config.loading import load_settings
from mnemon_server.domain.access import DEFAULT_TENANT, check_tenant
from mnemon_server.domain.backup import BackupPart, BackupProgress, Manifest, parse_manifest
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from mnemon_server.engines.sqlite.connections import Connections
    from mnemon_server.engines.vault_key import VaultKeyFile


@click.command()
@click.argument("folder", type=filled)
@data_dir_option
@master_key_option
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose vault is backed up.")
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An earlier backup: copy only what has changed since, and keep both side by side.",
)
def backup(folder: str, data_dir: Path | None, master_key_file: Path | None, tenant: str, base: Path | None) -> None:
    """Copy the vault of a tenant to the new FOLDER, while no server uses it. `mnemon backup` asks a running server.

    The folder appears once it is complete, and only its owner can read it.
    """
    from mnemon.shared.backup_folder import BackupFolder, read_manifest
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

    from mnemon_server.engines.backups.parts import back_up
    from mnemon_server.engines.vault_folders import vaults_folder
    from mnemon_server.engines.vault_key import VaultKeyFile

    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TimeRemainingColumn())
    check_tenant(tenant)
    former = parse_manifest(read_manifest(base)) if base else None
    vault = vaults_folder(data_dir or load_settings(environ=os.environ).settings.data_dir) / tenant
    with (
        _opened(VaultKeyFile(vault, master_keys(master_key_file))) as connections,
        BackupFolder(Path(folder)) as files,
        Progress(*columns, console=Console(stderr=True)) as bar,
        closing(back_up(vault, connections, former, system_clock)) as steps,
    ):
        task = bar.add_task("Backing up", total=None)
        for step in steps:
            match step:
                case BackupProgress(done, total):
                    bar.update(task, completed=done, total=total)
                case BackupPart(path, data):
                    files.write(path, data)
                case Manifest():
                    manifest = step
        files.commit()
    echo(f"{folder}: the vault of {tenant} up to change {manifest.sequence:,}")
    for path in manifest.missing:
        echo(f"the vault has lost {path}; what was in it is not in the backup", err=True)


@contextmanager
def _opened(keys: "VaultKeyFile") -> "Iterator[Connections]":
    """The records of a vault, which no server may open meanwhile."""
    from mnemon_server.engines.backups.copying import discard_copies
    from mnemon_server.engines.folder import FolderInUseError, FolderLock
    from mnemon_server.engines.sqlite.connections import Connections

    vault = keys.folder
    if not (vault / "records.db").exists():
        raise ConfigurationError(f"there are no records in {str(vault)!r}")
    try:
        lock = FolderLock(vault)
    except FolderInUseError as error:
        raise ConfigurationError(
            f"a server uses {str(vault)!r}: ask it for a backup with `mnemon backup`, which needs no pause"
        ) from error
    with lock:
        discard_copies(vault)
        connections = Connections(vault / "records.db", keys)
        connections.open([])
        try:
            yield connections
        finally:
            connections.close()
