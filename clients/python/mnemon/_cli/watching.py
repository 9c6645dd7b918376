"""The command that shows events as they are committed."""

from datetime import datetime

import click

from mnemon._cli.options import json_option, scope_options
from mnemon._cli.render import plain
from mnemon._cli.session import Session
from mnemon._messages.feed import TYPES_TO_PB, Since
from mnemon._sync.watch import Watch
from mnemon._values import documents as values
from mnemon._values.decisions import Decision
from mnemon._values.feed import (
    EARLIEST,
    NOW,
    EpisodicPruned,
    EpisodicSaved,
    Event,
    FactChange,
    Reconciliation,
    ServiceWarning,
)


@click.command()
@click.option(
    "--since",
    default=NOW,
    show_default=True,
    metavar="PLACE",
    help="Where to begin: now, earliest, a cursor, or a time such as 2025-01-31T09:00.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice([str(each) for each in TYPES_TO_PB]),
    multiple=True,
    help="Only these; repeatable.",
)
@click.option("--id", "ids", multiple=True, help="Only the record of this id; repeatable.")
@scope_options
@click.option("--full", is_flag=True, help="With the records, as they are now; needs --json.")
@json_option
@click.pass_obj
def watch(
    session: Session,
    since: str,
    scope: values.Scope,
    *,
    types: tuple[str, ...],
    ids: tuple[str, ...],
    full: bool,
    as_json: bool,
) -> None:
    """Show events as they are committed, until Ctrl-C; then say where to go on."""
    if full and not as_json:
        raise click.UsageError("--full needs --json: a line has no room for a record")
    with session.client.watch(_place(since), types=types, scope=scope, ids=ids, full=full) as events:
        try:
            for event in events:
                click.echo(event.to_json() if as_json else _line(event))
        except KeyboardInterrupt:
            _say_where(events)


def _place(since: str) -> Since:
    """A time without a zone is the local one; what is no time is a cursor."""
    if since in (NOW, EARLIEST):
        return since
    try:
        return datetime.fromisoformat(since).astimezone()
    except ValueError:
        return since


def _line(event: Event) -> str:
    time = event.commit_time.astimezone().isoformat(" ", "milliseconds") if event.commit_time else ""
    scope = " ".join(f"{name}={value}" for name, value in event.scope.to_dict().items() if value)
    parts = (
        time,
        f"{event.type:<24}",
        event.record_id,
        f"revision {event.revision}",
        scope,
        ",".join(event.changed_fields),
        _details(event),
    )
    return plain("  ".join(part for part in parts if part)).plain.replace("\n", " ")


def _details(event: Event) -> str:
    match event.details:
        case Decision(arbitration=arbitration):
            return f"{arbitration.action}, {arbitration.strategy}"
        case ServiceWarning(severity, message):
            return f"{severity}: {message}"
        case EpisodicSaved(event_type):
            return event_type
        case EpisodicPruned(_, reason, pruned):
            return f"{reason}, {len(pruned):,} events"
        case Reconciliation(_, action, memory_ids, unlinked_ids):
            return f"{len(memory_ids):,} statements {action}, {len(unlinked_ids):,} unlinked"
        case FactChange(namespace, key, reason):
            return "  ".join(part for part in (".".join(namespace), key, reason) if part)
        case str(reason):
            return reason
    return ""


def _say_where(events: Watch) -> None:
    click.echo(f"\nto go on from here: mnemon watch --since {events.cursor}", err=True)
