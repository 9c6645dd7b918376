"""The command `mnemon-server rekey`."""

from functools import partial
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.progress import progress
from mnemon_server.domain.access import TENANT_ID, check_tenant
from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.events import CompactionProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@click.command()
@with_folder
@click.option("--tenant", help="Whose vault gets another key; without it, those of all tenants.")
def rekey(tenant: str | None, folder: DataFolder) -> None:
    """Encrypt vaults anew, each with another key of its own, because somebody else has the present one.

    No server may run. Each vault is replaced in one step. Earlier backups keep the key that they have.
    """
    from mnemon_server.engines.folder import find_files
    from mnemon_server.engines.rekeying import rekey as give_key
    from mnemon_server.engines.vault_folders import finish_locked_replacements

    if tenant is not None:
        check_tenant(tenant)
    master, vaults = folder.master_keys(), folder.vaults
    folders = [file.parent for file in find_files(vaults / (tenant or ""), RECORDS)]
    tenants = [each.name for each in folders if each.parent == vaults and TENANT_ID.fullmatch(each.name)]
    if not tenants:
        raise ConfigurationError(f"there are no records in {str(vaults / (tenant or ''))!r}")
    with folder.locked(), progress() as bar:
        finish_locked_replacements(vaults)
        for each in tenants:
            give_key(vaults, each, master, partial(_show, bar, bar.add_task(each, total=None)))
            echo(f"the vault of {each} has another key")


def _show(bar: "Progress", task: "TaskID", progress: CompactionProgress) -> None:
    bar.update(task, completed=progress.processed_bytes, total=progress.total_bytes)
