"""The command `mnemon-server backup`, for a data folder that no server uses."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo, filled

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.progress import byte_progress
from mnemon_server.domain.access import DEFAULT_TENANT, check_tenant
from mnemon_server.domain.backup import BackupPart, BackupProgress, Manifest, parse_manifest
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from mnemon_server.engines.sqlite.connections import Connections
    from mnemon_server.engines.vault_key import VaultKeyFile


@click.command()
@click.argument("target", metavar="FOLDER", type=filled)
@with_folder
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose vault is backed up.")
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An earlier backup: copy only what has changed since, and keep both side by side.",
)
def backup(target: str, tenant: str, base: Path | None, folder: DataFolder) -> None:
    """Copy the vault of a tenant to the new FOLDER, while no server uses it. `mnemon backup` asks a running server.

    The folder appears once it is complete, and only its owner can read it.
    """
    from mnemon.shared.backup_folder import BackupFolder, read_manifest

    from mnemon_server.engines.backups.parts import back_up
    from mnemon_server.engines.vault_key import VaultKeyFile

    check_tenant(tenant)
    former = parse_manifest(read_manifest(base)) if base else None
    vault = folder.vaults / tenant
    with (
        _opened(VaultKeyFile(vault, folder.master_keys())) as connections,
        BackupFolder(Path(target)) as files,
        byte_progress() as bar,
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
    echo(f"{target}: the vault of {tenant} up to change {manifest.sequence:,}")
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
