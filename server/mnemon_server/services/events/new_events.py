"""New events: the fields that the server sets, and what makes two requests the same."""

from collections.abc import Sequence
from datetime import UTC, datetime

from mnemon_server.domain.events import Event, RecordEvent
from mnemon_server.domain.records import RequestKey
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.services.writing.writes import new_id, request_key


def event_writes(requests: Sequence[RecordEvent], now: datetime) -> list[EventWrite]:
    """Events as the timeline stores them, from checked requests."""
    return [_event_write(request, request.event.event_id or new_id(), now) for request in requests]


def to_utc(time: datetime) -> datetime:
    """The time in UTC; a naive one is UTC. Raises OverflowError outside of the years 1 to 9999."""
    if time.tzinfo is UTC:
        return time
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _event_write(request: RecordEvent, event_id: str, now: datetime) -> EventWrite:
    event = request.event
    stored = Event(
        event_id,
        event.event_type,
        to_utc(event.event_time),
        event.content,
        event.context,
        event.scope,
        event.importance,
        event.source,
        normalised_metadata(event.metadata) if event.metadata else event.metadata,
        now,
        event.conversation,
        event.payload,
    )
    return EventWrite(stored, not event.event_id, _request_key(request, stored) if request.request_id else None)


def _request_key(request: RecordEvent, stored: Event) -> RequestKey | None:
    """The key of a request, without an id that the server made and without the record time."""
    return request_key(
        request.request_id,
        "record-event",
        request.event.event_id,
        stored.event_type,
        stored.event_time,
        stored.content,
        stored.context,
        stored.scope,
        stored.importance,
        stored.source,
        stored.metadata,
        *((stored.conversation, stored.payload) if stored.conversation or stored.payload else ()),
    )
