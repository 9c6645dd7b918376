"""The command `mnemon-server repair`."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.errors import explained
from mnemon_server.commands.progress import progress
from mnemon_server.domain.access import check_tenant
from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from mnemon_server.engines.repair import Finding


@click.command()
@with_folder
@click.option("--tenant", help="Whose vault is repaired; without it, those of all tenants.")
@click.option("--dry-run", is_flag=True, help="Say what is damaged and what would be done, and change nothing.")
def repair(tenant: str | None, *, dry_run: bool, folder: DataFolder) -> None:
    """Read everything in the vaults, and make anew what is damaged and derived from the rest. No server may run.

    What cannot be derived is named, and stays as it is: restore a backup. The exit code is 1 if there is any, and 2 if
    not everything was read and repaired.
    """
    lost = count = 0
    with explained(2), progress() as bar:

        def track(task: str, total: int) -> Callable[[int], object]:
            return partial(bar.advance, bar.add_task(task, total=total or None))

        for vault, found in _repaired(folder, tenant, track, dry_run=dry_run):
            done = f"can be {found.remedy}" if dry_run else found.remedy
            said = done if found.remedy else f"cannot be repaired: {found.advice}"
            echo(f"{vault.relative_to(folder.path) / found.file}: {found.problem}; {said}")
            count += 1
            lost += not found.remedy
    echo(f"damaged places: {count:,}; beyond repair: {lost:,}")
    sys.exit(1 if lost else 0)


def _repaired(
    data: DataFolder,
    tenant: str | None,
    track: Callable[[str, int], Callable[[int], object]],
    *,
    dry_run: bool,
) -> Iterator[tuple[Path, "Finding"]]:
    """Yields the findings in each vault, and in the file of keys and tenants, each with its folder."""
    from mnemon_server.engines.access_file import KEY_NAME
    from mnemon_server.engines.repair import Finding, VaultRepair, repair_access
    from mnemon_server.engines.vault_folders import VAULT_GONE, finish_locked_replacements
    from mnemon_server.engines.vault_key import VaultKeyFile

    if tenant is not None:
        check_tenant(tenant)
    master, data_dir = data.master_keys(), data.path
    _require_data(data_dir, tenant)
    with data.locked():
        if not dry_run:
            finish_locked_replacements(data.vaults)
        if tenant is None:
            access = VaultKeyFile(data_dir, master, KEY_NAME)
            yield from ((data_dir, found) for found in repair_access(access, dry_run=dry_run))
        missing = _missing(data_dir, tenant)
        yield from ((folder, Finding(RECORDS, VAULT_GONE)) for folder in missing)
        for folder in _folders(data_dir, tenant):
            links = [*_links(folder)]
            yield from links
            if not links and folder not in missing:
                keys = VaultKeyFile(folder, master)
                yield from ((folder, found) for found in VaultRepair(keys, track, dry_run=dry_run).run())


def _require_data(data_dir: Path, tenant: str | None) -> None:
    """Raises ConfigurationError if there is nothing that could be repaired."""
    from mnemon_server.engines.access_file import has_access_file

    has_access = tenant is None and has_access_file(data_dir)
    if not has_access and not _missing(data_dir, tenant) and not _folders(data_dir, tenant):
        raise ConfigurationError(f"there are no records in {str(data_dir / 'tenants' / (tenant or ''))!r}")


def _folders(data_dir: Path, tenant: str | None) -> list[Path]:
    """The folders of the vaults, or of one."""
    return sorted(file.parent for file in data_dir.glob(f"tenants/{tenant or '[!.]*'}/{RECORDS}"))


def _missing(data_dir: Path, tenant: str | None) -> list[Path]:
    """The folders of vaults that are gone."""
    from mnemon_server.engines.vault_folders import missing_vaults

    return [data_dir / "tenants" / each for each in missing_vaults(data_dir) if tenant in (None, each)]


def _links(folder: Path) -> Iterator[tuple[Path, "Finding"]]:
    from mnemon_server.engines.folder import LinkError, find_links
    from mnemon_server.engines.repair import Finding

    for link in find_links(folder):
        yield link.parent, Finding(link.name, "it is a symbolic link", advice=str(LinkError(link)))
