"""Reads from the timeline: matching events are located first; then the requested ones are read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TypeVar

import numpy as np

from mnemon_server.domain.clock import DAY_US, from_microseconds, offset_us, to_microseconds
from mnemon_server.domain.conversations import Conversation
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.events import EventPosition, EventSelection, RangeSummary, StoredEvent
from mnemon_server.domain.filters import matches
from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.events import queries
from mnemon_server.engines.events.catalogue import Catalogue, Snapshot
from mnemon_server.engines.events.event_fields import field_reader
from mnemon_server.engines.events.incoming import id_hash
from mnemon_server.engines.events.queries import Ref, Selection
from mnemon_server.engines.events.segment_files import DayCount, SegmentDamagedError
from mnemon_server.engines.promises.events import SLICE_BYTES_MAX, Expired, Sequences, WindowSlice
from mnemon_server.engines.promises.values import Fits
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.wire.events import decode

BODIES_AT_ONCE = 64
BODY_BYTES_AT_ONCE = 1 << 20
"""Maximum number of bodies, and maximum size apart from one further body, that are in memory besides an answer's."""
TIED_AT_ONCE = 512
"""For more events of the same time, or larger ones, the ids are read first, and then the bodies in order."""
REFS_AT_ONCE = 1_000
ATTEMPTS_MAX = 8
"""Number of attempts to read events while their segments are being rewritten or repaired."""

T = TypeVar("T")

_Group = tuple[list[StoredEvent], int]
"""See `queries.events`."""

_position = itemgetter(0)
"""Of a StoredEvent."""


