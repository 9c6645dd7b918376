"""Tenants, for operators."""

import json

import click

from mnemon._cli.options import json_option
from mnemon._cli.render import field_table, short_time
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values.tenants import Quotas, Tenant

_QUOTAS_HELP = 'What it may use, as JSON, such as {"calls_per_second": 50}.'


@click.group()
def tenants() -> None:
    """Manage the tenants of a server; for operators."""


@tenants.command("list")
@json_option
@click.pass_obj
def list_tenants(session: Session, *, as_json: bool) -> None:
    """List all tenants."""
    found = list(session.client.tenants.list())
    if as_json:
        echo(json.dumps([each.to_dict() for each in found], ensure_ascii=False))
        return
    for each in found:
        echo(_line(each), is_line=True)


@tenants.command()
@click.argument("tenant")
@json_option
@click.pass_obj
def show(session: Session, tenant: str, *, as_json: bool) -> None:
    """Show a tenant: what it is called, since when there is one, and its quotas."""
    found = session.client.tenants.get(tenant)
    if as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    fields = {
        "tenant": found.tenant,
        "name": found.display_name,
        "state": _state(found),
        "created": short_time(found.create_time),
        "updated": short_time(found.update_time),
    }
    session.console.print(field_table({**fields, **_quota_fields(found.quotas)}))


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", default="", help="What people call it.")
@click.option("--quotas", help=_QUOTAS_HELP)
@click.pass_obj
def create(session: Session, tenant: str, display_name: str, quotas: str | None) -> None:
    """Make a tenant. `mnemon keys create --tenant` then makes its first key."""
    made = session.client.tenants.add(tenant, display_name=display_name, quotas=_quotas(quotas))
    echo(_line(made), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", help="What people call it.")
@click.option("--quotas", help=_QUOTAS_HELP)
@click.pass_obj
def update(session: Session, tenant: str, display_name: str | None, quotas: str | None) -> None:
    """Change what a tenant is called, or what it may use."""
    changed = session.client.tenants.update(tenant, display_name=display_name, quotas=_quotas(quotas))
    echo(_line(changed), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.option("--reason", required=True, help="What its callers are told.")
@click.pass_obj
def suspend(session: Session, tenant: str, reason: str) -> None:
    """Refuse all calls of a tenant, and end its streams. Its data stays."""
    echo(_line(session.client.tenants.suspend(tenant, reason)), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.pass_obj
def resume(session: Session, tenant: str) -> None:
    """Serve a suspended tenant again."""
    echo(_line(session.client.tenants.resume(tenant)), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, tenant: str, *, yes: bool) -> None:
    """Remove a suspended tenant, its keys and all of its data for good."""
    if not yes and click.prompt(f"All data of {tenant} will be gone. Type its id to confirm") != tenant:
        raise click.ClickException("that is another id; nothing was changed")
    session.client.tenants.delete(tenant)
    echo(f"the tenant {tenant} is deleted; its files are being removed", is_line=True)


@tenants.command()
@click.argument("tenant", default="")
@json_option
@click.pass_obj
def usage(session: Session, tenant: str, *, as_json: bool) -> None:
    """Show what a tenant stores and uses. An admin names none: it is that of its key."""
    found = session.client.tenants.usage(tenant)
    if as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    counts = {**found.to_dict(), "disk_bytes": f"{found.disk_bytes:,}", "bytes_in_flight": f"{found.bytes_in_flight:,}"}
    del counts["records"], counts["quotas"]
    fields = {**{f"{kind} records": f"{number:,}" for kind, number in found.records.items()}, **counts}
    shown = {name.replace("_", " "): value for name, value in fields.items()}
    session.console.print(field_table({**shown, **_quota_fields(found.quotas)}))


def _quota_fields(quotas: Quotas) -> dict[str, object]:
    """The quotas that are set; the option --quotas takes their names."""
    return {f"quota {name}": f"{most:,}" for name, most in quotas.to_dict().items() if most is not None}


def _quotas(text: str | None) -> Quotas | None:
    """The quotas that a text gives; None if it is not given."""
    try:
        return None if text is None else Quotas(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"must be a JSON object with numbers of known quotas: {error}") from error


def _state(tenant: Tenant) -> str:
    if tenant.delete_time is not None:
        return "deleted, its files are being removed"
    return "served" if tenant.suspension is None else f"suspended: {tenant.suspension.reason}"


def _line(tenant: Tenant) -> str:
    name = f"  {tenant.display_name}" if tenant.display_name else ""
    return f"{tenant.tenant}{name}  (created {tenant.create_time:%Y-%m-%d}; {_state(tenant)})"
