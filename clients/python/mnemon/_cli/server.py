"""The commands for the server, who may use it, and copies and erasures of what it holds."""

import json
import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from mnemon._arguments import unknown_name
from mnemon._cli import options as opt
from mnemon._cli.archive.files import new_file, refuse_existing
from mnemon._cli.output import counted_kinds, field_table, kind_of, short_time, show, show_lines
from mnemon._cli.session import Session
from mnemon._json import read_json
from mnemon._sync.backups import Report
from mnemon._values.access import ApiKey, Identity, KeySecret, Role
from mnemon._values.backups import Backup, BackupProgress
from mnemon._values.erasures import EraseProgress, ErasureReceipt
from mnemon._values.server import ServerInfo
from mnemon._values.tenants import Quotas, Tenant, TenantUsage
from mnemon.shared.terminal import counted, echo, filled, span

_WHOLE_KEY = re.compile(r"mn_([^_]*)_.*", re.DOTALL)
_TRACES = ("answer", "change", "unmarked", "vector")


# Information


@click.command()
@opt.json_option
def info(session: Session) -> None:
    """Show information about the server: version, capabilities, limits, embedding model and vault."""
    show(session, session.client.server_info(), info_table)


def info_table(found: ServerInfo) -> RenderableType:
    """Information about the server."""
    model, limits = found.embedding_model, found.limits
    return field_table(
        {
            "version": found.version,
            "API": f"mnemon.v1, revision {found.api_revision}",
            "vault": found.vault_id,
            "model": f"{model.name} {model.precision}, {model.dimension} dimensions, {limits.embedding_tokens} tokens",
            "capabilities": ", ".join(each.replace("_", " ") for each in found.capabilities),
            "messages": f"{_mib(limits.message_bytes)}, answers {_mib(limits.answer_bytes)}, texts "
            f"{_mib(limits.content_bytes)}; {limits.bulk_requests:,} requests of a stream at once",
            "pages": f"{limits.page_size:,} records",
            "calls at once": f"{limits.unary_calls:,}, and {limits.streams:,} streams",
            "deadline": f"{limits.default_deadline_s:g} s where a client names none",
            "changes": f"kept for {limits.change_retention_s / 86_400:g} days",
        }
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):g} MiB"


# Identity and keys


def _without_secret(text: str) -> str:
    """The id of a key, which may be given as a whole."""
    whole = _WHOLE_KEY.fullmatch(text.strip())
    return whole[1] if whole else text


_key_id = click.argument("key_id", type=_without_secret)
_of_tenant = click.option("--tenant", default="", help="Whose keys, for operators; by default, those of operators.")


@click.command()
@opt.json_option
def whoami(session: Session) -> None:
    """Show the tenant, the name and the role that the server knows you by."""
    show(session, session.client.who_am_i(), _identity_table)


def _identity_table(found: Identity) -> RenderableType:
    return field_table(
        {
            "tenant": found.tenant or "(operators belong to none)",
            "subject": found.subject or "(the server has no authentication)",
            "role": found.role.value,
            "ends": found.expire_time.isoformat() if found.expire_time else "not by itself",
            "users": ", ".join(found.users),
            "namespaces": ", ".join(found.namespaces),
            "origins": ", ".join(found.origins),
        }
    )


@click.group()
def keys() -> None:
    """Manage the API keys of your tenant; for admins, and for operators, of any tenant."""


@keys.command("list")
@_of_tenant
@opt.json_option
def list_keys(session: Session, *, tenant: str) -> None:
    """List the keys, without their secrets."""
    show_lines(session, list(session.client.keys.list(tenant=tenant)), _key_line, "no API keys")


