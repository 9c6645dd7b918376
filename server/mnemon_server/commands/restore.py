"""The command `mnemon-server restore`."""

from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.progress import byte_progress
from mnemon_server.domain.access import DEFAULT_TENANT, check_tenant


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, exists=True, file_okay=False))
@with_folder
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose vault it becomes.")
@click.option("--replace", is_flag=True, help="Remove the vault that the tenant has.")
@click.option(
    "--forget-erasures",
    is_flag=True,
    help="With --replace: do so even if it cannot be read what that vault has erased; it comes back with the backup.",
)
def restore(backup: Path, tenant: str, *, replace: bool, forget_erasures: bool, folder: DataFolder) -> None:
    """Restore the vault in the folder BACKUP, after reading every byte of it. No server may use the data folder.

    The folder of an incremental backup must be beside those that it completes; of several copies of one, a sound one is
    taken, and damaged ones are named. Clients that follow the change feed are
    told that their cursors are no longer valid.
    """
    from mnemon_server.engines.backups.restoring import Restoration

    check_tenant(tenant)
    master, vaults = folder.master_keys(), folder.vaults
    with byte_progress() as bar:
        restoration = Restoration(backup)
        task = bar.add_task("Checking", total=restoration.byte_count)
        passed_over = restoration.check(lambda count: bar.advance(task, count))
        bar.update(task, description="Restoring")
        restoration.run(
            vaults,
            tenant,
            replace=replace,
            forget_erasures=forget_erasures,
            master=master,
            advance=lambda count: bar.advance(task, count),
        )
    manifest = restoration.manifest
    echo(f"the vault of {tenant} is as it was on {manifest.time}, at change {manifest.sequence:,}")
    for line in passed_over:
        echo(f"damaged, and another copy of this backup was taken: {line}", err=True)
    for path in manifest.missing:
        echo(f"{path} was lost before the backup was made, and its events with it", err=True)
