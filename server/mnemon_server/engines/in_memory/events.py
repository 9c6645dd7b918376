"""The event log in a list."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.events import Event, EventFilter, EventLogState, EventSlice
from mnemon_server.engines.in_memory.lane import Lane

TRIM_EVENTS_MAX = 5_000


class InMemoryEventLog:
    """See EventLog."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._events: list[Event] = []
        self._floor = self._head = 0
        self._head_time: datetime | None = None
        self.epoch = os.urandom(16)

    def time(self, now: datetime) -> datetime:
        """When something that happens now is said to have happened: never before the last event."""
        return max(now, self._head_time) if self._head_time else now

    def append(self, events: Sequence[Event]) -> None:
        """Adds the events of one call."""
        if events:
            self._events += events
            self._head, self._head_time = events[-1].sequence, events[-1].time

    def read(self, after: int, *, limit: int, where: EventFilter) -> EventSlice:
        """See EventLog."""
        with self._lane.lock:
            start = bisect_right(self._events, after, key=lambda event: event.sequence)
            found = [event for event in self._events[start:] if _matches(event, where)][:limit]
            position = found[-1].sequence if len(found) == limit else max(after, self._head)
            return EventSlice(tuple(found), position, caught_up=position >= self._head, floor=self._floor)

    def position_before(self, time: datetime) -> int:
        """See EventLog."""
        with self._lane.lock:
            first = bisect_left(self._events, time, key=lambda event: event.time)
            return self._events[first].sequence - 1 if first < len(self._events) else self._head

    def state(self) -> EventLogState:
        """See EventLog."""
        with self._lane.lock:
            first_time = self._events[0].time if self._events else None
            return EventLogState(self._floor, self._head, len(self._events), first_time, self._head_time)

    def trim(self, *, before: datetime, keep_max: int) -> Future[int]:
        """See EventLog."""
        return self._lane.write(None, lambda: self._trim(before, keep_max))

    def _trim(self, before: datetime, keep_max: int) -> int:
        old = bisect_left(self._events, before, key=lambda event: event.time)
        dropped = min(max(old, len(self._events) - keep_max, 0), TRIM_EVENTS_MAX)
        if dropped:
            self._floor = self._events[dropped - 1].sequence
            del self._events[:dropped]
        return dropped


def _matches(event: Event, where: EventFilter) -> bool:
    return (
        (not where.types or event.type in where.types)
        and (not where.record_ids or event.record_id in where.record_ids)
        and all(getattr(event.scope, name) == wanted for name in SCOPE_FIELDS if (wanted := getattr(where.scope, name)))
    )
