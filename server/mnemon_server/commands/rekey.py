"""The command `mnemon-server rekey`."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.master_keys import data_dir_option, master_key_option, master_keys
from mnemon_server.config.loading import load_settings
from mnemon_server.domain.access import TENANT_ID, check_tenant
from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.events import CompactionProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@click.command()
@data_dir_option
@master_key_option
@click.option("--tenant", help="Whose vault gets another key; without it, those of all tenants.")
def rekey(data_dir: Path | None, master_key_file: Path | None, tenant: str | None) -> None:
    """Encrypt vaults anew, each with another key of its own, because somebody else has the present one.

    No server may run. Each vault is replaced in one step. Earlier backups keep the key that they have.
    """
    from rich.console import Console
    from rich.progress import Progress

    from mnemon_server.engines.folder import FolderInUseError, FolderLock, find_files
    from mnemon_server.engines.rekeying import rekey as give_key
    from mnemon_server.engines.vault_folders import finish_locked_replacements, vaults_folder

    try:
        if tenant is not None:
            check_tenant(tenant)
        master = master_keys(master_key_file)
        vaults = vaults_folder(data_dir or load_settings(environ=os.environ).settings.data_dir)
        folders = [file.parent for file in find_files(vaults / (tenant or ""), RECORDS)]
        tenants = [each.name for each in folders if each.parent == vaults and TENANT_ID.fullmatch(each.name)]
        if not tenants:
            raise ConfigurationError(f"there are no records in {str(vaults / (tenant or ''))!r}")
        with FolderLock(vaults), Progress(console=Console(stderr=True)) as bar:
            finish_locked_replacements(vaults)
            for each in tenants:
                give_key(vaults, each, master, partial(_show, bar, bar.add_task(each, total=None)))
                echo(f"the vault of {each} has another key")
    except FolderInUseError as error:
        raise ConfigurationError(
            f"a server uses {str(vaults)!r}, and nothing has changed: stop it first ({error})"
        ) from error


def _show(bar: "Progress", task: "TaskID", progress: CompactionProgress) -> None:
    bar.update(task, completed=progress.processed_bytes, total=progress.total_bytes)
