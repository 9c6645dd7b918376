"""The change feed of a vault: its log from any position on, without gaps."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeLogState, ChangeSlice
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import CursorExpiredError, InvalidArgumentError
from mnemon_server.domain.feed import (
    EVERYTHING,
    HEARTBEAT_DEFAULT_S,
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
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.observation.figures import WATCH_LAG_SECONDS
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.feed.cursors import Cursors
from mnemon_server.services.feed.identity import without_foreign
from mnemon_server.services.feed.records import ChangeRecords, ReadRecords, has_contents
from mnemon_server.services.feed.tail import ChangeTail
from mnemon_server.services.limits.outbox import Sending

PROGRESS_S = 1.0
"""While no change matches, the longest time (seconds) until watchers get the cursor of what was read."""
BATCH_BYTES_MAX, PAGE_BYTES_MAX = 256 << 10, 3 << 20
"""The size limits of a watch message and of a page; a single change may be larger.

The former is smaller, because a watcher that does not read keeps its message in memory.
"""
CHANGE_BYTES = 128
"""The size of those fields of a change that have a fixed size."""
CLOCK_DIFFERENCE_MAX = timedelta(minutes=1)


Render = Callable[[Batch], Any]
"""Turns a batch into what watchers receive instead of it; pure, and called on any thread."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Step:
    """The result of one read of the log: the changes that match, up to a position."""

    changes: tuple[Change, ...]
    position: int
    caught_up: bool
    head_time: datetime | None
    cursor: str = ""
    records: tuple[Record | None, ...] = ()
    rendered: Any = None
    """A message to watchers. Once it is rendered, `changes` and `records` are empty."""


class _Ahead(AbstractContextManager["_Ahead"]):
    """The step that a watcher reads next, cancelled when the watcher leaves."""

    def __init__(self, tail: ChangeTail) -> None:
        self.news = tail.news
        """Set by changes after the last step that was read."""
        self._tail = tail
        self._reading: asyncio.Task[_Step] | None = None

    def begin(self, read: Callable[[], Coroutine[Any, Any, _Step]]) -> None:
        """Starts to read the next step."""
        self.news = self._tail.news
        self._reading = asyncio.create_task(read())

    async def next(self, read: Callable[[], Coroutine[Any, Any, _Step]]) -> _Step:
        """The next step; starts to read it if necessary."""
        if (reading := self._reading) is not None:
            self._reading = None
            return await reading
        self.news = self._tail.news
        return await read()

    def __exit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            # Marks an error as retrieved: no one waits for it.
            self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())


@dataclass(frozen=True, slots=True)
class _LastSent:
    """The last message to a watcher, and its time (seconds of the event loop)."""

    position: int
    time: float
    caught_up: bool


class Place(Protocol):
    """A watcher's hold on its vault."""

    @property
    def is_lost(self) -> bool:
        """Whether the vault was closed while the watcher rested. The watch then continues in another feed."""

    def resting(self) -> AbstractContextManager[None]:
        """A context during which the watcher pauses."""


class Watcher:
    """The progress of a watcher, kept while its vault is closed and reopened."""

    def __init__(self, place: Place) -> None:
        """A watcher that has not started."""
        self.place = place
        self.cursor = ""
        """The cursor to continue from; empty at first."""
        self.position = 0
        self.heartbeat_s = 0.0
        self.last = _LastSent(0, 0.0, caught_up=False)
        self.head_time: datetime | None = None

    @property
    def progress_time(self) -> float:
        """The time of the next heartbeat if there is nothing to read."""
        return self.last.time + self.heartbeat_s

    def progress(self) -> Progress:
        """A heartbeat for a closed vault, which cannot change."""
        self.last = replace(self.last, time=asyncio.get_running_loop().time())
        return Progress(self.cursor, self.head_time, caught_up=True)


