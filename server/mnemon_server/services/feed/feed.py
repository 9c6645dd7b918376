"""The change feed of a vault: its log from any place, for as long as anybody watches, without a gap."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakValueDictionary

from mnemon_server.domain.changes import Change, ChangeFilter, ChangeLogState, ChangeSlice
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import CursorExpiredError, InvalidArgumentError
from mnemon_server.domain.feed import (
    EVERYTHING,
    HEARTBEAT_DEFAULT_S,
    Batch,
    ChangePage,
    Cursor,
    Edge,
    FeedMessage,
    ListQuery,
    Progress,
    Record,
    Start,
    Started,
    WatchQuery,
)
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.services.feed.cursors import Cursors
from mnemon_server.services.feed.records import ChangeRecords, ReadRecords
from mnemon_server.services.feed.tail import ChangeTail
from mnemon_server.services.shared.offload import Offload

PROGRESS_S = 1.0
"""How long a cursor may lag behind what was read, while nothing matches."""
BATCH_BYTES_MAX, PAGE_BYTES_MAX = 256 << 10, 3 << 20
"""Of a message of a watch, which a reader that does not read leaves behind, and of a page; one change may be larger."""
CHANGE_BYTES = 128
"""What the fields of a change take that all have."""
CLOCK_DIFFERENCE_MAX = timedelta(minutes=1)


Render = Callable[[Batch], Any]
"""Makes what watchers are handed in place of a batch; pure, and called on any thread."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Step:
    """What one look at the log gave: the changes that match, up to a position."""

    changes: tuple[Change, ...]
    position: int
    caught_up: bool
    head_time: datetime | None
    cursor: str = ""
    records: tuple[Record | None, ...] = ()
    told: Any = None
    """What watchers are handed, once it is made: then the changes and records are no longer here."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a watcher knows, and since when (seconds of the event loop)."""

    position: int
    time: float
    caught_up: bool


