"""The commands `mnemon-server tenants`, which manage tenants in a data folder, also while a server uses it."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.keys import text_of_time
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas, parse_quotas
from mnemon_server.domain.access.tenants import Tenant, TenantChange

if TYPE_CHECKING:
    from mnemon_server.engines.access_file import AccessFile
    from mnemon_server.services.access.tenants import Tenants

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
GONE_S, GONE_POLL_S = 30.0, 0.2
"""How long `delete` waits for the server to remove the files."""
_PAGE = 1_000


def quota_option(text: str) -> Callable[[F], F]:
    """An option for quotas of a tenant's own; it may be repeated."""
    return click.option("--quota", "quotas", multiple=True, metavar="NAME=NUMBER", help=text)


@click.group()
def tenants() -> None:
    """Manage the tenants in a data folder. A server may be running; it notices a change within five seconds."""


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", default="", help="What people call it.")
@quota_option("What it may use, such as calls_per_second=50. Without: as the settings say.")
@with_folder
def create(tenant: str, display_name: str, quotas: tuple[str, ...], folder: DataFolder) -> None:
    """Make a tenant. `mnemon-server keys create` then makes its first key."""
    own = _own(quotas) or UNLIMITED
    _show(_run(folder, lambda found: found.create(tenant, display_name, own), create=True))


@tenants.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_folder
def list_tenants(*, as_json: bool, folder: DataFolder) -> None:
    """Print all tenants."""

    async def read(found: "Tenants") -> list[Tenant]:
        everyone: list[Tenant] = []
        position: int | None = 0
        while position is not None:
            page = await found.list(after=position, limit=_PAGE)
            everyone += page.items
            position = page.next_position
        return everyone

    rows = _run(folder, read)
    if as_json:
        echo(json.dumps([_row(tenant) for tenant in rows], indent=2, ensure_ascii=False))
        return
    for tenant in rows:
        _show(tenant)


@tenants.command()
@click.argument("tenant")
@with_folder
def show(tenant: str, folder: DataFolder) -> None:
    """Print a tenant, and the size of its files."""
    from mnemon_server.engines.vault_folders import size_of

    found = _run(folder, lambda found: found.get(tenant))
    size = size_of(folder.vaults / tenant)
    echo(json.dumps({**_row(found), "disk_bytes": size}, indent=2, ensure_ascii=False))


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", help="What people call it.")
@quota_option("Such as calls_per_second=50; several replace all that it has. Empty: those of the settings.")
@with_folder
def update(tenant: str, display_name: str | None, quotas: tuple[str, ...], folder: DataFolder) -> None:
    """Change what a tenant is called, or what it may use."""
    own = _own(quotas)
    _show(_run(folder, lambda found: found.change(tenant, TenantChange(display_name=display_name, quotas=own))))


@tenants.command()
@click.argument("tenant")
@click.option("--reason", required=True, help="What its callers are told.")
@with_folder
def suspend(tenant: str, reason: str, folder: DataFolder) -> None:
    """Refuse all calls of a tenant, and end its streams. Its data stays."""
    _show(_run(folder, lambda found: found.change(tenant, TenantChange(is_suspended=True, reason=reason))))


@tenants.command()
@click.argument("tenant")
@with_folder
def resume(tenant: str, folder: DataFolder) -> None:
    """Serve a suspended tenant again."""
    _show(_run(folder, lambda found: found.change(tenant, TenantChange(is_suspended=False))))


@tenants.command()
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_folder
def delete(tenant: str, *, yes: bool, folder: DataFolder) -> None:
    """Remove a suspended tenant, its keys and all of its data for good."""
    if not yes and click.prompt(f"All data of {tenant} will be gone. Type its id to confirm") != tenant:
        raise click.ClickException("that is another id; nothing was changed")
    _run(folder, lambda found: _delete(found, tenant, folder.vaults))
    echo(f"the tenant {tenant} is deleted")


def _own(quotas: tuple[str, ...]) -> Quotas | None:
    """The quotas that are given; None if none are."""
    return parse_quotas([text for text in quotas if text], "quota") if quotas else None


async def _delete(found: "Tenants", tenant: str, vaults: Path) -> None:
    from mnemon_server.engines.folder import FolderInUseError, FolderLock
    from mnemon_server.engines.vault_folders import remove_vault

    await found.delete(tenant)
    try:
        with FolderLock(vaults):
            remove_vault(vaults, tenant)
            await found.forget(tenant)
            return
    except FolderInUseError:
        until = time.monotonic() + GONE_S
    while await found.exists(tenant):
        if time.monotonic() > until:
            raise click.ClickException("its keys are gone; the running server still removes its files")
        await asyncio.sleep(GONE_POLL_S)


def _run(folder: DataFolder, action: "Callable[[Tenants], Coroutine[Any, Any, T]]", *, create: bool = False) -> T:
    """The result of an action on the tenants of the folder."""
    from mnemon_server.engines.tenant_file import TenantFile
    from mnemon_server.services.access.tenants import Tenants

    async def work(file: "AccessFile") -> T:
        async with Tenants(TenantFile(file)) as found:
            return await action(found)

    with closing(folder.open_access(create=create)) as file:
        return asyncio.run(work(file))


def _show(tenant: Tenant) -> None:
    state = "deleted, its files are being removed" if tenant.deleted_at else "served"
    if tenant.suspension and not tenant.deleted_at:
        state = f"suspended since {text_of_time(tenant.suspension.since)}: {tenant.suspension.reason}"
    name = f"  {tenant.display_name}" if tenant.display_name else ""
    echo(f"{tenant.tenant}{name}  (created {text_of_time(tenant.created_at)}; {state})", is_line=True)


def _row(tenant: Tenant) -> dict[str, Any]:
    suspension = tenant.suspension
    return {
        "tenant": tenant.tenant,
        "display_name": tenant.display_name,
        "quotas": tenant.quotas.as_dict(),
        "create_time": text_of_time(tenant.created_at),
        "update_time": text_of_time(tenant.updated_at),
        "suspend_time": text_of_time(suspension.since) if suspension else None,
        "suspend_reason": suspension.reason if suspension else None,
        "delete_time": text_of_time(tenant.deleted_at),
    }