@keys.command("create")
@click.argument("name")
@click.option("--role", type=opt.choice_of(Role), required=True, help="What its holder may do.")
@click.option("--ttl-days", type=float, help="Days for which it is valid; by default, until it is revoked.")
@click.option("--user", "users", multiple=True, help='Bind the key to the records of this user; "*" for all.')
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    callback=lambda context, parameter, value: [text for text in value if opt.labels(text)],
    help='Bind it to the facts in this namespace, as user.ada; "*" for all.',
)
@click.option(
    "--origin",
    "origins",
    type=click.Choice(opt.ORIGINS),
    multiple=True,
    help="Let it write only records that come from here; repeatable.",
)
@_of_tenant
@click.pass_obj
def create_key(session: Session, /, name: str, ttl_days: float | None, **given: Any) -> None:
    """Make a key, and print its secret, which cannot be shown again. NAME says what it is for.

    With --user or --namespace, no other records exist for the key's holder; both may be given several times.
    """
    ttl = None if ttl_days is None else span(ttl_days, timedelta(days=1))
    _show_secret(session.client.keys.add(name, ttl=ttl, **given))


@keys.command()
@_key_id
@click.option("--overlap-hours", type=float, help="Hours for which the secret before remains valid; default 24.")
@_of_tenant
@click.pass_obj
def rotate(session: Session, key_id: str, overlap_hours: float | None, tenant: str) -> None:
    """Give a key a new secret, and print it."""
    overlap = None if overlap_hours is None else span(overlap_hours, timedelta(hours=1))
    _show_secret(session.client.keys.rotate(key_id, overlap=overlap, tenant=tenant))


@keys.command()
@_key_id
@_of_tenant
@opt.yes_option
@click.pass_obj
def revoke(session: Session, key_id: str, tenant: str, *, yes: bool) -> None:
    """End a key for good. Asks before it ends the last key of an admin."""
    if not yes and _is_last_admin(list(session.client.keys.list(tenant=tenant)), key_id):
        click.confirm(
            "No admin's key would be left; then only `mnemon-server keys create`, on the server's machine, makes one. "
            f"Revoke {key_id}?",
            abort=True,
            err=True,
        )
    session.client.keys.revoke(key_id, tenant=tenant)
    echo(f"the key {key_id} is revoked", is_line=True)


def _is_last_admin(keys: list[ApiKey], key_id: str) -> bool:
    """Whether this is the only key of an admin who is bound to nothing and whose key does not end by itself."""
    lasting = [
        key.key_id
        for key in keys
        if key.role is Role.ADMIN and key.expire_time is None and not (key.users or key.namespaces or key.origins)
    ]
    return lasting == [key_id]


def _show_secret(made: KeySecret) -> None:
    """The secret alone on standard output, so that a script can keep it."""
    echo(f"key {made.key.key_id} ({made.key.role}); its secret is:", err=True)
    echo(made.secret)


def _key_line(key: ApiKey) -> str:
    used = f"last used {key.last_use_time:%Y-%m-%d %H:%M} UTC" if key.last_use_time else "never used"
    ends = f", ends {key.expire_time:%Y-%m-%d %H:%M} UTC" if key.expire_time else ""
    given = {"users": key.users, "namespaces": key.namespaces, "origins": key.origins}
    bounds = "".join(f", {name} {' '.join(each)}" for name, each in given.items() if each)
    return f"{key.key_id}  {key.role:8}  {key.name}  (created {key.create_time:%Y-%m-%d}, {used}{ends}{bounds})"


# Tenants


@click.group()
def tenants() -> None:
    """Manage the tenants of a server; for operators."""


@tenants.command("list")
@opt.json_option
def list_tenants(session: Session) -> None:
    """List all tenants."""
    show_lines(session, list(session.client.tenants.list()), _tenant_line)


@tenants.command("show")
@click.argument("tenant")
@opt.json_option
def show_tenant(session: Session, tenant: str) -> None:
    """Show a tenant: what it is called, since when there is one, and its quotas."""
    show(session, session.client.tenants.get(tenant), _tenant_table)


def _tenant_table(found: Tenant) -> RenderableType:
    fields = {
        "tenant": found.tenant,
        "name": found.display_name,
        "state": _state(found),
        "created": short_time(found.create_time),
        "updated": short_time(found.update_time),
    }
    return field_table({**fields, **_quota_fields(found.quotas)})