class Reads:
    """The reading methods of EventEngine. Any thread may call any method."""

    def __init__(
        self, catalogue: Catalogue, connections: Connections, repair: Callable[[str], None], reads_max: int
    ) -> None:
        """Reads nothing yet.

        `repair` repairs the segment whose file has this name, unless it has another one by now, and returns when that
        is done. A slice ends after `reads_max` events were read for its expression.
        """
        self._catalogue = catalogue
        self._connections = connections
        self._repair = repair
        self._reads_max = reads_max

    def at_once(self, read: Callable[[Snapshot], T]) -> T:
        """The result of `read` over all events at one moment. Segments that it finds damaged are repaired first.

        Raises:
            StorageFailedError: the disk failed.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                with self._connections.lend() as records:
                    return read(self._catalogue.snapshot(records))
            except SegmentDamagedError as damage:
                name = damage.name
            # Outside of the transaction, because that may take long.
            self._repair(name)
        raise StorageFailedError("a segment of the timeline cannot be read; the log says why")

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """See EventEngine."""
        selection = Selection.of(where)
        rest = selection if after is None else replace(selection, end_us=min(selection.end_us, after.time_us))
        # One more, to find out whether there are further events.
        chunk = min(limit + 1, REFS_AT_ONCE)

        def begin(snapshot: Snapshot) -> tuple[queries.Counts, list[Ref], _Group]:
            page = queries.newest(snapshot, rest, chunk)
            return queries.counts(snapshot, selection), page, _group(snapshot, page, 0)

        # All at once: further transactions would take as long as reading the events.
        counts, page, group = self.at_once(begin)
        found = _Slice(where, limit, self._reads_max)
        for run in self._newest(rest, page, group, after, chunk):
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

    def count(self, where: EventSelection) -> int:
        """See EventEngine."""
        if where.expression is None:
            return self.at_once(lambda snapshot: queries.counts(snapshot, Selection.of(where))).in_window
        return sum(1 for _ in self._matching(where))

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """See EventEngine."""
        wanted = dict.fromkeys(event_ids)
        found = self.at_once(lambda snapshot: _with_ids(snapshot, [*wanted]))
        stored = {
            event_id: one
            for one in self.stored(found)
            # The look-up is by hash, so it may return an event with another id.
            if (event_id := one.position.event_id) in wanted and (fits is None or fits(event_id, len(one.body)))
        }
        return [stored.get(event_id) for event_id in event_ids]

    def summarize(self, where: EventSelection, zone: tzinfo = UTC) -> RangeSummary:
        """See EventEngine."""
        if where.expression is None:
            return _summary(self.at_once(lambda snapshot: queries.day_counts(snapshot, Selection.of(where), zone)))
        times = ((decode(one.body).event_type, one.position.time_us) for one in self._matching(where))
        return _summary(
            (event_type, (time_us + offset_us(time_us, zone)) // DAY_US, 1, time_us, time_us)
            for event_type, time_us in times
        )

    def conversations(self, where: EventSelection) -> list[Conversation]:
        """See EventEngine. The expression of the selection is ignored."""
        return self.at_once(lambda snapshot: queries.conversations(snapshot, Selection.of(where)))

    def sequences(self, where: EventSelection) -> Sequences:
        """See EventEngine."""
        if where.expression is None:
            return self.at_once(lambda snapshot: queries.sequences(snapshot, Selection.of(where)))
        return np.array([stored.sequence for stored in self._matching(where)], np.int64)

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """See EventEngine."""
        found: list[StoredEvent] = []
        size = 0
        for stored in self.stored(sequences):
            size += len(stored.body)
            if bytes_max is not None and size > bytes_max and found:
                break
            found.append(stored)
        return found

    def expired(self, before: datetime, *, limit: int) -> Expired:
        """See EventEngine."""
        selection = Selection(end_us=to_microseconds(before) - 1)
        counts, first = self.at_once(
            lambda snapshot: (queries.counts(snapshot, selection), queries.sequences(snapshot, selection, limit))
        )
        return Expired(counts.in_window, counts.total, tuple(self.read(first.tolist())))

    def ends(self) -> tuple[datetime | None, datetime | None]:
        """The times of the earliest and the latest event."""
        earliest, latest = self.at_once(
            lambda snapshot: [queries.newest(snapshot, Selection(), 1, oldest=oldest)[:1] for oldest in (True, False)]
        )
        return (
            from_microseconds(earliest[0].time_us) if earliest else None,
            from_microseconds(latest[0].time_us) if latest else None,
        )

    def stored(self, sequences: Iterable[int]) -> Iterator[StoredEvent]:
        """The events with these sequences in the given order, read on demand, without those that no longer exist."""
        rest = iter(sequences)
        some: list[int] = []
        while some := some or [*islice(rest, BODIES_AT_ONCE)]:
            found, done = self.at_once(partial(queries.events, wanted=some, bytes_max=BODY_BYTES_AT_ONCE))
            yield from found
            some = some[done:]

    def _matching(self, where: EventSelection) -> Iterator[StoredEvent]:
        """The matching events, in storage order."""
        sequences = self.at_once(lambda snapshot: queries.sequences(snapshot, Selection.of(where)))
        return (stored for stored in self.stored(sequences.tolist()) if _passes(stored, where))

    def _newest(
        self, selection: Selection, page: Sequence[Ref], group: _Group | None, after: EventPosition | None, chunk: int
    ) -> Iterator[Sequence[StoredEvent]]:
        """The events of a selection after a position, newest first, in runs. `page` is its first page, and `group` the
        first group of that.
        """
        while page:
            start = 0
            while start < len(page):
                found, done = group or self.at_once(partial(_group, page=page, start=start))
                group = None
                end = _end_of_earlier(page, start, start + done)
                if end > start:
                    first_us = page[end - 1].time_us
                    run = sorted(
                        (one for one in found if one.position.time_us >= first_us), key=_position, reverse=True
                    )
                    yield run if after is None else [one for one in run if one.position < after]
                else:
                    end = _end_of_time(page, start + 1)
                    yield from self._tied([ref.sequence for ref in page[start:end]], after)
                start = end
            if len(page) < chunk:
                return
            rest = replace(selection, end_us=page[-1].time_us - 1)
            page = self.at_once(partial(queries.newest, selection=rest, limit=chunk))

    def _tied(self, sequences: Sequence[int], after: EventPosition | None) -> Iterator[Sequence[StoredEvent]]:
        """Events of the same time, too many or too large to be in memory together, in order, one by one."""
        named = ((one.position, one.sequence) for one in self.stored(sequences))
        ordered = sorted((one for one in named if after is None or one[0] < after), reverse=True)
        for stored in self.stored(sequence for _, sequence in ordered):
            yield [stored]


def _group(snapshot: Snapshot, page: Sequence[Ref], start: int) -> _Group:
    """The next events of a page, up to the end of a time if they are not too many."""
    end = min(_end_of_time(page, start + BODIES_AT_ONCE), start + TIED_AT_ONCE)
    return queries.events(snapshot, [ref.sequence for ref in page[start:end]], BODY_BYTES_AT_ONCE)


class _Slice:
    """A slice that is being filled."""

    def __init__(self, where: EventSelection, limit: int, reads_max: int) -> None:
        self.events: list[StoredEvent] = []
        self.read = 0
        self.end: EventPosition | None = None
        """The position to continue from; None until an event is left out."""
        self.truncated = False
        self._where = where
        self._limit = limit
        self._reads_max = reads_max
        self._size = 0
        self._before: EventPosition | None = None
        """Position of the last event that was examined."""
        self._is_full = False

    def take(self, run: Sequence[StoredEvent]) -> bool:
        """Adds events in order. Returns False once it is known whether there are more than the slice holds."""
        events, where, is_examined = self.events, self._where, self._where.expression is not None
        for stored in run:
            if self._is_full:
                self.end = self._before
                return False
            if not is_examined or _passes(stored, where):
                self._size += len(stored.body)
                if self._size > SLICE_BYTES_MAX and events:
                    self.end, self.truncated = self._before, True
                    return False
                events.append(stored)
            self.read += 1
            self._before = stored.position
            self._is_full = len(events) == self._limit or (is_examined and self.read == self._reads_max)
        return True


def _with_ids(snapshot: Snapshot, event_ids: Sequence[str]) -> list[int]:
    """The sequences of the events that may have one of these ids."""
    numbers = [id_hash(event_id) for event_id in event_ids]
    found: list[int] = []
    for source in queries.sources(snapshot):
        segment = source.segment
        some = [number for number in numbers if segment is None or segment.may_have(number)]
        if some:
            first = snapshot.first_unsealed if segment is None else 0
            with source.lend() as connection:
                found += [sequence for sequence, _ in queries.with_hashes(connection, "id_hash", some, first=first)]
    return found


def _passes(stored: StoredEvent, where: EventSelection) -> bool:
    return where.expression is None or matches(where.expression, field_reader(decode(stored.body)))


def _end_of_time(refs: Sequence[Ref], end: int) -> int:
    """The first index from `end` on with a different time."""
    while end < len(refs) and refs[end].time_us == refs[end - 1].time_us:
        end += 1
    return min(end, len(refs))


def _end_of_earlier(refs: Sequence[Ref], start: int, end: int) -> int:
    """The last index up to `end` whose time differs from the one before it, or else `start`."""
    while start < end < len(refs) and refs[end].time_us == refs[end - 1].time_us:
        end -= 1
    return end


def _summary(counts: Iterable[DayCount]) -> RangeSummary:
    types, days = Counter[str](), Counter[int]()
    earliest, latest = INT64_MAX, INT64_MIN
    for event_type, day, number, first, last in counts:
        types[event_type] += number
        days[day] += number
        earliest, latest = min(earliest, first), max(latest, last)
    return RangeSummary(
        types.total(),
        from_microseconds(earliest) if types else None,
        from_microseconds(latest) if types else None,
        tuple(sorted(types.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(days.items())),
    )
