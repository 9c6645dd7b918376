"""The commands `mnemon-server keys`, which manage API keys in a data folder, also while a server uses it."""

import json
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
from mnemon.shared.terminal import echo, span

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.domain.access import (
    DEFAULT_TENANT,
    KEYS_MAX,
    NO_TENANT,
    OVERLAP_DEFAULT,
    ApiKey,
    NewSecret,
    Role,
    check_tenant_of_keys,
    without_secret,
)
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.origins import Origin

if TYPE_CHECKING:
    from mnemon_server.engines.access_file import AccessFile
    from mnemon_server.services.access.keys import KeyRing

T = TypeVar("T")

_ROLES = [role.name.lower() for role in Role]
_tenant = click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose keys.")
_key_id = click.argument("key_id", type=without_secret)
_operators = click.option(
    "--operators", "tenant", flag_value=NO_TENANT, help="Keys of operators, who belong to no tenant."
)


@click.group()
def keys() -> None:
    """Manage the API keys in a data folder. A server may be running; it notices a change within five seconds."""


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What its holder may do.")
@click.option("--ttl-days", type=float, help="Days for which it is valid; by default, until it is revoked.")
@click.option("--user", "users", multiple=True, help='Bind the key to the records of this user; "*" for all.')
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help='Bind it to the facts in this namespace, as users.ada; "*" for all.',
)
@click.option(
    "--origin",
    "origins",
    type=click.Choice([*map(str, Origin)]),
    multiple=True,
    help="Let it write only records that come from here; repeatable.",
)
@click.option("--tenant", help=f"Whose key; by default, that of {DEFAULT_TENANT}. Operators belong to no tenant.")
@with_folder
def create(
    name: str,
    role: str,
    ttl_days: float | None,
    users: tuple[str, ...],
    namespaces: tuple[str, ...],
    origins: tuple[str, ...],
    tenant: str | None,
    folder: DataFolder,
) -> None:
    """Make a key, and print its secret, which cannot be shown again. NAME says what it is for.

    A tenant begins to exist with its first key. With --user or --namespace, no other records exist for the key's
    holder; both may be given several times. With --origin, it writes only such records, and cannot change others.
    """
    ttl = None if ttl_days is None else span(ttl_days, timedelta(days=1))
    held = Role[role.upper()]
    whose = (NO_TENANT if held is Role.OPERATOR else DEFAULT_TENANT) if tenant is None else tenant

    async def make(ring: "KeyRing") -> NewSecret:
        return await ring.create(whose, name, held, ttl, Bounds.of(users, namespaces, origins))

    _show_secret(_run(folder, whose, make, create=True))


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_tenant
@_operators
@with_folder
def list_keys(*, as_json: bool, tenant: str, folder: DataFolder) -> None:
    """Print the keys of a tenant, or of operators, without their secrets."""

    async def read(ring: "KeyRing") -> tuple[ApiKey, ...]:
        return ring.list(tenant, after=0, limit=KEYS_MAX).items

    rows = [_row(key) for key in _run(folder, tenant, read)]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    if not rows:
        echo(f"no API keys of {f'the tenant {tenant!r}' if tenant else 'operators'}", err=True)
    for row in rows:
        used = f"last used {row['last_use_time']}" if row["last_use_time"] else "never used"
        ends = f", ends {row['expire_time']}" if row["expire_time"] else ""
        bound = "".join(f", {kind} {' '.join(row[kind])}" for kind in ("users", "namespaces", "origins") if row[kind])
        about = f"created {row['create_time']}, {used}{ends}{bound}"
        echo(f"{row['key_id']}  {row['role']:8}  {row['name']}  ({about})", is_line=True)


@keys.command()
@_key_id
@click.option(
    "--overlap-hours",
    type=float,
    default=OVERLAP_DEFAULT / timedelta(hours=1),
    show_default=True,
    help="Hours for which the secret before remains valid.",
)
@_tenant
@_operators
@with_folder
def rotate(key_id: str, overlap_hours: float, tenant: str, folder: DataFolder) -> None:
    """Give a key a new secret, and print it."""
    overlap = span(overlap_hours, timedelta(hours=1))
    _show_secret(_run(folder, tenant, lambda ring: ring.rotate(tenant, key_id, overlap)))


@keys.command()
@_key_id
@_tenant
@_operators
@with_folder
def revoke(key_id: str, tenant: str, folder: DataFolder) -> None:
    """End a key for good."""
    _run(folder, tenant, lambda ring: ring.revoke(tenant, key_id))
    echo(f"the key {key_id} is revoked")


def _run(
    folder: DataFolder, tenant: str, action: "Callable[[KeyRing], Coroutine[Any, Any, T]]", *, create: bool = False
) -> T:
    """The result of an action on the keys of the folder."""
    import asyncio

    from mnemon_server.engines.key_file import KeyFile
    from mnemon_server.services.access.keys import KeyRing

    async def work(file: "AccessFile") -> T:
        async with KeyRing(KeyFile(file)) as ring:
            return await action(ring)

    check_tenant_of_keys(tenant)
    with closing(folder.open_access(create=create)) as file:
        return asyncio.run(work(file))


def _show_secret(made: NewSecret) -> None:
    """The secret alone on standard output, so that a script can keep it."""
    whose = f" of {made.key.tenant}" if made.key.tenant else ""
    echo(f"key {made.key.key_id} ({made.key.role.name.lower()}{whose}); its secret is:", err=True)
    echo(made.secret)


def _row(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "role": key.role.name.lower(),
        "create_time": text_of_time(key.created_at),
        "expire_time": text_of_time(key.expires_at),
        "last_use_time": text_of_time(key.last_used_at),
        "previous_expire_time": text_of_time(key.previous_expires_at),
        "users": key.bounds.user_texts,
        "namespaces": key.bounds.namespace_texts,
        "origins": [*key.bounds.origins],
    }


def text_of_time(time: datetime | None) -> str | None:
    """A time in RFC 3339; None if it is unset."""
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")
