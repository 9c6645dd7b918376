"""Reads from the timeline: the index selects and locates events, and their bodies are read from there."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice, takewhile
from operator import itemgetter

import numpy as np

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.events import EventPosition, EventSelection, RangeSummary, StoredEvent
from mnemon_server.domain.filters import matches
from mnemon_server.engines.events.index.event_fields import field_reader
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import EventRef
from mnemon_server.engines.events.index.selection import Selection
from mnemon_server.engines.events.named_tuples import maker
from mnemon_server.engines.events.rows.bodies import Bodies, BodyReader, is_full
from mnemon_server.engines.promises.events import SLICE_BYTES_MAX, Expired, Sequences, WindowSlice
from mnemon_server.engines.promises.values import Fits
from mnemon_server.wire.events import decode, event_id_of

BODIES_AT_ONCE = 64
BODY_BYTES_AT_ONCE = 1 << 20
"""Maximum number of bodies, and maximum size apart from one further body, that are in memory besides an answer's."""
TIED_AT_ONCE = 512
"""For more events of the same time, or larger ones, the ids are read first, and then the bodies in order."""
REFS_AT_ONCE = 1_000
DAY_US = 86_400_000_000

_new_position, _new_stored = maker(EventPosition), maker(StoredEvent)


class Reads:
    """Answers queries from index and bodies. Any thread may call any method; see Timeline."""

    def __init__(self, index: TimelineIndex, bodies: BodyReader, reads_max: int) -> None:
        """Reads nothing yet. A slice ends after `reads_max` events were read for its expression."""
        self._index = index
        self._bodies = bodies
        self._reads_max = reads_max

    def window(self, where: EventSelection, after: EventPosition | None, limit: int) -> WindowSlice:
        """See Timeline."""
        selection = selection_of(where)
        # One more, to find out whether there are further events.
        chunk = min(limit + 1, REFS_AT_ONCE)
        counts, refs = self._index.counted_page(selection, before=after, limit=chunk)
        found = _Slice(where, limit, self._reads_max)
        for run in self._newest(selection, refs, after, chunk):
            if not found.take(run):
                break
        return WindowSlice(
            tuple(found.events),
            found.end,
            total=counts.total,
            in_context=counts.in_context,
            in_window=counts.in_window,
            rejected=found.read - len(found.events),
            truncated=found.truncated,
        )

    def window_at_once(self, where: EventSelection, after: EventPosition | None, limit: int) -> WindowSlice | None:
        """See Timeline."""
        if where.expression is not None or limit > REFS_AT_ONCE:
            return None
        # One more, to find out whether there are further events.
        counts, refs = self._index.counted_page(selection_of(where), before=after, limit=limit + 1)
        bodies = self._bodies.in_memory(refs)
        if bodies is None or sum(map(len, bodies.values())) > SLICE_BYTES_MAX:
            return None
        found = sorted(_events(refs, bodies), key=_position, reverse=True)
        if after is not None:
            found = [one for one in found if one.position < after]
        return WindowSlice(
            tuple(found[:limit]),
            found[limit - 1].position if len(found) > limit else None,
            total=counts.total,
            in_context=counts.in_context,
            in_window=counts.in_window,
            rejected=0,
        )

    def count(self, where: EventSelection) -> int:
        """See Timeline."""
        if where.expression is None:
            return self._index.counts(selection_of(where)).in_window
        return sum(1 for _ in self._matching(where))

    def get(self, event_ids: Sequence[str], fits: Fits | None = None) -> list[StoredEvent | None]:
        """See Timeline."""
        found = self._index.find_ids(event_ids)
        wanted = set(event_ids)
        stored = {
            event_id: one
            for one in self._stored(ref for refs in found for ref in refs)
            # The look-up is by hash, so it may return an event with another id.
            if (event_id := one.position.event_id) in wanted and (fits is None or fits(event_id, len(one.body)))
        }
        return [stored.get(event_id) for event_id in event_ids]

    def summarize(self, where: EventSelection) -> RangeSummary:
        """See Timeline."""
        if where.expression is not None:
            return self._summarize_matching(where)
        found = self._index.summarize(selection_of(where))
        return _summary(found.earliest_us, found.latest_us, found.per_type, found.per_day)

    def sequences(self, where: EventSelection) -> Sequences:
        """See Timeline."""
        if where.expression is None:
            return self._index.sequences(selection_of(where))
        return np.array([stored.sequence for stored in self._matching(where)], np.int64)

    def read(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredEvent]:
        """See Timeline."""
        found: list[StoredEvent] = []
        size = 0
        for stored in self._in_turn(sequences):
            size += len(stored.body)
            if bytes_max is not None and size > bytes_max and found:
                break
            found.append(stored)
        return found

    def expired(self, before: datetime, limit: int) -> Expired:
        """See Timeline."""
        sequences = self._index.sequences(Selection(end_us=to_microseconds(before) - 1))
        return Expired(len(sequences), self._index.count, tuple(self.read(sequences[:limit].tolist())))

    def ends(self) -> tuple[datetime | None, datetime | None]:
        """The times of the earliest and the latest event."""
        earliest = self._index.page(Selection(), limit=1, oldest_first=True)
        latest = self._index.page(Selection(), limit=1)
        return (
            from_microseconds(earliest[0].time_us) if earliest else None,
            from_microseconds(latest[0].time_us) if latest else None,
        )

    def _matching(self, where: EventSelection) -> Iterator[StoredEvent]:
        """The matching events, in storage order."""
        sequences = self._index.sequences(selection_of(where))
        for start in range(0, len(sequences), BODIES_AT_ONCE):
            for stored in self.read(sequences[start : start + BODIES_AT_ONCE].tolist()):
                if _passes(stored, where):
                    yield stored

    def _summarize_matching(self, where: EventSelection) -> RangeSummary:
        types: Counter[str] = Counter()
        days: Counter[int] = Counter()
        earliest = latest = None
        for stored in self._matching(where):
            time_us = stored.position.time_us
            types[decode(stored.body).event_type] += 1
            days[time_us // DAY_US] += 1
            earliest = time_us if earliest is None else min(earliest, time_us)
            latest = time_us if latest is None else max(latest, time_us)
        return _summary(earliest, latest, types, days)

    def _newest(
        self, selection: Selection, refs: Sequence[EventRef], after: EventPosition | None, chunk: int
    ) -> Iterator[Sequence[StoredEvent]]:
        """The events of a selection after a position, newest first, in groups. `refs` is its first page."""
        if not refs:
            return
        for page in chain((refs,), self._before(refs[-1], selection, chunk)):
            start = 0
            while start < len(page):
                end = _end_of_time(page, start + BODIES_AT_ONCE)
                yield from self._in_order(page[start:end], after)
                start = end

    def _before(self, last: EventRef, selection: Selection, chunk: int) -> Iterator[Sequence[EventRef]]:
        # A generator: most windows end with their first page.
        yield from self._index.iterate(replace(selection, end_us=last.time_us - 1), chunk=chunk)

    def _in_order(self, refs: Sequence[EventRef], after: EventPosition | None) -> Iterator[Sequence[StoredEvent]]:
        """These events in order, without those up to a position. They must be all events of their times."""
        if len(refs) <= TIED_AT_ONCE:
            run = self._few(refs)
            if run is not None:
                run.sort(key=_position, reverse=True)
                yield (
                    run
                    if after is None or not run or run[0].position < after
                    else [one for one in run if one.position < after]
                )
                return
        named = ((one.position, one.sequence) for one in self._stored(refs))
        ordered = sorted((one for one in named if after is None or one[0] < after), reverse=True)
        for start in range(0, len(ordered), BODIES_AT_ONCE):
            for stored in self._in_turn([sequence for _, sequence in ordered[start : start + BODIES_AT_ONCE]]):
                yield [stored]

    def _few(self, refs: Sequence[EventRef]) -> list[StoredEvent] | None:
        """All of these events; None if they are too large to be in memory together."""
        run: list[StoredEvent] = []
        size = 0
        for group in self._groups(refs):
            run += group
            size += sum([len(stored.body) for stored in group])
            if size > BODY_BYTES_AT_ONCE and len(run) < len(refs):
                return None
        return run

    def _in_turn(self, sequences: Sequence[int]) -> Iterator[StoredEvent]:
        """The events with these sequences, in the given order, read on demand."""
        found = {ref.sequence: ref for ref in self._index.locate(sequences)}
        return self._stored(found[sequence] for sequence in sequences if sequence in found)

    def _stored(self, refs: Iterable[EventRef]) -> Iterator[StoredEvent]:
        """The events in the given order, without those that no longer exist."""
        return chain.from_iterable(self._groups(refs))

    def _groups(self, refs: Iterable[EventRef]) -> Iterator[list[StoredEvent]]:
        """The same, in the groups in which they are read."""
        rest = iter(refs)
        some: list[EventRef] = []
        while some := some or list(islice(rest, BODIES_AT_ONCE)):
            bodies = self._bodies.read(some, BODY_BYTES_AT_ONCE)
            read = some
            if is_full(bodies, BODY_BYTES_AT_ONCE) and len(bodies) < len(some):
                # A missing body may only not have been read yet. If it is the first, read it alone to find out.
                read = list(takewhile(_is_in(bodies), some)) or some[:1]
                if read[0].sequence not in bodies:
                    bodies = self._bodies.read(read)
            some = some[len(read) :]
            yield _events(read, bodies)


class _Slice:
    """A slice that is being filled."""

    def __init__(self, where: EventSelection, limit: int, reads_max: int) -> None:
        self.events: list[StoredEvent] = []
        self.read = 0
        self.end: EventPosition | None = None
        """Where to continue; None as long as no event was left out."""
        self.truncated = False
        self._where = where
        self._limit = limit
        self._reads_max = reads_max
        self._size = 0
        self._last: EventPosition | None = None
        """Position of the event with which the slice became full."""
        self._before: EventPosition | None = None
        """Position of the last event that was examined."""

    def take(self, run: Sequence[StoredEvent]) -> bool:
        """Adds events in order. Returns False once it is known whether there are more than the slice holds."""
        rest = iter(run)
        if self._last is None and self._where.expression is None:
            rest = self._take_small(run)
        for stored in rest:
            if self._last is not None:
                self.end = self._last
                return False
            if _passes(stored, self._where):
                self._size += len(stored.body)
                if self._size > SLICE_BYTES_MAX and self.events:
                    self.end, self.truncated = self._before, True
                    return False
                self.events.append(stored)
            self.read += 1
            self._before = stored.position
            if self._is_full():
                self._last = stored.position
        return True

    def _take_small(self, run: Sequence[StoredEvent]) -> Iterator[StoredEvent]:
        """Adds as many small events as requested at once. Yields the others."""
        some = run[: self._limit - len(self.events)]
        size = self._size + sum([len(stored.body) for stored in some])
        if size > SLICE_BYTES_MAX or not some:
            return iter(run)
        self.events += some
        self.read += len(some)
        self._size = size
        self._before = some[-1].position
        if len(self.events) == self._limit:
            self._last = self._before
        return islice(run, len(some), None)

    def _is_full(self) -> bool:
        too_many = self._where.expression is not None and self.read == self._reads_max
        return len(self.events) == self._limit or too_many


def _events(refs: Sequence[EventRef], bodies: Bodies) -> list[StoredEvent]:
    """The events whose bodies were read, in the order of the references."""
    return [
        _new_stored((_new_position((time_us, event_id_of(body))), sequence, segment_id, body))
        for time_us, sequence, segment_id, _ in refs
        if (body := bodies.get(sequence)) is not None
    ]


def _is_in(bodies: Bodies) -> Callable[[EventRef], bool]:
    return lambda ref: ref.sequence in bodies


_position = itemgetter(0)
"""Of a StoredEvent."""


def selection_of(where: EventSelection) -> Selection:
    """The selection for the index: everything except the expression."""
    return Selection(
        scope=where.scope,
        event_types=where.event_types,
        min_importance=where.min_importance,
        start_us=None if where.start is None else to_microseconds(where.start),
        end_us=None if where.end is None else to_microseconds(where.end),
    )


def _passes(stored: StoredEvent, where: EventSelection) -> bool:
    return where.expression is None or matches(where.expression, field_reader(decode(stored.body)))


def _end_of_time(refs: Sequence[EventRef], end: int) -> int:
    """The first index from `end` on with a different time."""
    while end < len(refs) and refs[end].time_us == refs[end - 1].time_us:
        end += 1
    return min(end, len(refs))


def _summary(
    earliest_us: int | None, latest_us: int | None, per_type: dict[str, int], per_day: dict[int, int]
) -> RangeSummary:
    return RangeSummary(
        sum(per_type.values()),
        None if earliest_us is None else from_microseconds(earliest_us),
        None if latest_us is None else from_microseconds(latest_us),
        tuple(sorted(per_type.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(per_day.items())),
    )