class ChangeFeed:
    """Watches and reads one log. Belongs to one event loop.

    A watcher's only state is its position: it reads the log from there, and a commit only wakes it. So a slow watcher
    costs no memory and does not delay the others. Watchers with the same position and the same query share the result
    of a read for as long as one of them holds it. The changes of one commit come in one message, unless they exceed
    the limits of a message. Then they come in several messages, with the same commit number.
    """

    def __init__(
        self,
        change_log: ChangeLog,
        subscribe: Callable[[Callable[[], None]], Callable[[], None]],
        *,
        readers: Mapping[RecordKind, ReadRecords],
        offload: Offload,
        heartbeat_default_s: float = HEARTBEAT_DEFAULT_S,
        clock: Clock = system_clock,
    ) -> None:
        """Reads nothing yet.

        Args:
            change_log: the log.
            subscribe: see `Vault.subscribe`.
            readers: for each kind of record that the feed shows, a blocking function that reads records by id. For
                statements, it includes superseded ones; for facts, it takes record ids, and leaves out expired facts.
            offload: runs blocking calls on threads.
            heartbeat_default_s: the longest silence, in seconds, for watchers that do not set it.
            clock: tells whether a start time lies in the future.
        """
        self._log = change_log
        self._cursors = Cursors(change_log.epoch)
        self._records = ChangeRecords(readers)
        self._offload = offload
        self._heartbeat_default_s = heartbeat_default_s
        self._clock = clock
        self._tail = ChangeTail(change_log, subscribe, offload)
        self._shared: WeakValueDictionary[Hashable, _Step] = WeakValueDictionary()
        self._reading: dict[Hashable, asyncio.Task[_Step]] = {}
        self._bounds = UNBOUNDED

    def within(self, bounds: Bounds, readers: Mapping[RecordKind, ReadRecords]) -> "ChangeFeed":
        """The same feed for a caller with bounds, with readers that read within them. Close the whole one alone.

        It tells nothing about other changes, except that positions have gaps. It shares the reads of the log.
        """
        part = copy(self)
        part._bounds, part._records = bounds, ChangeRecords(readers)
        return part

    async def watch(
        self, query: WatchQuery, render: Render, watcher: Watcher, sending: Sending | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yields Started, and then all matching changes after the start, once and in order, until the vault is lost.

        Every change that is committed after Started was yielded is included. A start time before the oldest change
        that is kept means that change; `retained_since` tells its time.

        Args:
            query: what to watch.
            render: makes the message that is yielded of a batch; called once for all watchers that get the same.
            watcher: knows where to continue.
            sending: where messages must fit. Until they do, the watcher holds nothing, and reads once more afterwards.
                None: they always fit.

        Raises:
            InvalidCursorError: the cursor is damaged, forged, or from another vault.
            CursorExpiredError: changes after the cursor are no longer kept, which may also happen while watching; or
                the cursor is ahead of the newest change, since an older copy of the vault was restored.
            InvalidArgumentError: the start time is in the future.
            SlowReaderError: messages that are not read took all memory for too long.
        """
        loop = asyncio.get_running_loop()
        query = replace(query, where=replace(query.where, bounds=self._bounds))
        with self._tail.followed(), _Ahead(self._tail) as ahead:
            if not watcher.cursor:
                yield await self._begun(watcher, query)
            else:
                await self._offload(self._open, Cursor(watcher.cursor))
            while not watcher.place.is_lost:
                step = await ahead.next(lambda: self._step(watcher.position, query, render))
                if sending is not None and step.rendered is not None and not sending.fits(len(step.rendered)):
                    size = len(step.rendered)
                    del step
                    with watcher.place.resting():
                        await sending.wait(size)
                    continue
                self._note_step(watcher, step)
                if not step.caught_up and not query.full:
                    # Of a backlog, the next step is read while this one is sent.
                    ahead.begin(lambda: self._step(watcher.position, query, render))
                due = self._progress_time(watcher, step)
                if step.rendered is not None or loop.time() >= due:
                    last, watcher.last = watcher.last, _LastSent(step.position, loop.time(), step.caught_up)
                    watcher.last = replace(watcher.last, caught_up=last.caught_up or step.caught_up)
                    yield self._message(step, watcher, last)
                    due = self._progress_time(watcher, step)
                if step.caught_up:
                    with watcher.place.resting():
                        await _wait(ahead.news, due)

    async def _begun(self, watcher: Watcher, query: WatchQuery) -> Started:
        position, state = await self._offload(self._open, query.start)
        watcher.heartbeat_s = query.heartbeat_s or self._heartbeat_default_s
        watcher.position, watcher.cursor = position, self._cursors.write(position)
        watcher.last = _LastSent(position, asyncio.get_running_loop().time(), query.start is Edge.NOW)
        return Started(watcher.cursor, watcher.heartbeat_s, None if self._bounds.is_bound else state.first_time)

    def _note_step(self, watcher: Watcher, step: _Step) -> None:
        """Moves the watcher to the end of a step."""
        if step.position != watcher.position:
            watcher.position, watcher.cursor = step.position, self._cursors.write(step.position)
        watcher.head_time = None if self._bounds.is_bound else step.head_time

    def _message(self, step: _Step, watcher: Watcher, before: _LastSent) -> Any:
        """The step's changes, or a heartbeat."""
        if step.rendered is None:
            return Progress(watcher.cursor, watcher.head_time, step.caught_up)
        if before.caught_up and step.head_time is not None:
            WATCH_LAG_SECONDS.note((self._clock() - step.head_time).total_seconds())
        return step.rendered

    async def list(self, query: ListQuery) -> ChangePage:
        """One page of the log; `caught_up` if the log had no newer changes. A page may be empty and not the last.

        Raises:
            InvalidCursorError, InvalidArgumentError: as in `watch`.
            CursorExpiredError: as in `watch`, if the start is a cursor.
        """
        step = await self._offload(lambda: self._read_page(query))
        return ChangePage(self._cursors.write(step.position), step.changes, step.records, step.caught_up)

    @property
    def head(self) -> int:
        """The position of the newest change, even after the log is closed."""
        return self._log.state().head

    def close(self) -> None:
        """Ends all watches with NotServingError. Calling it again does nothing."""
        self._tail.close()

    async def _step(self, position: int, query: WatchQuery, render: Render) -> _Step:
        covered = self._tail.covers(position)
        # The version keeps a watcher that was woken by news from getting a step that was read before them.
        key = (self._tail.version, position, query.where, query.batch_max, query.full, render)
        if (step := self._shared.get(key)) is not None:
            return step
        if not covered or query.full:
            return await self._read_once(key, position, query, render)
        taken = self._take_tail(position, query)
        if has_contents(taken.changes):
            return await self._read_once(key, position, query, render)
        step = self._shared[key] = _rendered(self._completed(taken, BATCH_BYTES_MAX), render)
        return step

    async def _read_once(self, key: Hashable, position: int, query: WatchQuery, render: Render) -> _Step:
        """Reads the step from the log; concurrent calls with the same key share one read."""

        def read() -> _Step:
            step = self._read_log(position, query.where, query.batch_max, BATCH_BYTES_MAX, full=query.full)
            return _rendered(step, render)

        if (reading := self._reading.get(key)) is None:
            reading = self._reading[key] = asyncio.create_task(self._offload(read))
            reading.add_done_callback(lambda task: self._note_read(key, task))
        return await asyncio.shield(reading)

    def _note_read(self, key: Hashable, task: "asyncio.Task[_Step]") -> None:
        del self._reading[key]
        # `exception()` also marks the error as retrieved: the watchers that waited for the step may all have left.
        if not task.cancelled() and task.exception() is None:
            self._shared[key] = task.result()

    def _progress_time(self, watcher: Watcher, step: _Step) -> float:
        """When to send Progress: at once after a backlog, soon if the cursor moved, or else after the heartbeat."""
        last = watcher.last
        if step.caught_up and not last.caught_up:
            return last.time
        # A caller with bounds is not told when others write.
        if step.position != last.position and not self._bounds.is_bound:
            return last.time + min(PROGRESS_S, watcher.heartbeat_s)
        return watcher.progress_time

    # On the event loop, from the tail

    def _take_tail(self, position: int, query: WatchQuery) -> _Step:
        news = self._tail.after(position)
        end = news[-1].sequence if news else position
        matching = [change for change in news if query.where.matches(change)] if query.where else news
        return _cut(matching, query.batch_max, _Step((), end, True, self._tail.head_time))

    # On a thread that may block, from the log

    def _open(self, start: Start) -> tuple[int, ChangeLogState]:
        """The position after which the changes begin, and the state of the log."""
        if isinstance(start, Cursor):
            position = self._cursors.read(start.text)
            state = self._log.state()
            self._check_known(position, state)
            return position, state
        if isinstance(start, datetime):
            if start > self._clock() + CLOCK_DIFFERENCE_MAX:
                raise InvalidArgumentError.of("start_time", "must not be in the future; leave it unset to start now")
            position, state = self._log.position_before(start), self._log.state()
            return max(position, state.floor), state
        state = self._log.state()
        return state.head if start is Edge.NOW else state.floor, state

    def _read_page(self, query: ListQuery) -> _Step:
        where = replace(query.where, bounds=self._bounds)
        while True:
            position, _ = self._open(query.start)
            try:
                return self._read_log(position, where, query.limit, PAGE_BYTES_MAX, full=query.full)
            except CursorExpiredError:
                if isinstance(query.start, Cursor):
                    raise
                # A trim dropped the first of these changes meanwhile. The page begins with the oldest that is kept.

    def _read_log(self, position: int, where: ChangeFilter, limit: int, bytes_max: int, *, full: bool) -> _Step:
        """Up to `limit` changes after the position; commits are whole if they fit."""
        # One more than wanted shows whether the last commit is whole.
        found = self._read(position, limit + 1, where)
        changes = list(found.changes)
        while 0 < len(changes) <= limit and not found.caught_up and self._continues(changes[-1].commit, found.position):
            found = self._read(found.position, limit + 1 - len(changes), where)
            changes += found.changes
        step = _Step((), found.position, found.caught_up, self._log.state().head_time)
        return self._completed(_cut(changes, limit, step), bytes_max, full=full)

    def _read(self, position: int, limit: int, where: ChangeFilter) -> ChangeSlice:
        found = self._log.read(position, limit=limit, where=where)
        _check_kept(position, found.floor)
        return found

    def _continues(self, commit: int, position: int) -> bool:
        """Whether the commit has changes after the position: one read of the log may stop within a commit."""
        following = self._log.read(position, limit=1, where=EVERYTHING).changes
        return bool(following) and following[0].commit == commit

    def _check_known(self, position: int, state: ChangeLogState) -> None:
        _check_kept(position, state.floor)
        # `state` may be older than the newest changes, and a client may already have a cursor of these.
        if position > state.head and not self._log.read(position - 1, limit=1, where=EVERYTHING).changes:
            raise CursorExpiredError("the cursor is ahead of the newest change; read the current state and start again")

    # On the event loop or on a thread

    def _completed(self, step: _Step, bytes_max: int, *, full: bool = False) -> _Step:
        """The part of the step that fits, with a cursor. Blocks if it reads: with `full` the records, or else the
        contents of recorded events.
        """
        step = _shortened(step, step.changes, _count_within(step.changes, bytes_max))
        if self._bounds.is_bound:
            step = replace(step, changes=tuple(map(without_foreign, step.changes)))
        if full and step.changes:
            records = self._records.read(step.changes, bytes_max)
            step = replace(_shortened(step, step.changes, len(records)), records=records)
        elif has_contents(step.changes):
            told = self._records.with_contents(step.changes, bytes_max)
            step = replace(_shortened(step, step.changes, len(told)), changes=told)
        return replace(step, cursor=self._cursors.write(step.position)) if step.changes else step


def _rendered(step: _Step, render: Render) -> _Step:
    """The step with the rendered batch instead of its changes."""
    if not step.changes:
        return step
    rendered = render(Batch(step.cursor, step.changes, step.records, step.caught_up))
    return replace(step, changes=(), records=(), rendered=rendered)


def _cut(changes: Sequence[Change], limit: int, step: _Step) -> _Step:
    """The step with the first changes: at most `limit`, and no part of a commit that would fit as a whole."""
    count = min(limit, len(changes))
    if len(changes) > limit:
        while count and changes[count - 1].commit == changes[limit].commit:
            count -= 1
    return _shortened(step, changes, count or limit)


def _shortened(step: _Step, changes: Sequence[Change], count: int) -> _Step:
    """The step with the first `count` of the changes; it ends there if that is not all of them."""
    if count >= len(changes):
        return replace(step, changes=tuple(changes))
    return replace(step, changes=tuple(changes[:count]), position=changes[count - 1].sequence, caught_up=False)


def _count_within(changes: Sequence[Change], bytes_max: int) -> int:
    """How many of the changes fit in a message of this size; at least one, unless there are no changes."""
    for count, change in enumerate(changes):
        bytes_max -= CHANGE_BYTES + len(change.record_id) + len(change.request_id) + len(change.details)
        bytes_max -= sum(map(len, change.changed)) + _length(change.scope)
        if bytes_max < 0:
            return max(1, count)
    return len(changes)


def _length(scope: Scope) -> int:
    return sum(map(len, scope_values(scope)))


def _check_kept(position: int, floor: int) -> None:
    if position < floor:
        raise CursorExpiredError("changes after the cursor are no longer kept; read the current state and start again")


async def _wait(news: asyncio.Event, until: float) -> None:
    """Waits for news, but not longer than until a time of the event loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await news.wait()
