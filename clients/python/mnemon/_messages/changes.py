"""Requests of the change feed, and the changes in its answers."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

from mnemon._enums import members_by_number, numbers_by_member
from mnemon._local_time import SkippedTimeError, start_of
from mnemon._messages import convert
from mnemon._messages.rules import field_from_pb, rule_from_pb
from mnemon._messages.translation import read, request
from mnemon._values import documents as values
from mnemon._values import feed as changes
from mnemon._values.decisions import Decision
from mnemon._values.facts import Fact
from mnemon._values.memories import Memory
from mnemon._values.semantic import SemanticMemory
from mnemon._values.timeline import EpisodicEvent
from mnemon.v1 import changes_pb2 as pb

Since = str | datetime | date | timedelta
"""The start of a stream: "now", "earliest", a cursor, or a time."""

TYPES_TO_PB = numbers_by_member(changes.ChangeType, pb.ChangeType.DESCRIPTOR)
_PRUNE_REASONS = members_by_number(changes.SemanticPruneReason, pb.SemanticPruneReason.DESCRIPTOR)
_KINDS: dict[str, type[Any]] = {
    "memory": Memory,
    "document": values.Document,
    "semantic_memory": SemanticMemory,
    "episodic_event": EpisodicEvent,
    "fact": Fact,
    "decision": Decision,
    "warning": changes.ServiceWarning,
    "episodic_saved": changes.EpisodicSaved,
    "episodic_pruned": changes.EpisodicPruned,
    "reconciliation": changes.Reconciliation,
    "fact_change": changes.FactChange,
}
"""The values of the records and details of a change, by the names of their fields."""


def watch_request(
    since: Since, *, full: bool, heartbeat: float | None, batch_size: int, **which: Any
) -> pb.WatchChangesRequest:
    """The request of a watch; `heartbeat` in seconds, `which` as `_filter_to_pb` takes it."""
    start = {"earliest": True} if since == changes.EARLIEST else _start(since)
    return request(
        pb.WatchChangesRequest,
        **start,
        filter=_filter_to_pb(**which),
        view=_view_to_pb(full=full),
        heartbeat_interval=None if heartbeat is None else timedelta(seconds=heartbeat),
        max_batch_size=batch_size,
    )


def list_request(since: Since, *, full: bool, page_size: int, **which: Any) -> pb.ListChangesRequest:
    """The request of a page; `which` as `_filter_to_pb` takes it."""
    if since == changes.NOW:
        raise convert.invalid("since", 'must be "earliest", a cursor or a time: nothing lies behind now')
    return request(
        pb.ListChangesRequest,
        **({} if since == changes.EARLIEST else _start(since)),
        filter=_filter_to_pb(**which),
        view=_view_to_pb(full=full),
        page_size=page_size,
    )


def page_from_pb(response: pb.ListChangesResponse) -> changes.ChangePage:
    """A page of the log."""
    return read(changes.ChangePage, response, changes=tuple(map(change_from_pb, response.changes)))


def change_from_pb(change: pb.Change) -> changes.Change:
    """The change of a message."""
    more: dict[str, Any] = {"details": _details_from_pb(change)}
    if record := change.WhichOneof("record"):
        more["record"] = read(_KINDS[record], getattr(change, record))
    if change.HasField("rule"):
        more["changed_fields"] = tuple(map(field_from_pb, change.changed_fields))
    return read(changes.Change, change, **more)


def _details_from_pb(change: pb.Change) -> changes.ChangeDetails | None:
    match change.WhichOneof("details"):
        case None:
            return None
        case "rule":
            return rule_from_pb(change.rule)
        case "prune_reason":
            return _PRUNE_REASONS.get(change.prune_reason, changes.SemanticPruneReason.UNKNOWN)
        case "episodic_saved" if change.HasField("episodic_event"):
            # In the full view, only the record has the content.
            content = change.episodic_event.content
            return read(changes.EpisodicSaved, change.episodic_saved, content=content)
        case name:
            details: changes.ChangeDetails = read(_KINDS[name], getattr(change, name))
            return details


def _start(since: Since) -> dict[str, Any]:
    if since == changes.NOW:
        return {}
    if isinstance(since, date | timedelta) or not _is_cursor(convert.text("since", since)):
        return {"start_time": convert.moment_to_pb("since", since)}
    return {"cursor": since}


def _is_cursor(since: str) -> bool:
    """Whether it names no time. A cursor is as the server made it."""
    if not since:
        raise convert.invalid("since", 'must be "now", "earliest", a cursor or a time, not empty')
    try:
        start_of(since)
    except (SkippedTimeError, OverflowError):
        return False  # `moment_to_pb` says what is wrong with it
    except ValueError:
        return True
    return False


def _filter_to_pb(
    *, types: Iterable[str], scope: values.Scope | None, ids: Iterable[str], conversation: str
) -> pb.ChangeFilter:
    if isinstance(types, str) or isinstance(ids, str):
        raise convert.invalid("types" if isinstance(types, str) else "ids", "must be a list of texts, not a text")
    record_ids = [convert.text("ids", each) for each in ids]
    return request(
        pb.ChangeFilter,
        types=list(map(_type_to_pb, types)),
        scope=scope or values.Scope(),
        record_ids=record_ids,
        conversation=convert.text("conversation", conversation),
    )


def _type_to_pb(given: str) -> Any:
    if given not in TYPES_TO_PB:
        names = ", ".join(repr(str(each)) for each in TYPES_TO_PB)
        raise convert.invalid("types", f"must be among {names}, not {given!r}")
    return TYPES_TO_PB[changes.ChangeType(given)]


def _view_to_pb(*, full: bool) -> pb.ChangeView.ValueType:
    return pb.CHANGE_VIEW_FULL if full else pb.CHANGE_VIEW_BASIC
