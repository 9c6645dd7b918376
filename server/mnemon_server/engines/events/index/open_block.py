"""The events of a segment that is still open, in order of arrival."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.events.index.hash_index import HashIndex, Matches
from mnemon_server.engines.events.index.interning import Interners, scope_texts
from mnemon_server.engines.events.index.rows import (
    NO_OFFSET,
    Codes,
    EventRow,
    Flags,
    Hashes,
    Importances,
    Positions,
    Times,
)
from mnemon_server.engines.events.index.selection import Query, both, first_groups, numbers_among, rows_numbered
from mnemon_server.engines.events.index.summaries import Tally

_CAPACITY_MIN = 256


@dataclass(frozen=True, slots=True)
class OpenColumns:
    """Arrays of equal length. Codes are those of the interners."""

    times_us: Times
    deltas: Codes
    """Sequences, relative to the segment's first."""
    id_hashes: Hashes
    key_hashes: Hashes
    scopes: Codes
    types: Codes
    importances: Importances
    """NaN if unknown."""

    @classmethod
    def empty(cls, capacity: int) -> "OpenColumns":
        """Arrays with room for `capacity` events."""
        return cls(
            times_us=np.empty(capacity, np.int64),
            deltas=np.empty(capacity, np.uint32),
            id_hashes=np.empty(capacity, np.uint64),
            key_hashes=np.empty(capacity, np.uint64),
            scopes=np.empty(capacity, np.uint32),
            types=np.empty(capacity, np.uint32),
            importances=np.empty(capacity, np.float32),
        )

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    @classmethod
    def joined(cls, parts: "Sequence[OpenColumns]") -> "OpenColumns":
        """The concatenated rows of all parts."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def head(self, count: int) -> "OpenColumns":
        """The first rows, as views."""
        return OpenColumns(*(getattr(self, field.name)[:count] for field in fields(self)))

    def where(self, flags: Flags) -> "OpenColumns":
        """The rows that are flagged."""
        return OpenColumns(*(getattr(self, field.name)[flags] for field in fields(self)))

    def grown(self, count: int, capacity: int) -> "OpenColumns":
        """A copy of the first rows in longer arrays."""
        grown = OpenColumns.empty(capacity)
        for field in fields(self):
            getattr(grown, field.name)[:count] = getattr(self, field.name)[:count]
        return grown

    def write(self, start: int, rows: Sequence[EventRow], segment_id: int, interners: Interners) -> None:
        """Writes rows from a position on. The arrays must be large enough."""
        if not rows:
            return
        sequences, times, id_hashes, key_hashes, scopes, types, importances, _ = zip(*rows, strict=True)
        span = slice(start, start + len(rows))
        self.times_us[span] = times
        self.deltas[span] = [sequence - segment_id for sequence in sequences]
        self.id_hashes[span] = id_hashes
        self.key_hashes[span] = key_hashes
        self.scopes[span] = interners.scopes.codes(map(scope_texts, scopes))
        self.types[span] = interners.types.codes(types)
        self.importances[span] = [math.nan if value is None else value for value in importances]


@dataclass(frozen=True, slots=True)
class OpenView:
    """See BlockView: the events that had been appended when it was taken."""

    segment_id: int
    columns: OpenColumns
    count: int
    dead: Flags | None
    """Flags for the first rows, up to the number of rows when the last one died."""
    alive_count: int
    min_time: int
    max_time: int
    last_sequence: int
    ids: HashIndex
    keys: HashIndex
    interners: Interners

    def select(self, query: Query) -> Positions:
        """See BlockView."""
        rows = self._of_scope(query)
        timely = query.timely(self.columns.times_us[rows], self.min_time, self.max_time)
        flags = both(timely, self._context(query, rows))
        return rows if flags is None else rows[flags]

    def first(self, query: Query, limit: int, *, oldest_first: bool) -> Positions:
        """See BlockView."""
        positions = self.select(query)
        chosen = first_groups(self.times(positions), limit, oldest_first=oldest_first)
        return positions if chosen is None else positions[chosen]

    def tally(self, query: Query) -> tuple[int, int]:
        """See BlockView."""
        rows = self._of_scope(query)
        context = self._context(query, rows)
        timely = query.timely(self.columns.times_us[rows], self.min_time, self.max_time)
        in_context = _count(context, len(rows))
        return in_context, in_context if timely is None else _count(both(timely, context), len(rows))

    def summarize(self, query: Query) -> Tally | None:
        """See BlockView."""
        positions = self.select(query)
        return Tally.of(self.type_codes(positions), self.times(positions))

    def find_ids(self, hashes: Hashes) -> Matches:
        """See BlockView."""
        return self._alive(self.ids.find(hashes))

    def find_keys(self, users: Codes, times: Times, hashes: Hashes) -> Matches:
        """See BlockView."""
        found = self._alive(self.keys.find(hashes))
        asked, positions = found
        same_user = self.interners.scopes.user_codes(self.columns.scopes[positions]) == users[asked]
        return found.where(same_user & (self.times(positions) == times[asked]))

    def find_sequences(self, sequences: Times) -> Positions:
        """See BlockView."""
        flags = rows_numbered(self.columns.deltas, sequences - self.segment_id)
        positions = np.flatnonzero(flags)
        return positions if self.dead is None else positions[self._is_alive(positions)]

    def are_alive(self, sequences: Times) -> Flags:
        """See BlockView."""
        return numbers_among(self.columns.deltas, self.dead, sequences - self.segment_id)

    def times(self, positions: Positions) -> Times:
        """See BlockView."""
        return self.columns.times_us[positions]

    def sequences(self, positions: Positions) -> Times:
        """See BlockView."""
        return self.columns.deltas[positions] + np.int64(self.segment_id)

    def offsets(self, positions: Positions) -> Times:
        """See BlockView."""
        return np.full(len(positions), NO_OFFSET, np.int64)

    def type_codes(self, positions: Positions) -> Codes:
        """See BlockView."""
        return self.columns.types[positions]

    def _of_scope(self, query: Query) -> Positions:
        # A user has few of the rows, so all other conditions are checked only for those.
        return query.rows_of_scope(self.segment_id, self.columns.scopes)

    def _context(self, query: Query, rows: Positions) -> Flags | None:
        flags = None if query.types is None else query.types.rows(self.columns.types[rows])
        flags = both(flags, query.important(self.columns.importances[rows]))
        return flags if self.dead is None else both(self._is_alive(rows), flags)

    def _is_alive(self, positions: Positions) -> Flags:
        alive = np.ones(len(positions), np.bool_)
        if self.dead is not None:
            marked = np.flatnonzero(positions < len(self.dead))
            alive[marked] = ~self.dead[positions[marked]]
        return alive

    def _alive(self, found: Matches) -> Matches:
        # The hash indexes may already contain rows that were added after this view was taken.
        shown = found.where(found.positions < self.count)
        return shown if self.dead is None else shown.where(self._is_alive(shown.positions))


class OpenBlock:
    """The events of one segment in order of arrival.

    One thread writes. Any thread takes views without a lock, which stay valid: rows are written after those that a view
    shows, and longer arrays or changed flags replace the old ones.
    """

    def __init__(self, segment_id: int, interners: Interners) -> None:
        self._interners = interners
        self._columns = OpenColumns.empty(_CAPACITY_MIN)
        self._view = OpenView(
            segment_id=segment_id,
            columns=self._columns.head(0),
            count=0,
            dead=None,
            alive_count=0,
            min_time=INT64_MAX,
            max_time=INT64_MIN,
            last_sequence=segment_id - 1,
            ids=HashIndex(),
            keys=HashIndex(),
            interners=interners,
        )

    @property
    def segment_id(self) -> int:
        """The sequence of the segment's first event."""
        return self._view.segment_id

    @property
    def interners(self) -> Interners:
        """The meaning of the codes in the columns."""
        return self._interners

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        view = self._view
        dead = 0 if view.dead is None else view.dead.nbytes
        return self._columns.nbytes + view.ids.nbytes + view.keys.nbytes + dead

    def view(self) -> OpenView:
        """A view of the current state."""
        return self._view

    def append_rows(self, rows: Sequence[EventRow]) -> None:
        """Adds events with ascending sequences. They become visible together."""
        if not rows:
            return
        view = self._view
        end = view.count + len(rows)
        self._make_room(view.count, end)
        self._columns.write(view.count, rows, view.segment_id, self._interners)
        sequences, times, id_hashes, key_hashes = list(zip(*rows, strict=True))[:4]
        view.ids.add(id_hashes, view.count)
        view.keys.add(key_hashes, view.count)
        self._view = replace(
            view,
            columns=self._columns.head(end),
            count=end,
            alive_count=view.alive_count + len(rows),
            min_time=min(view.min_time, *times),
            max_time=max(view.max_time, *times),
            last_sequence=max(view.last_sequence, *sequences),
        )

    def dead_sequences(self) -> list[int]:
        """The sequences of the dead events."""
        view = self._view
        dead: list[int] = [] if view.dead is None else view.sequences(np.flatnonzero(view.dead)).tolist()
        return dead

    def mark_dead(self, sequences: Iterable[int]) -> int:
        """Hides events; returns how many of them existed and were alive."""
        view = self._view
        dead = rows_numbered(view.columns.deltas, np.fromiter(sequences, np.int64) - view.segment_id)
        if view.dead is not None:
            dead[: len(view.dead)] |= view.dead
        alive_count = view.count - int(np.count_nonzero(dead))
        if alive_count == view.alive_count:
            return 0
        self._view = replace(view, dead=dead, alive_count=alive_count)
        return view.alive_count - alive_count

    def _make_room(self, count: int, end: int) -> None:
        capacity = len(self._columns.times_us)
        if end > capacity:
            self._columns = self._columns.grown(count, max(end, 2 * capacity))


def _count(flags: Flags | None, length: int) -> int:
    return length if flags is None else int(np.count_nonzero(flags))
