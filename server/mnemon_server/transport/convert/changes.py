"""The change service's answers as messages, those of a watch as bytes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mnemon.v1 import changes_pb2 as pb

from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import Batch, ChangePage, Progress, Record, Started
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.records import View
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.transport.convert.change_details import fill_details
from mnemon_server.transport.convert.documents import fill_document
from mnemon_server.transport.convert.facts import fill_fact
from mnemon_server.transport.convert.memories import fill_memory
from mnemon_server.transport.convert.semantic import fill_memory as fill_semantic_memory
from mnemon_server.wire.values import (
    duration_to_pb,
    fill_scope,
    fill_time,
)

_CHANGE_TYPES_TO_PB = {type_: pb.ChangeType.Value(f"CHANGE_TYPE_{type_.name}") for type_ in ChangeType}


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
    if started.retained_since is not None:
        fill_time(message.started.retained_since, started.retained_since)
    return message


def _progress_to_pb(progress: Progress) -> pb.WatchChangesResponse:
    message = pb.WatchChangesResponse(cursor=progress.cursor)
    message.progress.caught_up = progress.caught_up
    if progress.head_time is not None:
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
    for filled, record in zip(target, records, strict=False):
        _fill_record(filled, record)


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
        fill_document(target.document, record, View.STANDARD)
