"""Prunes events in steps. Writes can run between two steps, and an interrupted call can be repeated.

A call removes the events that match when it begins; events that are recorded meanwhile stay. Each step is one
transaction, and removes up to 2,000 events.

A repeated call gets the answer that the first one got, or would have got. The last step stores the whole answer under
the request id itself. Each earlier step stores what it removed, in the transaction that removes the events, under a
name derived from the request id and the step's number, which no client can choose. A repeated call reads these in turn,
starts with their sum, and continues with what still matches, up to the last event that the first call looked at. So an
event is counted once, by the step that removed it, wherever the call was interrupted.
"""

import asyncio
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.errors import EventNotFoundError, RequestIdReusedError
from mnemon_server.domain.events import EventSelection, PrunedEvents, PruneReason, StoredEvent
from mnemon_server.domain.records import RequestKey
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.events import EventEngine, Sequences
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.events.checks import pruning_violations
from mnemon_server.services.events.new_events import to_utc
from mnemon_server.services.events.selections import EVERYTHING, selection, selection_before
from mnemon_server.services.writing.writes import request_key

STEP = 2_000
READ, READ_BYTES_MAX = 100, 4 << 20
"""Events read at a time, and the bytes of events at which a step ends."""

PAUSE_S = 0.01
NAMED_MAX = 1_000
NOTHING = np.empty(0, np.int64)


class Choose(Protocol):
    """Chooses the events to remove. Blocks."""

    def __call__(self, *, is_resumed: bool) -> Sequences:
        """Their sequences, ascending; `is_resumed` if an earlier call of the same request removed some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Which events to remove: those that match everything that is set, or those with these ids."""

    before: datetime | None = None
    where: EventSelection = EVERYTHING
    event_ids: Sequence[str] = ()
    allow_missing: bool = False
    request_id: str = ""

    def key(self) -> RequestKey | None:
        """The identity of the request."""
        where = selection(self.where)
        return request_key(
            self.request_id,
            "prune-events",
            list(self.event_ids),
            self.allow_missing,
            None if self.before is None else to_utc(self.before),
            where.scope,
            sorted(where.event_types),
            [where.min_importance, where.conversation, where.start, where.end, repr(where.expression), where.without],
        )


@dataclass(frozen=True, slots=True)
class _Tally:
    """A tally of removed events."""

    count: int = 0
    event_ids: tuple[str, ...] = ()
    """The ids of the first events, at most NAMED_MAX."""
    earliest_us: int | None = None
    latest_us: int | None = None
    segment_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, events: Sequence[StoredEvent]) -> "_Tally":
        times = [event.position.time_us for event in events]
        return cls(
            len(events),
            tuple(event.position.event_id for event in events[:NAMED_MAX]),
            min(times, default=None),
            max(times, default=None),
            frozenset(event.segment_id for event in events),
        )

    def __add__(self, later: "_Tally") -> "_Tally":
        times = [time for tally in (self, later) for time in (tally.earliest_us, tally.latest_us) if time is not None]
        return _Tally(
            self.count + later.count,
            (*self.event_ids, *later.event_ids)[:NAMED_MAX],
            min(times, default=None),
            max(times, default=None),
            self.segment_ids | later.segment_ids,
        )

    def values(self) -> list[Any]:
        """The fields as JSON values."""
        return [self.count, self.event_ids, self.earliest_us, self.latest_us, sorted(self.segment_ids)]

    @classmethod
    def from_values(cls, values: list[Any]) -> "_Tally":
        number, event_ids, earliest_us, latest_us, segment_ids = values
        return cls(number, tuple(event_ids), earliest_us, latest_us, frozenset(segment_ids))

    def pruned(self) -> PrunedEvents:
        """The answer for callers."""
        return PrunedEvents(
            self.count,
            self.event_ids,
            None if self.earliest_us is None else from_microseconds(self.earliest_us),
            None if self.latest_us is None else from_microseconds(self.latest_us),
            len(self.segment_ids),
        )


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of a request's steps."""

    done: _Tally = _Tally()
    steps: int = 0
    until: int | None = None
    """The last sequence that the first call looked at; None before the first step."""


