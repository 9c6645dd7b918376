"""The event feed of a vault: its log from any place, for as long as anybody watches, without a gap."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mnemon_server.domain.changes import Event, EventFilter, EventLogState, EventSlice
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import CursorExpiredError, InvalidArgumentError
from mnemon_server.domain.feed import (
    EVERYTHING,
    HEARTBEAT_DEFAULT_S,
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
from mnemon_server.engines.promises.change_log import EventLog
from mnemon_server.services.feed.cursors import Cursors
from mnemon_server.services.feed.records import (
    BYTES_MAX,
    EventRecords,
    ReadDocuments,
    ReadEpisodic,
    ReadFacts,
    ReadMemories,
    ReadSemantic,
)
from mnemon_server.services.feed.tail import EventTail
from mnemon_server.services.shared.offload import Offload

PROGRESS_S = 1.0
"""How long a cursor may lag behind what was read, while nothing matches."""
SHARED_MAX = 64
CLOCK_DIFFERENCE_MAX = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Step:
    """What one look at the log gave: the events that match, up to a position."""

    events: tuple[Event, ...]
    position: int
    caught_up: bool
    head_time: datetime | None
    records: tuple[Record | None, ...] = ()
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """What a watcher knows, and since when (seconds of the event loop)."""

    position: int
    time: float
    caught_up: bool


class EventFeed:
    """Watches and reads one log. Belongs to one event loop.

    A watcher has a position, and nothing else of its own: it reads the log from there, and a commit only wakes it. So
    one that is slow costs no memory and delays nobody. Events of one commit come in one message, unless they are more
    than a message may hold, and then share their commit.
    """

    def __init__(
        self,
        vault_events: EventLog,
        subscribe: Callable[[Callable[[], None]], Callable[[], None]],
        *,
        read_documents: ReadDocuments,
        read_memories: ReadMemories,
        read_semantic: ReadSemantic,
        read_episodic: ReadEpisodic,
        read_facts: ReadFacts,
        offload: Offload,
        heartbeat_default_s: float = HEARTBEAT_DEFAULT_S,
        clock: Clock = system_clock,
    ) -> None:
        """Reads nothing yet.

        Args:
            vault_events: the log.
            subscribe: registers what is called, on any thread, after a commit; returns what ends that.
            read_documents: documents by id, in their order, None for those that are gone; blocks.
            read_memories: the same of memories.
            read_semantic: the same of statements; superseded ones are there.
            read_episodic: the same of events of the timeline.
            read_facts: the same of facts, by the ids of their records; what has expired is gone.
            offload: where everything that blocks is done.
            heartbeat_default_s: the longest silence, in seconds, for watchers that name none.
            clock: tells times that have yet to come.
        """
        self._log = vault_events
        self._cursors = Cursors(vault_events.epoch)
        self._records = EventRecords(read_documents, read_memories, read_semantic, read_episodic, read_facts)
        self._offload = offload
        self._heartbeat_default_s = heartbeat_default_s
        self._clock = clock
        self._tail = EventTail(vault_events, subscribe, offload)
        self._shared: dict[tuple[int, EventFilter, int], _Step] = {}
        self._shared_version = 0

    async def watch(self, query: WatchQuery) -> AsyncGenerator[FeedMessage, None]:
        """Tells `started`, and then every event behind the start that matches, once and in order, without an end.

        What is committed after `started` was handed out is always told. A time before the oldest event that is kept
        starts with that; `retained_since` says so.

        Raises:
            InvalidCursorError: the cursor is damaged, made up, or another vault's.
            CursorExpiredError: events behind the cursor are no longer kept, also where that happens while watching; or
                the cursor lies behind the newest event, as it does after an older copy of the vault was restored.
            InvalidArgumentError: the start lies in the future.
        """
        loop = asyncio.get_running_loop()
        heartbeat_s = query.heartbeat_s or self._heartbeat_default_s
        with self._tail.followed():
            position, state = await self._offload(self._open, query.start)
            yield Started(self._cursors.write(position), heartbeat_s, state.first_time)
            told = _Told(position, loop.time(), query.start is Edge.NOW)
            while True:
                news = self._tail.news
                step = await self._step(position, query)
                position = step.position
                if step.batch is not None:
                    yield step.batch
                    told = _Told(position, loop.time(), told.caught_up or step.caught_up)
                elif loop.time() >= _progress_time(told, step, heartbeat_s):
                    yield Progress(self._cursors.write(position), step.head_time, step.caught_up)
                    told = _Told(position, loop.time(), told.caught_up or step.caught_up)
                if step.caught_up:
                    await _wait(news, _progress_time(told, step, heartbeat_s))

    async def list(self, query: ListQuery) -> EventPage:
        """One page of the log; `caught_up` where nothing newer was in it. A page may be empty and not the last.

        Raises:
            InvalidCursorError, CursorExpiredError, InvalidArgumentError: as in `watch`.
        """

        def read() -> _Step:
            position, _ = self._open(query.start)
            return self._read_log(position, query.where, query.limit, full=query.full)

        step = await self._offload(read)
        return EventPage(self._cursors.write(step.position), step.events, step.records, step.caught_up)

    def close(self) -> None:
        """Ends all watches with NotServingError. Calling it again does nothing."""
        self._tail.close()

    async def _step(self, position: int, query: WatchQuery) -> _Step:
        if not self._tail.covers(position):
            return await self._offload(self._read_log, position, query.where, query.batch_max, full=query.full)
        if not query.full:
            return self._shared_step(position, query)
        step = self._take_tail(position, query)
        return await self._offload(self._completed, step, full=True) if step.events else step

    # On the event loop, from the tail

    def _shared_step(self, position: int, query: WatchQuery) -> _Step:
        """Watchers that keep up stand at the same place, and mostly ask for the same: they share what they are told."""
        if self._shared_version != self._tail.version:
            self._shared.clear()
            self._shared_version = self._tail.version
        key = (position, query.where, query.batch_max)
        if (step := self._shared.get(key)) is None:
            step = self._completed(self._take_tail(position, query), full=False)
            if len(self._shared) < SHARED_MAX:
                self._shared[key] = step
        return step

    def _take_tail(self, position: int, query: WatchQuery) -> _Step:
        news = self._tail.after(position)
        end = news[-1].sequence if news else position
        matching = [event for event in news if query.where.matches(event)] if query.where else news
        return _cut(matching, query.batch_max, _Step((), end, True, self._tail.head_time))

    # On a thread that may block, from the log

    def _open(self, start: Start) -> tuple[int, EventLogState]:
        """The position to begin behind, and what is kept."""
        if isinstance(start, Cursor):
            position = self._cursors.read(start.text)
            state = self._log.state()
            self._check_known(position, state)
            return position, state
        if isinstance(start, datetime):
            if start > self._clock() + CLOCK_DIFFERENCE_MAX:
                raise InvalidArgumentError.of("start_time", "must not lie in the future; leave it unset for now")
            position, state = self._log.position_before(start), self._log.state()
            return max(position, state.floor), state
        state = self._log.state()
        return state.head if start is Edge.NOW else state.floor, state

    def _read_log(self, position: int, where: EventFilter, limit: int, *, full: bool) -> _Step:
        """Up to `limit` events behind the position; whole commits where they fit."""
        # One more than wanted tells whether the last commit is whole.
        found = self._read(position, limit + 1, where)
        events = list(found.events)
        while 0 < len(events) <= limit and not found.caught_up and self._goes_on(events[-1].commit, found.position):
            found = self._read(found.position, limit + 1 - len(events), where)
            events += found.events
        step = _Step((), found.position, found.caught_up, self._log.state().head_time)
        return self._completed(_cut(events, limit, step), full=full)

    def _read(self, position: int, limit: int, where: EventFilter) -> EventSlice:
        found = self._log.read(position, limit=limit, where=where)
        _check_kept(position, found.floor)
        return found

    def _goes_on(self, commit: int, position: int) -> bool:
        """Whether the commit has events behind the position, where a read that looks at so much at a time stopped."""
        following = self._log.read(position, limit=1, where=EVERYTHING).events
        return bool(following) and following[0].commit == commit

    def _check_known(self, position: int, state: EventLogState) -> None:
        _check_kept(position, state.floor)
        # The state may be told a moment later than the events, and a cursor may be that fast.
        if position > state.head and not self._log.read(position - 1, limit=1, where=EVERYTHING).events:
            raise CursorExpiredError("the cursor lies behind the newest event; read what is there now, and start anew")

    # On either

    def _completed(self, step: _Step, *, full: bool) -> _Step:
        """The step with its message, and with records where they are wanted; then it blocks, and may get shorter."""
        if not step.events:
            return step
        step = _shortened(step, step.events, _count_within(step.events, BYTES_MAX))
        if full:
            records = self._records.read(step.events)
            step = replace(_shortened(step, step.events, len(records)), records=records)
        cursor = self._cursors.write(step.position)
        return replace(step, batch=Batch(cursor, step.events, step.records, step.caught_up))


def _cut(events: Sequence[Event], limit: int, step: _Step) -> _Step:
    """The step with the first events: at most `limit`, and no part of a commit that would fit whole."""
    count = min(limit, len(events))
    if len(events) > limit:
        while count and events[count - 1].commit == events[limit].commit:
            count -= 1
    return _shortened(step, events, count or limit)


def _shortened(step: _Step, events: Sequence[Event], count: int) -> _Step:
    """The step with the first `count` of the events; it ends there if that is not all of them."""
    if count >= len(events):
        return replace(step, events=tuple(events))
    return replace(step, events=tuple(events[:count]), position=events[count - 1].sequence, caught_up=False)


def _count_within(events: Sequence[Event], characters: int) -> int:
    """How many of the events a message holds whose details are at most so long; at least one."""
    for count, event in enumerate(events):
        characters -= len(event.details)
        if characters < 0:
            return max(1, count)
    return len(events)


def _check_kept(position: int, floor: int) -> None:
    if position < floor:
        raise CursorExpiredError("events behind the cursor are no longer kept; read what is there now, and start anew")


def _progress_time(told: _Told, step: _Step, heartbeat_s: float) -> float:
    """When to speak though nothing matches: once at the end of a backlog, soon if the cursor moved, else seldom."""
    if step.caught_up and not told.caught_up:
        return told.time
    if step.position != told.position:
        return told.time + min(PROGRESS_S, heartbeat_s)
    return told.time + heartbeat_s


async def _wait(news: asyncio.Event, until: float) -> None:
    """Waits for news, or for a time of the event loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await news.wait()
