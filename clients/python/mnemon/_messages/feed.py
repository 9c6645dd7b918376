"""Converts the values of the change feed to protobuf messages, and back."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import duration_pb2

from mnemon._enums import members_by_number
from mnemon._messages import documents as convert
from mnemon._messages.decisions import decision_from_pb
from mnemon._messages.facts import fact_from_pb
from mnemon._messages.memories import memory_from_pb
from mnemon._messages.rules import field_from_pb, rule_from_pb
from mnemon._messages.semantic import statement_from_pb
from mnemon._messages.timeline import happened_from_pb
from mnemon._values import documents as values
from mnemon._values import feed as changes
from mnemon._values.bridge import PruneAction
from mnemon.v1 import bridge_pb2, common_pb2, episodic_pb2
from mnemon.v1 import changes_pb2 as pb

Since = str | datetime
"""Where to begin: "now", "earliest", a cursor, or a time with its zone."""

TYPES_TO_PB: dict[changes.ChangeType, pb.ChangeType.ValueType] = {
    each: pb.ChangeType.Value(f"CHANGE_TYPE_{each.name}")
    for each in changes.ChangeType
    if each is not changes.ChangeType.UNKNOWN
}
_TYPES_FROM_PB = {number: each for each, number in TYPES_TO_PB.items()}
_ENUMS = pb.DESCRIPTOR.enum_types_by_name
_SEVERITIES = members_by_number(changes.WarningSeverity, _ENUMS["WarningSeverity"])
_PRUNE_REASONS = members_by_number(changes.SemanticPruneReason, _ENUMS["SemanticPruneReason"])
_FACT_REASONS = members_by_number(changes.FactDeletionReason, _ENUMS["FactDeletionReason"])
_EVENT_REASONS = members_by_number(changes.PruneReason, episodic_pb2.DESCRIPTOR.enum_types_by_name["PruneReason"])
_ACTIONS = members_by_number(PruneAction, bridge_pb2.DESCRIPTOR.enum_types_by_name["PruneAction"])
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
) -> pb.WatchChangesRequest:
    """The request of a watch; `heartbeat` in seconds."""
    request = pb.WatchChangesRequest(filter=_filter_to_pb(types, scope, ids), view=_view_to_pb(full=full))
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
) -> pb.ListChangesRequest:
    """The request of a page."""
    request = pb.ListChangesRequest(filter=_filter_to_pb(types, scope, ids), view=_view_to_pb(full=full))
    if since == changes.NOW:
        raise convert.invalid("since", 'must be "earliest", a cursor or a time: nothing lies behind now')
    _set_start(request, since)
    request.page_size = page_size
    return request


def page_from_pb(response: pb.ListChangesResponse) -> changes.ChangePage:
    """A page of the log."""
    return changes.ChangePage(tuple(map(change_from_pb, response.changes)), response.cursor, response.caught_up)


def change_from_pb(change: pb.Change) -> changes.Change:
    """The change of a message."""
    time = change.commit_time
    return changes.Change(
        change.change_id,
        change.sequence,
        change.commit_id,
        # Several times faster than the message's own conversion, and used for every change.
        _EPOCH + timedelta(0, time.seconds, time.nanos // 1000) if change.HasField("commit_time") else None,
        _TYPES_FROM_PB.get(change.type, changes.ChangeType.UNKNOWN),
        change.record_id,
        change.revision,
        convert.scope_from_pb(change.scope) if change.HasField("scope") else _NO_SCOPE,
        change.request_id,
        tuple(map(field_from_pb, change.changed_fields) if change.HasField("rule") else change.changed_fields),
        _record_from_pb(change),
        _details_from_pb(change),
    )


def _record_from_pb(change: pb.Change) -> Any:
    match change.WhichOneof("record"):
        case "memory":
            return memory_from_pb(change.memory)
        case "document":
            return convert.document_from_pb(change.document)
        case "semantic_memory":
            return statement_from_pb(change.semantic_memory)
        case "episodic_event":
            return happened_from_pb(change.episodic_event)
        case "fact":
            return fact_from_pb(change.fact)
    return None


def _details_from_pb(change: pb.Change) -> changes.ChangeDetails | None:
    match change.WhichOneof("details"):
        case "decision":
            return decision_from_pb(change.decision)
        case "rule":
            return rule_from_pb(change.rule)
        case "warning":
            warning = change.warning
            return changes.ServiceWarning(
                _SEVERITIES.get(warning.severity, changes.WarningSeverity.UNKNOWN), warning.message, warning.remediation
            )
        case "prune_reason":
            return _PRUNE_REASONS.get(change.prune_reason, changes.SemanticPruneReason.UNKNOWN)
        case "episodic_saved":
            return _saved_from_pb(change)
        case "episodic_pruned":
            return _pruned_from_pb(change.episodic_pruned)
        case "reconciliation":
            return _reconciliation_from_pb(change.reconciliation)
        case "fact_change":
            said = change.fact_change
            return changes.FactChange(tuple(said.namespace), said.key, _fact_reason_from_pb(said.reason))
    return None


def _saved_from_pb(change: pb.Change) -> changes.EpisodicSaved:
    saved = change.episodic_saved
    told = saved.content if saved.HasField("content") else None
    return changes.EpisodicSaved(
        event_type=saved.event_type,
        event_time=convert.time_from_pb(saved, "event_time"),
        importance=saved.importance if saved.HasField("importance") else None,
        segment_id=saved.segment_id,
        timeline_lag_s=saved.timeline_lag.ToTimedelta().total_seconds(),
        segment_count=saved.segment_count,
        content_hash=saved.content_hash,
        # In the full view, the record has it.
        content=change.episodic_event.content if change.HasField("episodic_event") else told,
    )


def _pruned_from_pb(pruned: pb.EpisodicPruned) -> changes.EpisodicPruned:
    return changes.EpisodicPruned(
        pruned.segment_id,
        _EVENT_REASONS.get(pruned.reason, changes.PruneReason.UNKNOWN),
        tuple(changes.PrunedEvent(each.event_id, each.content_hash) for each in pruned.events),
    )


def _fact_reason_from_pb(number: int) -> changes.FactDeletionReason | None:
    return _FACT_REASONS.get(number, changes.FactDeletionReason.UNKNOWN) if number else None


def _reconciliation_from_pb(done: pb.Reconciliation) -> changes.Reconciliation:
    return changes.Reconciliation(
        tuple(done.event_ids), _ACTIONS.get(done.action), tuple(done.memory_ids), tuple(done.unlinked_memory_ids)
    )


def _set_start(request: pb.WatchChangesRequest | pb.ListChangesRequest, since: Since) -> None:
    if isinstance(since, datetime):
        request.start_time.CopyFrom(convert.time_to_pb("since", since))
    elif since == changes.EARLIEST:
        if isinstance(request, pb.WatchChangesRequest):
            request.earliest = True
    elif since != changes.NOW:
        if not convert.text("since", since):
            raise convert.invalid("since", 'must be "now", "earliest", a cursor or a time, not empty')
        request.cursor = since


def _filter_to_pb(types: Iterable[str], scope: values.Scope | None, ids: Iterable[str]) -> pb.ChangeFilter:
    if isinstance(types, str) or isinstance(ids, str):
        raise convert.invalid("types" if isinstance(types, str) else "ids", "must be a list of texts, not a text")
    return pb.ChangeFilter(
        types=[_type_to_pb(each) for each in types],
        scope=convert.scope_to_pb(scope) or common_pb2.Scope(),
        record_ids=[convert.text("ids", each) for each in ids],
    )


def _type_to_pb(given: str) -> pb.ChangeType.ValueType:
    if given not in TYPES_TO_PB:
        names = ", ".join(repr(str(each)) for each in TYPES_TO_PB)
        raise convert.invalid("types", f"must be among {names}, not {given!r}")
    return TYPES_TO_PB[changes.ChangeType(given)]


def _view_to_pb(*, full: bool) -> pb.ChangeView.ValueType:
    return pb.CHANGE_VIEW_FULL if full else pb.CHANGE_VIEW_BASIC


def _duration_to_pb(seconds: float) -> duration_pb2.Duration:
    found = duration_pb2.Duration()
    found.FromTimedelta(timedelta(seconds=seconds))
    return found