class ChangeFeed:
    """Watches and reads one log. Belongs to one event loop.

    A watcher has a position, and nothing else of its own: it reads the log from there, and a commit only wakes it. So
    one that is slow costs no memory and delays nobody. Watchers at the same place that ask for the same share what is
    read, for as long as one of them has it. Changes of one commit come in one message, unless they are more than a
    message may hold, and then share their commit.
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
            subscribe: registers what is called, on any thread, after a commit; returns what ends that.
            readers: what reads the records that changes are about, for each kind that the feed shows. It blocks.
                Statements include superseded ones. Facts are read by the ids of their records, without expired ones.
            offload: where everything that blocks is done.
            heartbeat_default_s: the longest silence, in seconds, for watchers that name none.
            clock: tells times that have yet to come.
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

    def watch(self, query: WatchQuery) -> AsyncGenerator[FeedMessage, None]:
        """Tells `started`, and then every change behind the start that matches, once and in order, without an end.

        What is committed after `started` was handed out is always told. A time before the oldest change that is kept
        starts with that; `retained_since` says so.

        Raises:
            InvalidCursorError: the cursor is damaged, made up, or another vault's.
            CursorExpiredError: changes behind the cursor are no longer kept, also where that happens while watching; or
                the cursor lies behind the newest change, as it does after an older copy of the vault was restored.
            InvalidArgumentError: the start lies in the future.
        """
        return self.watch_rendered(query, _as_it_is)

    async def watch_rendered(self, query: WatchQuery, render: Render) -> AsyncGenerator[Any, None]:
        """As `watch`, with what `render` makes of each batch in its place: made once for all who are told the same."""
        loop = asyncio.get_running_loop()
        heartbeat_s = query.heartbeat_s or self._heartbeat_default_s
        with self._tail.followed():
            position, state = await self._offload(self._open, query.start)
            yield Started(self._cursors.write(position), heartbeat_s, state.first_time)
            told = _Told(position, loop.time(), query.start is Edge.NOW)
            while True:
                news = self._tail.news
                step = await self._step(position, query, render)
                position = step.position
                if step.told is not None:
                    yield step.told
                    told = _Told(position, loop.time(), told.caught_up or step.caught_up)
                elif loop.time() >= _progress_time(told, step, heartbeat_s):
                    yield Progress(self._cursors.write(position), step.head_time, step.caught_up)
                    told = _Told(position, loop.time(), told.caught_up or step.caught_up)
                if step.caught_up:
                    await _wait(news, _progress_time(told, step, heartbeat_s))

    async def list(self, query: ListQuery) -> ChangePage:
        """One page of the log; `caught_up` where nothing newer was in it. A page may be empty and not the last.

        Raises:
            InvalidCursorError, CursorExpiredError, InvalidArgumentError: as in `watch`.
        """

        def read() -> _Step:
            position, _ = self._open(query.start)
            return self._read_log(position, query.where, query.limit, PAGE_BYTES_MAX, full=query.full)

        step = await self._offload(read)
        return ChangePage(self._cursors.write(step.position), step.changes, step.records, step.caught_up)

    def close(self) -> None:
        """Ends all watches with NotServingError. Calling it again does nothing."""
        self._tail.close()

    async def _step(self, position: int, query: WatchQuery, render: Render) -> _Step:
        covered = self._tail.covers(position)
        # What was read before news came is nothing to share with those who have heard of them.
        key = (self._tail.version, position, query.where, query.batch_max, query.full, render)
        if (step := self._shared.get(key)) is not None:
            return step
        if not covered or query.full:
            return await self._read_once(key, position, query, render)
        step = self._shared[key] = _rendered(self._completed(self._take_tail(position, query), BATCH_BYTES_MAX), render)
        return step

    async def _read_once(self, key: Hashable, position: int, query: WatchQuery, render: Render) -> _Step:
        """The step, which whoever wants the same meanwhile waits for, too."""

        def read() -> _Step:
            step = self._read_log(position, query.where, query.batch_max, BATCH_BYTES_MAX, full=query.full)
            return _rendered(step, render)

        if (reading := self._reading.get(key)) is None:
            reading = self._reading[key] = asyncio.create_task(self._offload(read))
            reading.add_done_callback(lambda task: self._note_read(key, task))
        return await asyncio.shield(reading)

    def _note_read(self, key: Hashable, task: "asyncio.Task[_Step]") -> None:
        del self._reading[key]
        # Asking for the error also says that somebody has seen it: those who wanted the step may all have left.
        if not task.cancelled() and task.exception() is None:
            self._shared[key] = task.result()

    # On the event loop, from the tail

    def _take_tail(self, position: int, query: WatchQuery) -> _Step:
        news = self._tail.after(position)
        end = news[-1].sequence if news else position
        matching = [change for change in news if query.where.matches(change)] if query.where else news
        return _cut(matching, query.batch_max, _Step((), end, True, self._tail.head_time))

    # On a thread that may block, from the log

    def _open(self, start: Start) -> tuple[int, ChangeLogState]:
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

    def _read_log(self, position: int, where: ChangeFilter, limit: int, bytes_max: int, *, full: bool) -> _Step:
        """Up to `limit` changes behind the position; whole commits where they fit."""
        # One more than wanted tells whether the last commit is whole.
        found = self._read(position, limit + 1, where)
        changes = list(found.changes)
        while 0 < len(changes) <= limit and not found.caught_up and self._goes_on(changes[-1].commit, found.position):
            found = self._read(found.position, limit + 1 - len(changes), where)
            changes += found.changes
        step = _Step((), found.position, found.caught_up, self._log.state().head_time)
        return self._completed(_cut(changes, limit, step), bytes_max, full=full)

    def _read(self, position: int, limit: int, where: ChangeFilter) -> ChangeSlice:
        found = self._log.read(position, limit=limit, where=where)
        _check_kept(position, found.floor)
        return found

    def _goes_on(self, commit: int, position: int) -> bool:
        """Whether the commit has changes behind the position, where a read that looks at so much at a time stopped."""
        following = self._log.read(position, limit=1, where=EVERYTHING).changes
        return bool(following) and following[0].commit == commit

    def _check_known(self, position: int, state: ChangeLogState) -> None:
        _check_kept(position, state.floor)
        # The state may be told a moment later than the changes, and a cursor may be that fast.
        if position > state.head and not self._log.read(position - 1, limit=1, where=EVERYTHING).changes:
            raise CursorExpiredError("the cursor lies behind the newest change; read what is there now, and start anew")

    # On either

    def _completed(self, step: _Step, bytes_max: int, *, full: bool = False) -> _Step:
        """The step as far as it fits, with records where they are wanted; then it blocks."""
        step = _shortened(step, step.changes, _count_within(step.changes, bytes_max))
        if full and step.changes:
            records = self._records.read(step.changes, bytes_max)
            step = replace(_shortened(step, step.changes, len(records)), records=records)
        return replace(step, cursor=self._cursors.write(step.position)) if step.changes else step


def _rendered(step: _Step, render: Render) -> _Step:
    """The step with what is told in place of its changes."""
    if not step.changes:
        return step
    told = render(Batch(step.cursor, step.changes, step.records, step.caught_up))
    return replace(step, changes=(), records=(), told=told)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _cut(changes: Sequence[Change], limit: int, step: _Step) -> _Step:
    """The step with the first changes: at most `limit`, and no part of a commit that would fit whole."""
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
    """How many of the changes a message of this size holds; at least one where there are any."""
    for count, change in enumerate(changes):
        bytes_max -= CHANGE_BYTES + len(change.record_id) + len(change.request_id) + len(change.details)
        bytes_max -= sum(map(len, change.changed)) + _length(change.scope)
        if bytes_max < 0:
            return max(1, count)
    return len(changes)


def _length(scope: Scope) -> int:
    return len(scope.user) + len(scope.household) + len(scope.persona) + len(scope.agent) + len(scope.project)


def _check_kept(position: int, floor: int) -> None:
    if position < floor:
        raise CursorExpiredError("changes behind the cursor are no longer kept; read what is there now, and start anew")


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
