"""The commands for grants: records that callers share with each other."""

from datetime import datetime

import click

from mnemon._cli import options as opt
from mnemon._cli.output import short_time, show_lines
from mnemon._cli.session import Session
from mnemon._values.access import Grant, GrantAccess
from mnemon._values.documents import Scope
from mnemon.shared.namespaces import namespace_text
from mnemon.shared.terminal import echo

_grant_id = click.argument("grant_id")
_SHARED = tuple(name for name in opt.SCOPE_HELP if name not in opt.ORIGIN_HELP)


@click.group()
def grants() -> None:
    """Share records with other callers, on a server with authentication."""


@grants.command("list")
@opt.json_option
def list_grants(session: Session) -> None:
    """List the grants to you and of your records; for admins, all of the tenant."""
    show_lines(session, list(session.client.grants.list()), _line, "no grants")


@grants.command("create")
@click.argument("subject")
@opt.scope_options_of(_SHARED)
@click.option("--namespace", type=opt.labels, help="Share the facts in this namespace and below it, as user.ada.")
@click.option(
    "--read/--write",
    "is_read",
    default=True,
    show_default=True,
    help="What the subject may do; --write is also to add, change and delete records.",
)
@click.option(
    "--until",
    type=opt.deadline,
    metavar="TIME|DISTANCE",
    help="When it ends, of a day at its end: 2027-01-31, 2027-01-31T12:00, 12h, 30d.",
)
@opt.json_option
def create(
    session: Session,
    subject: str,
    scope: Scope,
    namespace: tuple[str, ...] | None,
    until: datetime | None,
    *,
    is_read: bool,
) -> None:
    """Share records. SUBJECT is user:bob for every caller that is bound to bob alone, or a caller as `whoami` names it.

    Sharing the same records with the same subject again replaces the access and the end.

    For example: mnemon grants create user:bob --user ada --project garden --until 30d
    """
    made = session.client.grants.add(
        subject,
        scope=None if scope == Scope() else scope,
        namespace=namespace or (),
        access=GrantAccess.READ if is_read else GrantAccess.WRITE,
        expire_time=until,
    )
    _show(session, made)


@grants.command()
@_grant_id
@opt.json_option
def accept(session: Session, grant_id: str) -> None:
    """Accept a grant: from then on, your searches find its records, too."""
    _show(session, session.client.grants.accept(grant_id))


@grants.command()
@_grant_id
@click.option("--allow-missing", is_flag=True, help="Succeed if there is no such grant.")
@click.pass_obj
def revoke(session: Session, grant_id: str, *, allow_missing: bool) -> None:
    """End a grant that you gave or received."""
    session.client.grants.revoke(grant_id, allow_missing=allow_missing)
    echo(f"the grant {grant_id} is revoked", is_line=True)


def _show(session: Session, grant: Grant) -> None:
    echo(grant.to_json() if session.as_json else _line(grant), is_line=not session.as_json)


def _line(grant: Grant) -> str:
    fields = " ".join(f"{name} {text}" for name, text in grant.scope.to_dict().items() if text)
    shared = f"namespace {namespace_text(grant.namespace)}" if grant.namespace else fields
    giver = f", granted by {grant.granted_by}" if grant.granted_by else ""
    ends = f", ends {short_time(grant.expire_time)}" if grant.expire_time else ""
    waits = "" if grant.accept_time else ", not accepted yet"
    return f"{grant.grant_id}  {grant.subject} may {grant.access} {shared}{giver}{ends}{waits}"