class EventPruning:
    """Prunes events. Belongs to one event loop; everything that removes events from a timeline must go through it."""

    def __init__(self, events: EventEngine, offload: Offload) -> None:
        """`offload` runs the reads."""
        self._events = events
        self._offload = offload
        # No other step may remove events between their reading and their removal: they would be counted twice.
        self._step_turn = asyncio.Lock()
        self._request_turns: WeakValueDictionary[tuple[EventEngine, str], asyncio.Lock] = WeakValueDictionary()

    def over(self, events: EventEngine) -> "EventPruning":
        """The same over a part of the events; all parts take turns."""
        part = copy(self)
        part._events = events
        return part

    async def count(self, pruning: Pruning) -> PrunedEvents:
        """Returns what a pruning would remove; removes nothing."""
        refuse(_violations(pruning))
        return await self._offload(self._count, pruning)

    async def prune(self, pruning: Pruning) -> PrunedEvents:
        """Removes events for good; see PruneEvents. If the caller goes away, it ends after the running step."""
        refuse(_violations(pruning))

        def choose(*, is_resumed: bool) -> Sequences:
            # Events that an earlier call of the request removed are missing now, but existed.
            return self._sequences(replace(pruning, allow_missing=pruning.allow_missing or is_resumed))

        return await self.prune_chosen(choose, pruning.key())

    async def prune_chosen(self, choose: Choose, key: RequestKey | None) -> PrunedEvents:
        """Removes the events that `choose` returns for good; with a key, once."""
        if key is None:
            sequences = await self._offload(choose, is_resumed=False)
            return (await self._prune(sequences, PruneReason.REQUESTED)).pruned()
        # A request that is repeated while the first call is still running waits for its answer.
        turn = self._request_turns.setdefault((self._events, key.request_id), asyncio.Lock())
        async with turn:
            return await self._prune_once(choose, key)

    async def prune_expired(self, sequences: Sequences) -> int:
        """Removes the events whose retention has ended; returns how many it removed."""
        return (await self._prune(sequences, PruneReason.RETENTION)).count

    async def erase(self, sequences: Sequences) -> int:
        """Removes events of an erasure; returns how many it removed."""
        return (await self._prune(sequences, PruneReason.REQUESTED)).count

    async def _prune_once(self, choose: Choose, key: RequestKey) -> PrunedEvents:
        if (answer := await self._offload(self._events.kept_answer, key)) is not None:
            return replace(_Tally.from_values(json.loads(answer)).pruned(), replayed=True)
        progress = await self._offload(self._read_progress, key)
        sequences = await self._offload(choose, is_resumed=progress.steps > 0)
        if progress.until is not None:
            sequences = sequences[sequences <= progress.until]
        return (await self._prune(sequences, PruneReason.REQUESTED, key, progress)).pruned()

    async def _prune(
        self,
        sequences: Sequences,
        reason: PruneReason,
        key: RequestKey | None = None,
        progress: _Progress = _Progress(),
    ) -> _Tally:
        if progress.until is None:
            progress = replace(progress, until=int(sequences[-1]) if len(sequences) else 0)
        start = 0
        while start < len(sequences) or (key is not None and start == 0):
            # A step that has started completes, even if the caller goes away.
            step = asyncio.create_task(self._step(sequences, start, reason, key, progress))
            start, progress = await asyncio.shield(step)
            if start >= len(sequences):
                break
            await asyncio.sleep(PAUSE_S)
        return progress.done

    async def _step(
        self, sequences: Sequences, start: int, reason: PruneReason, key: RequestKey | None, progress: _Progress
    ) -> tuple[int, _Progress]:
        """Removes the next events; returns where to continue, and the progress."""
        async with self._step_turn:
            events, end = await self._offload(self._read, sequences, start)
            removed = _Tally.of(events)
            after = _Progress(progress.done + removed, progress.steps + 1, progress.until)
            if key is None:
                await completion(self._events.prune(events, reason))
            elif end >= len(sequences):
                answer = json.dumps(after.done.values())
                await completion(self._events.prune(events, reason, answer=lambda: answer, request=key))
            else:
                named = replace(removed, event_ids=removed.event_ids[: NAMED_MAX - len(progress.done.event_ids)])
                answer = json.dumps([named.values(), progress.until])
                request = _step_key(key, after.steps)
                await completion(self._events.prune(events, reason, answer=lambda: answer, request=request))
            return end, after

    # Blocking

    def _count(self, pruning: Pruning) -> PrunedEvents:
        sequences, tally, start = self._sequences(pruning), _Tally(), 0
        while start < len(sequences):
            events, start = self._read(sequences, start)
            tally += _Tally.of(events)
        return tally.pruned()

    def _sequences(self, pruning: Pruning) -> Sequences:
        """The sequences of the events to remove, ascending."""
        if pruning.event_ids:
            return self._sequences_of(list(dict.fromkeys(pruning.event_ids)), allow_missing=pruning.allow_missing)
        where = selection(pruning.where)
        if pruning.before is not None:
            earlier = selection_before(pruning.before, where)
            return NOTHING if earlier is None else self._events.sequences(earlier)
        return self._events.sequences(where)

    def _sequences_of(self, event_ids: Sequence[str], *, allow_missing: bool) -> Sequences:
        found: dict[str, int] = {}
        for start in range(0, len(event_ids), READ):
            events = self._events.get(event_ids[start : start + READ])
            found |= {event.position.event_id: event.sequence for event in events if event is not None}
        if len(found) < len(event_ids) and not allow_missing:
            raise EventNotFoundError(*(event_id for event_id in event_ids if event_id not in found))
        return np.array(sorted(found.values()), np.int64)

    def _read(self, sequences: Sequences, start: int) -> tuple[list[StoredEvent], int]:
        """The events of the next step, and where the step after it begins."""
        events: list[StoredEvent] = []
        size, end = 0, start
        while end < min(start + STEP, len(sequences)) and size < READ_BYTES_MAX:
            wanted = sequences[end : end + READ].tolist()
            found = self._events.read(wanted, bytes_max=READ_BYTES_MAX)
            events += found
            size += sum(len(event.body) for event in found)
            end += wanted.index(found[-1].sequence) + 1 if found else READ
        return events, min(end, len(sequences))

    def _read_progress(self, key: RequestKey) -> _Progress:
        """The progress of earlier calls of the same request."""
        progress = _Progress()
        for number in count(1):
            try:
                answer = self._events.kept_answer(_step_key(key, number))
            except RequestIdReusedError:
                raise RequestIdReusedError(
                    f"request_id {key.request_id!r} was used for a different request; each request needs its own"
                ) from None
            if answer is None:
                break
            values, until = json.loads(answer)
            progress = _Progress(progress.done + _Tally.from_values(values), number, until)
        return progress


def _step_key(key: RequestKey, number: int) -> RequestKey:
    """The name of a step's answer. No client can choose it: a client's request id has no U+0000."""
    return RequestKey(f"{key.request_id}\0{number}", key.digest)


def _violations(pruning: Pruning) -> Any:
    return pruning_violations(pruning.before, pruning.where, pruning.event_ids, pruning.request_id)
