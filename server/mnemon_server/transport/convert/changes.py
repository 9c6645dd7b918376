"""The change service's requests and answers, the answers of a watch as bytes."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import bridge_pb2, episodic_pb2
from mnemon.v1 import changes_pb2 as pb

from mnemon_server.domain.changes import (
    BATCH_DEFAULT,
    BATCH_MAX,
    LOG_TABLE,
    RECORD_IDS_MAX,
    Change,
    ChangeFilter,
    ChangeType,
)
from mnemon_server.domain.clock import EPOCH, from_microseconds, to_microseconds
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.documents import DOC_ID_BYTES_MAX
from mnemon_server.domain.errors import RecordDamagedError
from mnemon_server.domain.events import CONVERSATION_BYTES_MAX, StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import (
    EVERYTHING,
    HEARTBEAT_MAX_S,
    HEARTBEAT_MIN_S,
    TYPES_MAX,
    Batch,
    ChangePage,
    Cursor,
    Edge,
    ListQuery,
    Progress,
    Record,
    Start,
    Started,
    WatchQuery,
)
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.domain.validation import id_violations, scope_violations
from mnemon_server.services.semantic.decisions import decision_from_json
from mnemon_server.transport.convert.documents import fill_document
from mnemon_server.transport.convert.facts import fill_fact
from mnemon_server.transport.convert.memories import fill_memory
from mnemon_server.transport.convert.rules import field_to_pb, fill_rule
from mnemon_server.transport.convert.semantic import fill_memory as fill_semantic_memory
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.wire.enums import members_of, numbers_of
from mnemon_server.wire.values import (
    duration_to_pb,
    fill_scope,
    fill_time,
    scope_of,
)

# The details of changes, which depend on their type, as messages.


def _numbers(enum: Any, prefix: str) -> dict[str, Any]:
    """The values by the texts that the log holds for them."""
    return {name.removeprefix(prefix).lower(): number for name, number in enum.items()}


_SEVERITIES = _numbers(pb.WarningSeverity, "WARNING_SEVERITY_")
_SEMANTIC_REASONS = _numbers(pb.SemanticPruneReason, "SEMANTIC_PRUNE_REASON_")
_FACT_REASONS = _numbers(pb.FactDeletionReason, "FACT_DELETION_REASON_")
_EVENT_REASONS = _numbers(episodic_pb2.PruneReason, "PRUNE_REASON_")
_ACTIONS = {"deleted": bridge_pb2.PRUNE_ACTION_DELETE, "demoted": bridge_pb2.PRUNE_ACTION_DEMOTE}


def fill_details(target: pb.Change, change: Change) -> None:
    """Writes the details of a change that has some. Raises RecordDamagedError if they cannot be read."""
    if (fill := _FILLERS.get(change.type)) is None:
        return
    try:
        fill(target, change.details)
    except UNREADABLE as error:
        raise RecordDamagedError(LOG_TABLE, str(change.sequence)) from error


def _fill_decision(target: pb.Change, details: str) -> None:
    filled(target.decision, decision_from_json(details))


def _fill_rule(target: pb.Change, details: str) -> None:
    fill_rule(target.rule, json.loads(details))
    target.changed_fields[:] = map(field_to_pb, target.changed_fields)


def _fill_warning(target: pb.Change, details: str) -> None:
    said = json.loads(details)
    target.warning.severity = _SEVERITIES[said["severity"]]
    target.warning.message = said["message"]
    target.warning.remediation = said["remediation"]


def _fill_prune_reason(target: pb.Change, details: str) -> None:
    target.prune_reason = _SEMANTIC_REASONS[json.loads(details)["prune_reason"]]


def _fill_event_saved(target: pb.Change, details: str) -> None:
    said = json.loads(details)
    saved = target.episodic_saved
    saved.event_type = said["event_type"]
    fill_time(saved.event_time, from_microseconds(said["event_time"]))
    if said["importance"] is not None:
        saved.importance = said["importance"]
    saved.segment_id = said["segment_id"]
    saved.timeline_lag.FromMicroseconds(said["lag_us"])
    saved.segment_count = said["segment_count"]
    saved.content_hash = said["content_hash"]
    saved.conversation = said.get("conversation", "")
    if "content" in said:
        saved.content = said["content"]


def _fill_event_pruned(target: pb.Change, details: str) -> None:
    said = json.loads(details)
    target.episodic_pruned.segment_id = said["segment_id"]
    target.episodic_pruned.reason = _EVENT_REASONS[said["reason"]]
    for event_id, content_hash in said["events"]:
        target.episodic_pruned.events.add(event_id=event_id, content_hash=content_hash)


def _fill_reconciliation(target: pb.Change, details: str) -> None:
    said = json.loads(details)
    target.reconciliation.event_ids.extend(said["event_ids"])
    target.reconciliation.action = _ACTIONS[said["action"]]
    target.reconciliation.memory_ids.extend(said["memory_ids"])
    target.reconciliation.unlinked_memory_ids.extend(said["unlinked_memory_ids"])


def _fill_fact_change(target: pb.Change, details: str) -> None:
    said = json.loads(details)
    target.fact_change.namespace.extend(said["namespace"])
    target.fact_change.key = said["key"]
    if "reason" in said:
        target.fact_change.reason = _FACT_REASONS[said["reason"]]


_FILLERS: Mapping[ChangeType, Callable[[pb.Change, str], None]] = {
    ChangeType.SEMANTIC_PRUNED: _fill_prune_reason,
    ChangeType.SEMANTIC_WARNING: _fill_warning,
    ChangeType.SEMANTIC_HEALTHY: _fill_warning,
    ChangeType.CONFLICT_DETECTED: _fill_decision,
    ChangeType.CONFLICT_RESOLVED: _fill_decision,
    ChangeType.CONFLICT_MERGED: _fill_decision,
    ChangeType.CONFLICT_REVERTED: _fill_decision,
    ChangeType.RULE_REGISTERED: _fill_rule,
    ChangeType.RULE_UPDATED: _fill_rule,
    ChangeType.RULE_DELETED: _fill_rule,
    ChangeType.EPISODIC_SAVED: _fill_event_saved,
    ChangeType.EPISODIC_PRUNED: _fill_event_pruned,
    ChangeType.EPISODIC_WARNING: _fill_warning,
    ChangeType.EPISODIC_HEALTHY: _fill_warning,
    ChangeType.BRIDGE_SUSPENDED: _fill_warning,
    ChangeType.BRIDGE_RESUMED: _fill_warning,
    ChangeType.BRIDGE_RECONCILED: _fill_reconciliation,
    ChangeType.FACT_CREATED: _fill_fact_change,
    ChangeType.FACT_UPDATED: _fill_fact_change,
    ChangeType.FACT_DELETED: _fill_fact_change,
}


_CHANGE_TYPES_TO_PB = numbers_of(pb.ChangeType, ChangeType)


def page_to_pb(page: ChangePage) -> pb.ListChangesResponse:
    """A page of the log."""
    message = pb.ListChangesResponse(cursor=page.cursor, caught_up=page.caught_up)
    _fill_changes(message.changes, page.changes, page.records)
    return message


def batch_to_bytes(batch: Batch) -> bytes:
    """A message of a watch as bytes, which the watchers that get the same share."""
    message = pb.WatchChangesResponse(cursor=batch.cursor)
    message.batch.caught_up = batch.caught_up
    _fill_changes(message.batch.changes, batch.changes, batch.records)
    return message.SerializeToString()


def watch_message_to_pb(message: Started | Progress) -> pb.WatchChangesResponse:
    """A message of a watch without changes."""
    return _started_to_pb(message) if isinstance(message, Started) else _progress_to_pb(message)


def _started_to_pb(started: Started) -> pb.WatchChangesResponse:
    message = pb.WatchChangesResponse(cursor=started.cursor)
    message.started.heartbeat_interval.CopyFrom(duration_to_pb(started.heartbeat_s))
    fill_time(message.started.retained_since, started.retained_since)
    return message


def _progress_to_pb(progress: Progress) -> pb.WatchChangesResponse:
    message = pb.WatchChangesResponse(cursor=progress.cursor)
    message.progress.caught_up = progress.caught_up
    fill_time(message.progress.head_time, progress.head_time)
    return message


def _fill_changes(target: Any, changes: Sequence[Change], records: Sequence[Record | None]) -> None:
    """Writes changes into a repeated field, with their records if they have some."""
    add = target.add
    time: datetime | None = None
    microseconds = seconds = nanoseconds = 0
    for change in changes:
        if change.time is not time:
            # Changes of one commit share their time.
            time = change.time
            microseconds = to_microseconds(time)
            seconds, nanoseconds = microseconds // 1_000_000, microseconds % 1_000_000 * 1000
        message = add(
            # With the time, the id stays unique if the log is replaced by an older copy and then goes on.
            change_id=f"{change.sequence}-{microseconds}",
            sequence=change.sequence,
            commit_id=str(change.commit),
            type=_CHANGE_TYPES_TO_PB[change.type],
            record_id=change.record_id,
            revision=change.revision,
        )
        # Arguments that are messages are copied, which takes longer than filling them.
        stamp = message.commit_time
        stamp.seconds, stamp.nanos = seconds, nanoseconds
        fill_scope(message, change.scope)
        if change.request_id:
            message.request_id = change.request_id
        if change.changed:
            message.changed_fields.extend(change.changed)
        if change.details:
            fill_details(message, change)
    for written, record in zip(target, records, strict=False):
        _fill_record(written, record)


def _fill_record(target: pb.Change, record: Record | None) -> None:
    if isinstance(record, Memory):
        fill_memory(target.memory, record)
    elif isinstance(record, SemanticMemory):
        fill_semantic_memory(target.semantic_memory, record)
    elif isinstance(record, StoredEvent):
        target.episodic_event.ParseFromString(record.body)
    elif isinstance(record, Fact):
        fill_fact(target.fact, record)
    elif record is not None:
        fill_document(target.document, record)


CHANGE_TYPES = members_of(pb.ChangeType, ChangeType)
CHANGE_VIEWS: Mapping[int, bool] = {
    pb.CHANGE_VIEW_UNSPECIFIED: False,
    pb.CHANGE_VIEW_BASIC: False,
    pb.CHANGE_VIEW_FULL: True,
}
"""Whether a view is the full one."""


def read_watch(request: pb.WatchChangesRequest) -> WatchQuery:
    """The request for a watch."""
    reader = Reader()
    if request.HasField("earliest") and not request.earliest:
        reader.note("earliest", "must be true; to start now, leave it out")
    if request.max_batch_size < 0:
        reader.note("max_batch_size", "must not be negative; 0 is the default")
    query = WatchQuery(
        start=_start(reader, request, unset=Edge.NOW),
        where=_filter(reader, request.filter) if request.HasField("filter") else EVERYTHING,
        full=reader.enum("view", request.view, CHANGE_VIEWS),
        heartbeat_s=_heartbeat(reader, request.heartbeat_interval) if request.HasField("heartbeat_interval") else None,
        batch_max=min(request.max_batch_size or BATCH_DEFAULT, BATCH_MAX),
    )
    reader.finish()
    return query


def read_list(request: pb.ListChangesRequest) -> ListQuery:
    """The page to read."""
    reader = Reader()
    query = ListQuery(
        start=_start(reader, request, unset=Edge.EARLIEST),
        where=_filter(reader, request.filter) if request.HasField("filter") else EVERYTHING,
        full=reader.enum("view", request.view, CHANGE_VIEWS),
        limit=reader.page_size(request.page_size),
    )
    reader.finish()
    return query


def _start(reader: Reader, request: pb.WatchChangesRequest | pb.ListChangesRequest, *, unset: Edge) -> Start:
    match request.WhichOneof("start"):
        case "cursor":
            return Cursor(request.cursor)
        case "start_time":
            return reader.time("start_time", request, "start_time") or EPOCH
        case "earliest":
            return Edge.EARLIEST
        case _:
            return unset


def _filter(reader: Reader, message: pb.ChangeFilter) -> ChangeFilter:
    """The filter of changes."""
    types = _types(reader, message)
    scope = scope_of(message)
    reader.violations += scope_violations(scope, "filter.scope")
    if len(message.record_ids) > RECORD_IDS_MAX:
        reader.note("filter.record_ids", f"must be at most {RECORD_IDS_MAX}")
    else:
        for index, record_id in enumerate(message.record_ids):
            reader.violations += id_violations(record_id, f"filter.record_ids[{index}]", DOC_ID_BYTES_MAX)
    reader.violations += id_violations(message.conversation, "filter.conversation", CONVERSATION_BYTES_MAX)
    return ChangeFilter(
        types=types, scope=scope, record_ids=frozenset(message.record_ids), conversation=message.conversation
    )


def _types(reader: Reader, message: pb.ChangeFilter) -> frozenset[ChangeType]:
    if len(message.types) > TYPES_MAX:
        reader.note("filter.types", f"must be at most {TYPES_MAX}")
        return frozenset()
    return frozenset(
        reader.enum(f"filter.types[{index}]", number, CHANGE_TYPES) for index, number in enumerate(message.types)
    )


def _heartbeat(reader: Reader, message: Duration) -> float:
    seconds = message.seconds + message.nanos / 1e9
    if not HEARTBEAT_MIN_S <= seconds <= HEARTBEAT_MAX_S:
        reader.note(
            "heartbeat_interval", f"must be {HEARTBEAT_MIN_S:g} s to {HEARTBEAT_MAX_S:g} s; unset is the default"
        )
    return seconds
