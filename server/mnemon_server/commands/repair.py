"""The command `mnemon-server repair`."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon._terminal import echo

from mnemon_server.commands.errors import explained
from mnemon_server.commands.master_keys import data_dir_option, master_key_option, master_keys
from mnemon_server.config.loading import load_settings
from mnemon_server.domain.access import check_tenant
from mnemon_server.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from mnemon_server.engines.repair import Finding


@click.command()
@data_dir_option
@master_key_option
@click.option("--tenant", help="Whose vault is repaired; without it, those of all tenants.")
@click.option("--dry-run", is_flag=True, help="Say what is damaged and what would be done, and change nothing.")
def repair(data_dir: Path | None, master_key_file: Path | None, tenant: str | None, *, dry_run: bool) -> None:
    """Read everything in the vaults, and make anew what is damaged and derived from the rest. No server may run.

    What cannot be derived is named, and stays as it is: restore a backup. The exit code is 1 if there is any, and 2 if
    not everything was read and repaired.
    """
    from rich.console import Console
    from rich.progress import Progress

    lost = count = 0
    with explained(2):
        folder = data_dir or load_settings(environ=os.environ).settings.data_dir
        with Progress(console=Console(stderr=True)) as bar:

            def track(task: str, total: int) -> Callable[[int], object]:
                return partial(bar.advance, bar.add_task(task, total=total or None))

            for vault, found in _repaired(folder, tenant, master_key_file, track, dry_run=dry_run):
                done = f"can be {found.remedy}" if dry_run else found.remedy
                said = done if found.remedy else f"cannot be repaired: {found.advice}"
                echo(f"{vault.relative_to(folder) / found.file}: {found.problem}; {said}")
                count += 1
                lost += not found.remedy
    echo(f"{count:,} places are damaged; {lost:,} of them cannot be repaired")
    sys.exit(1 if lost else 0)


def _repaired(
    data_dir: Path,
    tenant: str | None,
    master_key_file: Path | None,
    track: Callable[[str, int], Callable[[int], object]],
    *,
    dry_run: bool,
) -> Iterator[tuple[Path, "Finding"]]:
    """What was found in each vault, and in the file of keys and tenants."""
    from mnemon_server.engines.access_file import FILE_NAME, KEY_NAME
    from mnemon_server.engines.folder import FolderInUseError, FolderLock
    from mnemon_server.engines.repair import VaultRepair, repair_access
    from mnemon_server.engines.vault_folders import finish_locked_replacements, vaults_folder
    from mnemon_server.engines.vault_key import VaultKeyFile

    if tenant is not None:
        check_tenant(tenant)
    master, vaults = master_keys(master_key_file), vaults_folder(data_dir)
    has_access = tenant is None and (data_dir / FILE_NAME).exists()
    if not has_access and not any(vaults.glob(f"{tenant or '[!.]*'}/records.db")):
        raise ConfigurationError(f"there are no records in {str(vaults / (tenant or ''))!r}")
    try:
        lock = FolderLock(vaults)
    except FolderInUseError as error:
        raise ConfigurationError(
            f"a server uses {str(vaults)!r}, and nothing has changed: stop it, and repair again"
        ) from error
    with lock:
        if not dry_run:
            finish_locked_replacements(vaults)
        if has_access:
            access = VaultKeyFile(data_dir, master, KEY_NAME)
            yield from ((data_dir, found) for found in repair_access(access, dry_run=dry_run))
        for file in sorted(vaults.glob(f"{tenant or '[!.]*'}/records.db")):
            for found in VaultRepair(VaultKeyFile(file.parent, master), track, dry_run=dry_run).run():
                yield file.parent, found
