"""Conversion of what watchers and readers of the event log ask for and are told."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import events_pb2 as pb
from mnemon.v1 import knowledge_store_pb2

from mnemon_server.domain.changes import BATCH_DEFAULT, BATCH_MAX, Event, EventFilter, EventType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.episodic import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import (
    PAGE_DEFAULT,
    PAGE_MAX,
    Batch,
    Cursor,
    Edge,
    EventPage,
    FeedMessage,
    ListQuery,
    Progress,
    Record,
    Start,
    Started,
    WatchQuery,
)
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.transport.convert.change_details import fill_details
from mnemon_server.transport.convert.documents import VIEWS, fill_document
from mnemon_server.transport.convert.facts import fill_fact
from mnemon_server.transport.convert.memories import fill_memory
from mnemon_server.transport.convert.semantic import fill_memory as fill_semantic_memory
from mnemon_server.wire.values import (
    checked_time_from_pb,
    duration_to_pb,
    fill_scope,
    fill_time,
    scope_from_pb,
)

EVENT_TYPES: Mapping[int, EventType] = {pb.EventType.Value(f"EVENT_TYPE_{type_.name}"): type_ for type_ in EventType}
EVENT_VIEWS: Mapping[int, bool] = {
    pb.EVENT_VIEW_UNSPECIFIED: False,
    pb.EVENT_VIEW_BASIC: False,
    pb.EVENT_VIEW_FULL: True,
}
"""Whether a view is the full one."""
_EVENT_TYPES_TO_PB = {type_: pb.EventType.Value(f"EVENT_TYPE_{type_.name}") for type_ in EventType}
_DOCUMENT_VIEW = VIEWS[knowledge_store_pb2.DOCUMENT_VIEW_STANDARD]


def watch_query_from_pb(message: pb.WatchEventsRequest) -> WatchQuery:
    """What to watch."""
    return WatchQuery(
        start=_start_from_pb(message, unset=Edge.NOW),
        where=filter_from_pb(message.filter),
        heartbeat_s=_seconds(message.heartbeat_interval) if message.HasField("heartbeat_interval") else None,
        batch_max=min(message.max_batch_size or BATCH_DEFAULT, BATCH_MAX),
        full=EVENT_VIEWS[message.view],
    )


def list_query_from_pb(message: pb.ListEventsRequest) -> ListQuery:
    """The page to read."""
    return ListQuery(
        start=_start_from_pb(message, unset=Edge.EARLIEST),
        where=filter_from_pb(message.filter),
        limit=min(message.page_size or PAGE_DEFAULT, PAGE_MAX),
        full=EVENT_VIEWS[message.view],
    )


def filter_from_pb(message: pb.EventFilter) -> EventFilter:
    """Which events are meant."""
    return EventFilter(
        types=frozenset(EVENT_TYPES[number] for number in message.types),
        scope=scope_from_pb(message.scope),
        record_ids=frozenset(message.record_ids),
    )


def page_to_pb(page: EventPage) -> pb.ListEventsResponse:
    """A page of the log."""
    message = pb.ListEventsResponse(cursor=page.cursor, caught_up=page.caught_up)
    _fill_events(message.events, page.events, page.records)
    return message


class WatchEncoder:
    """Makes the messages of all watches; a batch that several watchers share is converted once."""

    def __init__(self) -> None:
        self._batches: WeakKeyDictionary[Batch, pb.WatchEventsResponse] = WeakKeyDictionary()

    def message(self, told: FeedMessage) -> pb.WatchEventsResponse:
        """The message, which may be shared: nobody may change it."""
        match told:
            case Batch():
                return self._batch(told)
            case Progress():
                return _progress_to_pb(told)
            case Started():
                return _started_to_pb(told)

    def _batch(self, batch: Batch) -> pb.WatchEventsResponse:
        message = self._batches.get(batch)
        if message is None:
            message = pb.WatchEventsResponse(cursor=batch.cursor)
            message.batch.caught_up = batch.caught_up
            _fill_events(message.batch.events, batch.events, batch.records)
            self._batches[batch] = message
        return message


def _started_to_pb(started: Started) -> pb.WatchEventsResponse:
    message = pb.WatchEventsResponse(cursor=started.cursor)
    message.started.heartbeat_interval.CopyFrom(duration_to_pb(started.heartbeat_s))
    if started.retained_since is not None:
        fill_time(message.started.retained_since, started.retained_since)
    return message


def _progress_to_pb(progress: Progress) -> pb.WatchEventsResponse:
    message = pb.WatchEventsResponse(cursor=progress.cursor)
    message.progress.caught_up = progress.caught_up
    if progress.head_time is not None:
        fill_time(message.progress.head_time, progress.head_time)
    return message


def _fill_events(target: Any, events: Sequence[Event], records: Sequence[Record | None]) -> None:
    """Writes events into a repeated field, with their records where there are some.

    This runs for every event that is sent. Assigning fields one by one takes a third of the time that arguments take;
    and neighbours, of one commit mostly, have so much in common that a copy is cheaper still.
    """
    add = target.add
    before: Event | None = None
    message = pb.Event()
    moment = 0
    for event in events:
        neighbour, message = message, add()
        if before is not None and _are_alike(event, before):
            message.CopyFrom(neighbour)
        else:
            moment = _fill_common(message, event)
        before = event
        # With the time, the id stays unique where the log was taken back to an older copy and then continued.
        message.event_id = f"{event.sequence}-{moment}"
        message.sequence = event.sequence
        message.commit_id = str(event.commit)
        message.record_id = event.record_id
        message.revision = event.revision
        message.request_id = event.request_id
        if event.changed:
            message.changed_fields.extend(event.changed)
        if event.details:
            fill_details(message, event)
    for filled, record in zip(target, records, strict=False):
        _fill_record(filled, record)


def _are_alike(event: Event, before: Event) -> bool:
    """Whether all but the fields that are always written is the same, as far as a glance can tell."""
    return (
        event.time == before.time
        and event.scope is before.scope
        and event.type is before.type
        and not before.changed
        and not before.details
    )


def _fill_common(target: pb.Event, event: Event) -> int:
    """Writes what neighbours have in common; returns the time in microseconds."""
    microseconds = to_microseconds(event.time)
    stamp = target.commit_time
    stamp.seconds = microseconds // 1_000_000
    stamp.nanos = microseconds % 1_000_000 * 1000
    target.type = _EVENT_TYPES_TO_PB[event.type]
    fill_scope(target, event.scope)
    return microseconds


def _fill_record(target: pb.Event, record: Record | None) -> None:
    if isinstance(record, Memory):
        fill_memory(target.memory, record)
    elif isinstance(record, SemanticMemory):
        fill_semantic_memory(target.semantic_memory, record)
    elif isinstance(record, StoredEvent):
        target.episodic_event.ParseFromString(record.body)
    elif isinstance(record, Fact):
        fill_fact(target.fact, record)
    elif record is not None:
        fill_document(target.document, record, _DOCUMENT_VIEW)


def _start_from_pb(message: pb.WatchEventsRequest | pb.ListEventsRequest, *, unset: Edge) -> Start:
    match message.WhichOneof("start"):
        case "cursor":
            return Cursor(message.cursor)
        case "start_time":
            return checked_time_from_pb(message.start_time)
        case "earliest":
            return Edge.EARLIEST
        case _:
            return unset


def _seconds(message: Duration) -> float:
    return message.seconds + message.nanos / 1e9
