"""The event log in a list."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from mnemon_server.domain.changes import Event, EventFilter, EventLogState, EventSlice, EventType
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.in_memory.lane import Lane

T = TypeVar("T")

TRIM_EVENTS_MAX = 5_000


@dataclass(slots=True)
class Call:
    """One call, and the events that it leaves, all of one time."""

    now: datetime
    """The clock's."""
    time: datetime
    """The log's, where it never goes back."""
    request_id: str
    events: list[Event] = field(default_factory=list)
    sequence: int = 0
    """Position of the newest change of the call, or of its last event; 0 where there is none."""

    def add(
        self,
        sequence: int,
        event: EventType,
        record_id: str,
        revision: int,
        scope: Scope,
        changed: tuple[str, ...] = (),
        details: str = "",
    ) -> None:
        """Notes an event."""
        self.sequence = sequence
        self.events.append(
            Event(
                sequence=sequence,
                commit=self.events[0].sequence if self.events else sequence,
                time=self.time,
                type=event,
                record_id=record_id,
                revision=revision,
                scope=scope,
                request_id=self.request_id,
                changed=changed,
                details=details,
            )
        )


class InMemoryEventLog:
    """See EventLog."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._events: list[Event] = []
        self._floor = self._head = 0
        self._head_time: datetime | None = None
        self.epoch = os.urandom(16)

    @property
    def head(self) -> int:
        """The position of the newest event; 0 where there never was one."""
        return self._head

    def run(self, request: RequestKey | None, perform: Callable[[Call], T]) -> T:
        """Runs a call, and takes its events where it does not raise."""
        now = self._lane.clock()
        time = max(now, self._head_time) if self._head_time else now
        call = Call(now, time, request.request_id if request else "")
        result = perform(call)
        if call.events:
            self._events += call.events
            self._head, self._head_time = call.events[-1].sequence, time
        return result

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

    def trim(self, *, before: datetime, keep_max: int, keep_after: int | None = None) -> Future[int]:
        """See EventLog."""
        return self._lane.write(None, lambda: self._trim(before, keep_max, keep_after))

    def _trim(self, before: datetime, keep_max: int, keep_after: int | None) -> int:
        old = bisect_left(self._events, before, key=lambda event: event.time)
        last = self._head if keep_after is None else keep_after
        free = bisect_right(self._events, last, key=lambda event: event.sequence)
        dropped = min(max(old, len(self._events) - keep_max, 0), free, TRIM_EVENTS_MAX)
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
