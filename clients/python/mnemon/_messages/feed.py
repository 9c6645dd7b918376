"""Both directions between the values of the event feed and the messages of the wire."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import duration_pb2

from mnemon._messages import documents as convert
from mnemon._messages.decisions import decision_from_pb
from mnemon._messages.facts import fact_from_pb
from mnemon._messages.memories import memory_from_pb
from mnemon._messages.rules import rule_from_pb
from mnemon._messages.semantic import statement_from_pb
from mnemon._messages.timeline import happened_from_pb
from mnemon._values import documents as values
from mnemon._values import feed as events
from mnemon.v1 import common_pb2
from mnemon.v1 import events_pb2 as pb

Since = str | datetime
"""Where to begin: "now", "earliest", a cursor, or a time with its zone."""

TYPES_TO_PB: dict[events.EventType, pb.EventType.ValueType] = {
    each: pb.EventType.Value(f"EVENT_TYPE_{each.name}")
    for each in events.EventType
    if each is not events.EventType.UNKNOWN
}
_TYPES_FROM_PB = {number: each for each, number in TYPES_TO_PB.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_SCOPE = values.Scope()


def watch_request(
    since: Since,
    *,
    types: Iterable[str],
    scope: values.Scope | None,
    ids: Iterable[str],
    full: bool,
    heartbeat: float | None,
    batch_size: int,
) -> pb.WatchEventsRequest:
    """The request of a watch; `heartbeat` in seconds."""
    request = pb.WatchEventsRequest(filter=_filter_to_pb(types, scope, ids), view=_view_to_pb(full=full))
    _set_start(request, since)
    request.max_batch_size = batch_size
    if heartbeat is not None:
        request.heartbeat_interval.CopyFrom(_duration_to_pb(heartbeat))
    return request


def list_request(
    since: Since,
    *,
    types: Iterable[str],
    scope: values.Scope | None,
    ids: Iterable[str],
    full: bool,
    page_size: int,
) -> pb.ListEventsRequest:
    """The request of a page."""
    request = pb.ListEventsRequest(filter=_filter_to_pb(types, scope, ids), view=_view_to_pb(full=full))
    if since == events.NOW:
        raise convert.invalid("since", 'must be "earliest", a cursor or a time: nothing lies behind now')
    _set_start(request, since)
    request.page_size = page_size
    return request


def page_from_pb(response: pb.ListEventsResponse) -> events.EventPage:
    """A page of the log."""
    return events.EventPage(tuple(map(event_from_pb, response.events)), response.cursor, response.caught_up)


def event_from_pb(event: pb.Event) -> events.Event:
    """An event of the wire."""
    time = event.commit_time
    return events.Event(
        event.event_id,
        event.sequence,
        event.commit_id,
        # Several times faster than the message's own conversion, and asked for every event.
        _EPOCH + timedelta(0, time.seconds, time.nanos // 1000) if event.HasField("commit_time") else None,
        _TYPES_FROM_PB.get(event.type, events.EventType.UNKNOWN),
        event.record_id,
        event.revision,
        convert.scope_from_pb(event.scope) if event.HasField("scope") else _NO_SCOPE,
        event.request_id,
        tuple(event.changed_fields),
        _record_from_pb(event),
        _details_from_pb(event),
    )


def _record_from_pb(event: pb.Event) -> Any:
    match event.WhichOneof("record"):
        case "memory":
            return memory_from_pb(event.memory)
        case "document":
            return convert.document_from_pb(event.document)
        case "semantic_memory":
            return statement_from_pb(event.semantic_memory)
        case "episodic_event":
            return happened_from_pb(event.episodic_event)
        case "fact":
            return fact_from_pb(event.fact)
    return None


def _details_from_pb(event: pb.Event) -> events.EventDetails | None:
    match event.WhichOneof("details"):
        case "decision":
            return decision_from_pb(event.decision)
        case "rule":
            return rule_from_pb(event.rule)
        case "warning":
            warning = event.warning
            return events.ServiceWarning(warning.severity, warning.message, warning.remediation)
        case "prune_reason":
            return event.prune_reason
        case "episodic_saved":
            return _saved_from_pb(event.episodic_saved)
        case "episodic_pruned":
            return _pruned_from_pb(event.episodic_pruned)
        case "reconciliation":
            return _reconciliation_from_pb(event.reconciliation)
        case "fact_change":
            change = event.fact_change
            return events.FactChange(tuple(change.namespace), change.key, change.reason)
    return None


def _saved_from_pb(saved: pb.EpisodicSaved) -> events.EpisodicSaved:
    return events.EpisodicSaved(
        event_type=saved.event_type,
        event_time=convert.time_from_pb(saved, "event_time"),
        importance=saved.importance if saved.HasField("importance") else None,
        segment_id=saved.segment_id,
        timeline_lag_s=saved.timeline_lag.ToTimedelta().total_seconds(),
        segment_count=saved.segment_count,
        content_hash=saved.content_hash,
    )


def _pruned_from_pb(pruned: pb.EpisodicPruned) -> events.EpisodicPruned:
    return events.EpisodicPruned(
        pruned.segment_id,
        pruned.reason,
        tuple(events.PrunedEvent(each.event_id, each.content_hash) for each in pruned.events),
    )


def _reconciliation_from_pb(done: pb.Reconciliation) -> events.Reconciliation:
    return events.Reconciliation(
        tuple(done.event_ids), done.action, tuple(done.memory_ids), tuple(done.unlinked_memory_ids)
    )


def _set_start(request: pb.WatchEventsRequest | pb.ListEventsRequest, since: Since) -> None:
    if isinstance(since, datetime):
        request.start_time.CopyFrom(convert.time_to_pb("since", since))
    elif since == events.EARLIEST:
        if isinstance(request, pb.WatchEventsRequest):
            request.earliest = True
    elif since != events.NOW:
        if not convert.text("since", since):
            raise convert.invalid("since", 'must be "now", "earliest", a cursor or a time, not empty')
        request.cursor = since


def _filter_to_pb(types: Iterable[str], scope: values.Scope | None, ids: Iterable[str]) -> pb.EventFilter:
    if isinstance(types, str) or isinstance(ids, str):
        raise convert.invalid("types" if isinstance(types, str) else "ids", "must be a list of texts, not a text")
    return pb.EventFilter(
        types=[_type_to_pb(each) for each in types],
        scope=convert.scope_to_pb(scope) or common_pb2.Scope(),
        record_ids=[convert.text("ids", each) for each in ids],
    )


def _type_to_pb(given: str) -> pb.EventType.ValueType:
    if given not in TYPES_TO_PB:
        names = ", ".join(repr(str(each)) for each in TYPES_TO_PB)
        raise convert.invalid("types", f"must be among {names}, not {given!r}")
    return TYPES_TO_PB[events.EventType(given)]


def _view_to_pb(*, full: bool) -> pb.EventView.ValueType:
    return pb.EVENT_VIEW_FULL if full else pb.EVENT_VIEW_BASIC


def _duration_to_pb(seconds: float) -> duration_pb2.Duration:
    found = duration_pb2.Duration()
    found.FromTimedelta(timedelta(seconds=seconds))
    return found