def _quotas(text: str) -> Quotas:
    try:
        given = read_json(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise click.BadParameter('must be a JSON object, such as {"records": 1000}')
    known = Quotas().to_dict()
    for name in given:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not a quota; {unknown_name(name, known)}")
    return Quotas(**given)


_quotas_option = click.option(
    "--quotas", type=_quotas, metavar="JSON", help='What it may use, such as {"calls_per_second": 50}.'
)


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", default="", help="What people call it.")
@_quotas_option
@click.pass_obj
def create(session: Session, tenant: str, display_name: str, quotas: Quotas | None) -> None:
    """Make a tenant. `mnemon keys create --tenant` then makes its first key."""
    made = session.client.tenants.add(tenant, display_name=display_name, quotas=quotas)
    echo(_tenant_line(made), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.option("--display-name", help="What people call it.")
@_quotas_option
@click.pass_obj
def update(session: Session, tenant: str, display_name: str | None, quotas: Quotas | None) -> None:
    """Change what a tenant is called, or what it may use."""
    changed = session.client.tenants.update(tenant, display_name=display_name, quotas=quotas)
    echo(_tenant_line(changed), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.option("--reason", required=True, help="What its callers are told.")
@click.pass_obj
def suspend(session: Session, tenant: str, reason: str) -> None:
    """Refuse all calls of a tenant, and end its streams. Its data stays."""
    echo(_tenant_line(session.client.tenants.suspend(tenant, reason)), is_line=True)


@tenants.command()
@click.argument("tenant")
@click.pass_obj
def resume(session: Session, tenant: str) -> None:
    """Serve a suspended tenant again."""
    echo(_tenant_line(session.client.tenants.resume(tenant)), is_line=True)


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
@opt.json_option
def usage(session: Session, tenant: str) -> None:
    """Show what a tenant stores and uses. An admin names none: it is that of its key."""
    show(session, session.client.tenants.usage(tenant), _usage_table)


def _usage_table(found: TenantUsage) -> RenderableType:
    counts = {**found.to_dict(), "disk_bytes": f"{found.disk_bytes:,}", "bytes_in_flight": f"{found.bytes_in_flight:,}"}
    del counts["records"], counts["quotas"]
    fields = {**{f"{kind_of(kind)} records": f"{number:,}" for kind, number in found.records.items()}, **counts}
    shown = {name.replace("_", " "): value for name, value in fields.items()}
    return field_table({**shown, **_quota_fields(found.quotas)})


def _quota_fields(quotas: Quotas) -> dict[str, object]:
    """The quotas that are set; the option --quotas takes their names."""
    return {f"quota {name}": f"{most:,}" for name, most in quotas.to_dict().items() if most is not None}


def _state(tenant: Tenant) -> str:
    if tenant.delete_time is not None:
        return "deleted, its files are being removed"
    return "served" if tenant.suspension is None else f"suspended: {tenant.suspension.reason}"


def _tenant_line(tenant: Tenant) -> str:
    name = f"  {tenant.display_name}" if tenant.display_name else ""
    return f"{tenant.tenant}{name}  (created {tenant.create_time:%Y-%m-%d}; {_state(tenant)})"


# Backups and erasures


@click.command("backup")
@click.argument("folder", metavar="FOLDER", type=filled)
@click.option(
    "--base",
    type=filled,
    metavar="TEXT",
    help="An earlier backup: copy only what has changed since, and keep both side by side.",
)
@click.option("--on-server", is_flag=True, help="The server keeps it in its backup_dir; FOLDER and base are names.")
@opt.json_option
def back_up(session: Session, folder: str, *, base: str | None, on_server: bool) -> None:
    """Copy the whole vault in its present state to a new FOLDER; for admins.

    It appears once it is complete, and only its owner can read it. `mnemon-server restore` restores it.
    """
    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    hidden = session.as_json or not sys.stderr.isatty()
    with Progress(*columns, console=session.error_console, transient=True, disable=hidden) as bar:
        task = bar.add_task("backing up", total=None)

        def report(progress: BackupProgress) -> None:
            bar.update(task, completed=progress.done_bytes, total=progress.total_bytes)

        made = _make(session, folder, base, report, on_server=on_server)
    show(session, made, f"{folder}: {made.size_bytes:,} bytes, up to change {made.sequence:,}")
    for path in made.missing_files:
        echo(f"the vault has lost {path}; what was in it is not in the backup", err=True)


def _make(session: Session, folder: str, base: str | None, report: Report, *, on_server: bool) -> Backup:
    backups = session.client.backups
    if on_server:
        return backups.create_on_server(folder, base=base or "", report=report)
    try:
        return backups.create(Path(folder), base=Path(base) if base else None, report=report)
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror or error}") from error


@click.command()
@click.option("--user", default="", help="Everything of this user, and the facts in namespaces with this label.")
@click.option(
    "--facts-namespace", "namespace", type=opt.labels, default=None, help="The facts of this namespace and below."
)
@click.option("--origin", type=click.Choice(opt.ORIGINS), help="Everything that comes from here.")
@click.option("--origin-name", default="", help="Only from this tool, file or site; with --origin.")
@click.option(
    "--revoke-keys", is_flag=True, help="End the API keys that are bound to it. Otherwise, the receipt names them."
)
@opt.dry_run_option
@opt.yes_option
@click.option("--request-id", help="Follow the erasure that an earlier call began with this id.")
@click.option("--receipt", type=click.Path(dir_okay=False), help="Write the signed receipt to this new file.")
@opt.json_option
def erase(
    session: Session,
    /,
    *,
    revoke_keys: bool,
    dry_run: bool,
    yes: bool,
    request_id: str | None,
    receipt: str | None,
    **target: Any,
) -> None:
    """Erase a user, a namespace of facts or an origin from every file of the server, and get a signed receipt.

    Exit code 1 if something is left.
    """
    target = opt.given_of(target)
    subjects = [name for name in ("user", "namespace", "origin") if target.get(name)]
    if len(subjects) != 1 or (target["origin_name"] and subjects != ["origin"]):
        raise click.UsageError("say what to erase with --user, with --facts-namespace or with --origin")
    if receipt is not None:
        refuse_existing(receipt, "name another file for the receipt")
    if dry_run or not yes:
        counts = session.client.erasures.count(**target)
        if dry_run:
            echo(json.dumps(counts) if session.as_json else f"{_records(counts)} would be erased")
            return
        click.confirm(f"Erase {_records(counts)} for good?", abort=True, err=True)
    # The file is opened first, so nothing is erased when the receipt cannot be written.
    with nullcontext() if receipt is None else new_file(receipt) as file:
        erased = _erase(session, request_id=request_id, revoke_keys=revoke_keys, **target)
        echo(erased.to_json() if session.as_json else _told(erased))
        if file:
            file.write(erased.to_json() + "\n")
    if not erased.is_complete:
        raise SystemExit(1)


def _erase(session: Session, *, request_id: str | None, **target: Any) -> ErasureReceipt:
    console = session.error_console
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=session.as_json or not console.is_terminal) as bar:
        task = bar.add_task("finding", total=None)
        said = ""

        def show(progress: EraseProgress) -> None:
            nonlocal said
            what = f"{progress.phase}: {progress.problem}" if progress.problem else str(progress.phase)
            bar.update(task, description=what, completed=progress.done, total=progress.total or None)
            if bar.disable and not session.as_json and what != said:
                said = what
                echo(what, err=True)

        return session.client.erasures.run(request_id=request_id, on_progress=show, **target)


def _records(counts: Mapping[str, int]) -> str:
    return counted_kinds({kind: count for kind, count in counts.items() if kind not in _TRACES})


def _told(receipt: ErasureReceipt) -> str:
    lines = [f"erased: {_records(receipt.counts)}; {counted(receipt.tombstone_count, 'tombstone')}"]
    lines += [f"out of reach: {place}" for place in receipt.out_of_reach]
    lines += [f"STILL IN {file}" for file in receipt.found_files]
    if receipt.found_neighbours:
        lines.append(f"STILL FOUND by searches: {receipt.found_neighbours:,}")
    return "\n".join(lines)
