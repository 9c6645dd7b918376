"""API keys, and who one is."""

import json
import re
from datetime import timedelta

import click

from mnemon._cli.options import json_option, labels
from mnemon._cli.render import field_table
from mnemon._cli.session import Session
from mnemon._terminal import echo, span
from mnemon._values.access import ApiKey, KeySecret, Role

_ROLES = [role.value for role in Role]
_WHOLE_KEY = re.compile(r"mn_([^_]*)_.*", re.DOTALL)


def _without_secret(text: str) -> str:
    """The id of a key, which may be given as a whole."""
    whole = _WHOLE_KEY.fullmatch(text.strip())
    return whole[1] if whole else text


_key_id = click.argument("key_id", type=_without_secret)
_tenant = click.option("--tenant", default="", help="Whose keys, for operators; by default, those of operators.")


@click.command()
@json_option
@click.pass_obj
def whoami(session: Session, *, as_json: bool) -> None:
    """Show the tenant, the name and the role that the server knows you by."""
    found = session.client.who_am_i()
    if as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    ends = found.expire_time.isoformat() if found.expire_time else "not by itself"
    session.console.print(
        field_table(
            {
                "tenant": found.tenant or "(operators belong to none)",
                "subject": found.subject or "(the server has no authentication)",
                "role": found.role.value,
                "ends": ends,
                **({"users": ", ".join(found.users)} if found.users else {}),
                **({"namespaces": ", ".join(found.namespaces)} if found.namespaces else {}),
            }
        )
    )


@click.group()
def keys() -> None:
    """Manage the API keys of your tenant; for admins, and for operators, of any tenant."""


@keys.command("list")
@_tenant
@json_option
@click.pass_obj
def list_keys(session: Session, *, tenant: str, as_json: bool) -> None:
    """List the keys, without their secrets."""
    found = list(session.client.keys.list(tenant=tenant))
    if as_json:
        echo(json.dumps([each.to_dict() for each in found], ensure_ascii=False))
        return
    if not found:
        echo("no API keys", err=True)
    for each in found:
        echo(_line(each), is_line=True)


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What its holder may do.")
@click.option("--ttl-days", type=float, help="Days for which it is valid; by default, until it is revoked.")
@click.option("--user", "users", multiple=True, help='Bind the key to the records of this user; "*" for all.')
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    callback=lambda context, parameter, value: [text for text in value if labels(text)],
    help='Bind it to the facts in this namespace, as users.ada; "*" for all.',
)
@_tenant
@click.pass_obj
def create(
    session: Session,
    name: str,
    role: str,
    ttl_days: float | None,
    users: tuple[str, ...],
    namespaces: tuple[str, ...],
    tenant: str,
) -> None:
    """Make a key, and print its secret, which cannot be shown again. NAME says what it is for.

    With --user or --namespace, no other records exist for the key's holder; both may be given several times.
    """
    ttl = None if ttl_days is None else span(ttl_days, timedelta(days=1))
    made = session.client.keys.add(name, role=role, ttl=ttl, tenant=tenant, users=users, namespaces=namespaces)
    _show(session, made)


@keys.command()
@_key_id
@click.option("--overlap-hours", type=float, help="Hours for which the secret before remains valid; default 24.")
@_tenant
@click.pass_obj
def rotate(session: Session, key_id: str, overlap_hours: float | None, tenant: str) -> None:
    """Give a key a new secret, and print it."""
    overlap = None if overlap_hours is None else span(overlap_hours, timedelta(hours=1))
    _show(session, session.client.keys.rotate(key_id, overlap=overlap, tenant=tenant))


@keys.command()
@_key_id
@_tenant
@click.pass_obj
def revoke(session: Session, key_id: str, tenant: str) -> None:
    """End a key for good."""
    session.client.keys.revoke(key_id, tenant=tenant)
    echo(f"the key {key_id} is revoked", is_line=True)


def _show(session: Session, made: KeySecret) -> None:
    """The secret alone on standard output, so that a script can keep it."""
    echo(f"key {made.key.key_id} ({made.key.role}); its secret is:", err=True)
    echo(made.secret)


def _line(key: ApiKey) -> str:
    used = f"last used {key.last_use_time:%Y-%m-%d %H:%M} UTC" if key.last_use_time else "never used"
    ends = f", ends {key.expire_time:%Y-%m-%d %H:%M} UTC" if key.expire_time else ""
    users = f", users {' '.join(key.users)}" if key.users else ""
    namespaces = f", namespaces {' '.join(key.namespaces)}" if key.namespaces else ""
    about = f"created {key.create_time:%Y-%m-%d}, {used}{ends}{users}{namespaces}"
    return f"{key.key_id}  {key.role:8}  {key.name}  ({about})"
