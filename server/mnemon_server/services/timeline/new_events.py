"""New events: the fields that the server sets, and what makes two requests the same."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from mnemon_server.domain.episodic import EpisodicEvent, RecordEvent
from mnemon_server.domain.records import RequestKey
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.engines.promises.timeline import EventWrite
from mnemon_server.services.shared.writes import request_key

UUID_DIGITS = 32
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_event_ids(count: int) -> list[str]:
    """Random UUIDs of version 4 as text. Made one by one with the library, they take ten times as long."""
    digits = os.urandom(count * UUID_DIGITS // 2).hex()
    return [_uuid(digits[start : start + UUID_DIGITS]) for start in range(0, len(digits), UUID_DIGITS)]


def event_writes(requests: Sequence[RecordEvent], now: datetime) -> list[EventWrite]:
    """What the timeline stores for requests that were checked."""
    ids = iter(new_event_ids(sum(not request.event.event_id for request in requests)))
    return [_event_write(request, request.event.event_id or next(ids), now) for request in requests]


def to_utc(time: datetime) -> datetime:
    """The time in UTC; a naive one is UTC. Raises OverflowError outside of the years 1 to 9999."""
    if time.tzinfo is UTC:
        return time
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


def _event_write(request: RecordEvent, event_id: str, now: datetime) -> EventWrite:
    event = request.event
    stored = EpisodicEvent(
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
    )
    return EventWrite(stored, not event.event_id, _request_key(request, stored) if request.request_id else None)


def _request_key(request: RecordEvent, stored: EpisodicEvent) -> RequestKey | None:
    """What was asked for. An id that the server made and the record time are not part of it."""
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
    )
