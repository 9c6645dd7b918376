"""The command that shows changes as they are committed."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import click

from mnemon._cli.options import Command, choice_of, json_option, limit_option, scope_options
from mnemon._cli.output import one_line
from mnemon._cli.session import Session
from mnemon._local_time import SkippedTimeError, in_zone, start_of
from mnemon._messages.changes import TYPES_TO_PB
from mnemon._sync.watch import Watch
from mnemon._values.bridge import PruneAction
from mnemon._values.decisions import Decision
from mnemon._values.feed import (
    EARLIEST,
    NOW,
    Change,
    EpisodicPruned,
    EpisodicSaved,
    FactChange,
    Reconciliation,
    ServiceWarning,
)
from mnemon.shared.terminal import counted, echo, printable

_CONTENT_CHARACTERS_MAX = 80
_DONE = {PruneAction.DELETE: "deleted", PruneAction.DEMOTE: "demoted", None: "changed"}


def _place(context: click.Context, parameter: click.Parameter, since: str) -> str:
    """The place, which the client reads; a time that does not exist is refused here, with the name of the option."""
    try:
        start_of(since)
    except SkippedTimeError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    except (ValueError, OverflowError):
        pass  # a cursor or a word; the client says what is wrong
    return since


def _since_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--since",
        default=default,
        show_default=True,
        metavar="PLACE",
        callback=_place,
        help="Where to begin: now, earliest, a cursor, a time such as 2025-01-31T09:00, or an age such as 2d.",
    )


def _which_changes(command: Any) -> Any:
    """Options: which changes, and how to show them."""
    for option in (
        json_option,
        click.option("--full", is_flag=True, help="Include the records as they are now; needs --json."),
        scope_options,
        click.option("--conversation", default="", help="Only events that are saved in this conversation."),
        click.option("--id", "ids", multiple=True, help="Only changes of the record with this id; repeatable."),
        click.option(
            "--type",
            "types",
            type=choice_of(TYPES_TO_PB),
            multiple=True,
            help="Only changes of this type; repeatable.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@_since_option(NOW)
@_which_changes
def watch(session: Session, /, since: str, **which: Any) -> None:
    """Show changes as they are committed, until Ctrl-C; then print where to continue."""
    _check_room(session, **which)
    with session.client.watch(since, **which) as changes:
        try:
            for change in changes:
                echo(change.to_json() if session.as_json else _line(change))
        except KeyboardInterrupt:
            _say_where(changes)


@click.command("changes")
@_since_option(EARLIEST)
@limit_option(0)
@_which_changes
def show_changes(session: Session, /, since: str, *, limit: int, **which: Any) -> None:
    """Show the changes that the server still keeps, oldest first, and exit."""
    _check_room(session, **which)
    for change in islice(session.client.changes.list(since, **which), limit or None):
        echo(change.to_json() if session.as_json else _line(change))


def _check_room(session: Session, *, full: bool, **which: object) -> None:
    if full and not session.as_json:
        raise click.UsageError("--full needs --json: a line has no room for a record")


def _line(change: Change) -> str:
    time = in_zone(change.commit_time).isoformat(" ", "milliseconds") if change.commit_time else ""
    scope = " ".join(f"{name}={value}" for name, value in change.scope.to_dict().items() if value)
    parts = (
        time,
        f"{change.type:<24}",
        change.record_id,
        f"revision {change.revision}",
        scope,
        ",".join(change.changed_fields),
        _details(change),
    )
    return printable("  ".join(part for part in parts if part), is_line=True)


def _details(change: Change) -> str:
    match change.details:
        case Decision(arbitration=arbitration):
            return f"{arbitration.action}, {arbitration.strategy}"
        case ServiceWarning(severity, message):
            return f"{severity}: {message}"
        case EpisodicSaved(event_type, content=content):
            return f"{event_type}  {one_line(content or '', _CONTENT_CHARACTERS_MAX)}".rstrip()
        case EpisodicPruned(_, reason, pruned):
            return f"{reason}, {counted(len(pruned), 'event')}"
        case Reconciliation(_, action, memory_ids, unlinked_ids):
            return f"{len(memory_ids):,} statements {_DONE[action]}, {len(unlinked_ids):,} unlinked"
        case FactChange(namespace, key, reason):
            return "  ".join(part for part in (".".join(namespace), key, reason or "") if part)
        case str(reason):
            return reason
    return ""


def _say_where(changes: Watch) -> None:
    echo(f"\nto go on from here: mnemon watch --since {changes.cursor}", err=True)
