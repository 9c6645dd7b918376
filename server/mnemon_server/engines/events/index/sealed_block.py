"""The events of a sealed segment as fixed columns, sorted by user and time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.events.index.hash_index import Matches, find_sorted, spread
from mnemon_server.engines.events.index.interning import Interners
from mnemon_server.engines.events.index.open_block import OpenBlock, OpenColumns
from mnemon_server.engines.events.index.rows import (
    Codes,
    EventRow,
    Flags,
    Hashes,
    Positions,
    ShortHashes,
    Times,
    lengthened,
    shortened,
)
from mnemon_server.engines.events.index.sealed_columns import (
    Dictionary,
    SealedColumns,
    canonical_order,
    dictionary_of,
)
from mnemon_server.engines.events.index.selection import Query, both, first_groups, numbers_among, rows_numbered
from mnemon_server.engines.events.index.summaries import Tally

_FILTERED_ROWS_MIN = 1024


class SealedBlock:
    """The events of one sealed segment. It is its own BlockView.

    Only the flags of dead events ever change. One thread sets them; any number read without a lock.
    """

    def __init__(self, segment_id: int, columns: SealedColumns, dictionary: Dictionary) -> None:
        """The columns must be sorted, and their codes must be within the dictionary."""
        self.segment_id = segment_id
        self.columns = columns
        self.dictionary = dictionary
        self.count = len(columns.times_us)
        self._dead: Flags | None = None
        self._whole: tuple[Flags | None, Tally | None] | None = None
        """The flags of dead events, and the counts of all others."""
        self.min_time = int(columns.times_us.min(initial=INT64_MAX))
        self.max_time = int(columns.times_us.max(initial=INT64_MIN))
        self.last_sequence = segment_id + int(columns.deltas.max(initial=0))
        self._users, self._starts, self._ends = _user_ranges(columns.scopes, dictionary)
        # Reading a single value from a memoryview takes a third of the time of reading it from an array.
        self._user_numbers, self._times = self._users.data, columns.times_us.data

    @classmethod
    def from_rows(cls, segment_id: int, rows: Sequence[EventRow], interners: Interners) -> "SealedBlock":
        """Creates a block of events in any order. Each must have an offset."""
        columns = OpenColumns.empty(len(rows))
        columns.write(0, rows, segment_id, interners)
        offsets = np.array([row.offset for row in rows], np.uint32)
        return cls.from_columns(segment_id, columns, offsets, interners)

    @classmethod
    def from_open(cls, block: OpenBlock, offsets: Sequence[int]) -> "SealedBlock":
        """Creates a sealed block of the same events, including dead ones. `offsets` are in the order of appending."""
        view = block.view()
        sealed = cls.from_columns(view.segment_id, view.columns, np.array(offsets, np.uint32), block.interners)
        sealed.mark_dead(block.dead_sequences())
        return sealed

    @classmethod
    def from_columns(cls, segment_id: int, rows: OpenColumns, offsets: Codes, interners: Interners) -> "SealedBlock":
        """Creates a block of events in any order, with the offsets of their frames."""
        dictionary, scopes, types = dictionary_of(rows.scopes, rows.types, interners)
        order = canonical_order(dictionary.user_numbers()[scopes], rows.times_us, rows.key_hashes)
        id_hashes = rows.id_hashes[order]
        id_positions = np.argsort(id_hashes, kind="stable")
        columns = SealedColumns(
            times_us=rows.times_us[order],
            key_hashes=shortened(rows.key_hashes[order]),
            sorted_ids=shortened(id_hashes[id_positions]),
            id_positions=id_positions.astype(np.uint32),
            offsets=offsets[order],
            deltas=rows.deltas[order],
            scopes=scopes[order],
            types=types[order],
            importances=rows.importances[order],
        )
        return cls(segment_id, columns, dictionary)

    @property
    def alive_count(self) -> int:
        """The number of events that are not dead."""
        dead = self._dead
        return self.count if dead is None else self.count - int(np.count_nonzero(dead))

    @property
    def has_dead(self) -> bool:
        """Whether any events are dead."""
        return self._dead is not None

    def user_sizes(self) -> tuple[Codes, Times]:
        """The numbers of its users, and how many rows each has, including dead events."""
        return self._users, (self._ends - self._starts).astype(np.int64)

    def size_of_user(self, query: Query) -> int:
        """The number of rows of the query's user, including dead events."""
        start, end = self._user_range(query)
        return end - start

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        users = self._users.nbytes + self._starts.nbytes + self._ends.nbytes
        dead = 0 if self._dead is None else self._dead.nbytes
        return self.columns.nbytes + self.dictionary.nbytes + users + dead

    def view(self) -> "SealedBlock":
        """Itself."""
        return self

    def mark_dead(self, sequences: Iterable[int]) -> int:
        """Hides events; returns how many of them existed and were alive."""
        alive_count = self.alive_count
        dead = rows_numbered(self.columns.deltas, np.fromiter(sequences, np.int64) - self.segment_id)
        if dead.any():
            # Replace the flags instead of changing them, because readers count those that they hold.
            self._dead = dead if self._dead is None else dead | self._dead
        return alive_count - self.alive_count

    def dead_sequences(self) -> list[int]:
        """The sequences of the dead events."""
        dead: list[int] = [] if self._dead is None else self.sequences(np.flatnonzero(self._dead)).tolist()
        return dead

    def in_order(self, segment_id: int) -> OpenColumns:
        """All events, including dead ones, by ascending sequence, relative to the sequence of an earlier segment.

        Only the upper halves of the hashes are original.
        """
        columns, dictionary = self.columns, self.dictionary
        order = np.argsort(columns.deltas)
        ids = np.empty(self.count, np.uint32)
        ids[columns.id_positions] = columns.sorted_ids
        return OpenColumns(
            times_us=columns.times_us[order],
            deltas=columns.deltas[order] + np.uint32(self.segment_id - segment_id),
            id_hashes=lengthened(ids[order]),
            key_hashes=lengthened(columns.key_hashes[order]),
            scopes=dictionary.scopes[columns.scopes[order]],
            types=dictionary.types[columns.types[order]],
            importances=columns.importances[order],
        )

    def frames_of(self, sequences: Iterable[int], events_end: int) -> list[tuple[int, int, int]]:
        """Sequence, offset and size of the frames of those given events that it has, in the order of the file.

        It must have all events of the file, also those that are dead. `events_end` is where the last one ends.
        """
        wanted = np.fromiter(sequences, np.int64) - self.segment_id
        positions = np.flatnonzero(rows_numbered(self.columns.deltas, wanted))
        starts = np.sort(self.columns.offsets).astype(np.int64)
        offsets = np.sort(self.offsets(positions))
        sizes = np.append(starts, events_end)[starts.searchsorted(offsets, "right")] - offsets
        return list(zip(np.sort(self.sequences(positions)).tolist(), offsets.tolist(), sizes.tolist(), strict=True))

    def all_sequences(self) -> list[int]:
        """The ascending sequences of all events, including dead ones."""
        sequences: list[int] = (np.sort(self.columns.deltas) + np.int64(self.segment_id)).tolist()
        return sequences

    def select(self, query: Query) -> Positions:
        """See BlockView."""
        low, high, timely = self._window(query, *self._user_range(query))
        return self._positions(both(timely, self._context(query, low, high)), low, high)

    def first(self, query: Query, limit: int, *, oldest_first: bool) -> Positions:
        """See BlockView."""
        low, high, timely = self._window(query, *self._user_range(query))
        if self._in_order_of_time(query):
            return self._walk(query, low, high, limit, oldest_first=oldest_first)
        positions = self._positions(both(timely, self._context(query, low, high)), low, high)
        chosen = first_groups(self.times(positions), limit, oldest_first=oldest_first)
        return positions if chosen is None else positions[chosen]

    def tally(self, query: Query) -> tuple[int, int]:
        """See BlockView."""
        start, end = self._user_range(query)
        low, high, timely = self._window(query, start, end)
        context = self._context(query, start, end)
        if context is None:
            return end - start, high - low if timely is None else int(np.count_nonzero(timely))
        in_context = int(np.count_nonzero(context))
        if timely is None and (low, high) == (start, end):
            return in_context, in_context
        inside = context[low - start : high - start]
        return in_context, int(np.count_nonzero(inside if timely is None else inside & timely))

    def summarize(self, query: Query) -> Tally | None:
        """See BlockView. The counts of the whole block are kept."""
        if not query.takes_all(self.min_time, self.max_time):
            positions = self.select(query)
            return Tally.of(self.type_codes(positions), self.times(positions))
        dead, whole = self._dead, self._whole
        if whole is None or whole[0] is not dead:
            alive = slice(None) if dead is None else ~dead
            columns = self.columns
            whole = self._whole = dead, Tally.of(self.dictionary.types[columns.types[alive]], columns.times_us[alive])
        return whole[1]

    def find_ids(self, hashes: Hashes) -> Matches:
        """See BlockView."""
        return self._alive(find_sorted(self.columns.sorted_ids, self.columns.id_positions, shortened(hashes)))

    def find_keys(self, users: Codes, times: Times, hashes: Hashes) -> Matches:
        """See BlockView."""
        if not self.count:
            return Matches.none()
        keys = shortened(hashes)
        at = np.minimum(self._users.searchsorted(users), len(self._users) - 1)
        known = self._users[at] == users
        start = np.where(known, self._starts[at], 0).astype(np.intp)
        end = np.where(known, self._ends[at], 0).astype(np.intp)
        first = self._bound(start, end, times, keys, behind_equal=False)
        at = np.minimum(first, self.count - 1)
        equal = (self.columns.times_us[at] == times) & (self.columns.key_hashes[at] == keys)
        hits = np.flatnonzero((first < end) & equal)
        if not len(hits):
            return Matches.none()
        behind = self._bound(first[hits], end[hits], times[hits], keys[hits], behind_equal=True)
        found = spread(first[hits], behind)
        return self._alive(Matches(hits[found.asked], found.positions))

    def find_sequences(self, sequences: Times) -> Positions:
        """See BlockView."""
        flags = rows_numbered(self.columns.deltas, sequences - self.segment_id)
        return np.flatnonzero(flags if self._dead is None else flags & ~self._dead)

    def are_alive(self, sequences: Times) -> Flags:
        """See BlockView."""
        return numbers_among(self.columns.deltas, self._dead, sequences - self.segment_id)

    def times(self, positions: Positions) -> Times:
        """See BlockView."""
        return self.columns.times_us[positions]

    def sequences(self, positions: Positions) -> Times:
        """See BlockView."""
        return self.columns.deltas[positions] + np.int64(self.segment_id)

    def offsets(self, positions: Positions) -> Times:
        """See BlockView."""
        return self.columns.offsets[positions].astype(np.int64)

    def type_codes(self, positions: Positions) -> Codes:
        """See BlockView."""
        return self.dictionary.types[self.columns.types[positions]]

    def _user_range(self, query: Query) -> tuple[int, int]:
        if query.user is None:
            return 0, self.count
        at = bisect_left(self._user_numbers, query.user)
        if at == len(self._user_numbers) or self._user_numbers[at] != query.user:
            return 0, 0
        return self._starts.item(at), self._ends.item(at)

    def _in_order_of_time(self, query: Query) -> bool:
        return query.user is not None or len(self._users) == 1

    def _window(self, query: Query, low: int, high: int) -> tuple[int, int, Flags | None]:
        """The rows of a user's range to look at, and flags for those inside the window; None stands for all of them."""
        if query.start_us > self.max_time or query.end_us < self.min_time:
            return low, low, None
        if not self._in_order_of_time(query):
            return low, high, query.timely(self.columns.times_us[low:high], self.min_time, self.max_time)
        if query.start_us > self.min_time:
            low = bisect_left(self._times, query.start_us, low, high)
        if query.end_us < self.max_time:
            high = bisect_right(self._times, query.end_us, low, high)
        return low, high, None

    def _context(self, query: Query, low: int, high: int) -> Flags | None:
        columns, flags, dead = self.columns, None, self._dead
        if query.scopes is not None and (query.user is None or query.beyond_user):
            flags = query.scopes.local_rows(columns.scopes[low:high], self.dictionary.scopes)
        if query.types is not None:
            flags = both(flags, query.types.local_rows(columns.types[low:high], self.dictionary.types))
        flags = both(flags, query.important(columns.importances[low:high]))
        return flags if dead is None else both(~dead[low:high], flags)

    def _walk(self, query: Query, low: int, high: int, limit: int, *, oldest_first: bool) -> Positions:
        """The matches among rows in time order. Walks from one end in growing steps until there are enough."""
        found: list[Positions] = []
        missing, step = limit, limit if self._takes_all(query) else max(4 * limit, _FILTERED_ROWS_MIN)
        while low < high and missing > 0:
            start, end = self._step(low, high, step, oldest_first=oldest_first)
            found.append(self._positions(self._context(query, start, end), start, end))
            missing -= len(found[-1])
            low, high = (end, high) if oldest_first else (low, start)
            step *= 4
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.intp), *found])

    def _step(self, low: int, high: int, step: int, *, oldest_first: bool) -> tuple[int, int]:
        """The given number of rows from one end of a range, and all rows with the same time as the last of these."""
        times = self.columns.times_us[low:high]
        if high - low <= step:
            return low, high
        if oldest_first:
            return low, low + int(times.searchsorted(times[step - 1], "right"))
        return low + int(times.searchsorted(times[-step])), high

    def _takes_all(self, query: Query) -> bool:
        plain = query.types is None and query.min_importance is None and not query.beyond_user
        return plain and self._dead is None

    @staticmethod
    def _positions(flags: Flags | None, low: int, high: int) -> Positions:
        return np.arange(low, high) if flags is None else np.flatnonzero(flags) + low

    def _alive(self, found: Matches) -> Matches:
        dead = self._dead
        return found if dead is None else found.where(~dead[found.positions])

    def _bound(
        self, start: Positions, end: Positions, times: Times, keys: ShortHashes, *, behind_equal: bool
    ) -> Positions:
        """Binary search, for all ranges at once, for the first row of each that is not before (time, key hash)."""
        low, high = start, end
        while (searching := low < high).any():
            middle = np.where(searching, (low + high) // 2, 0)
            time, key = self.columns.times_us[middle], self.columns.key_hashes[middle]
            key_before = key <= keys if behind_equal else key < keys
            before = (time < times) | ((time == times) & key_before)
            low = np.where(searching & before, middle + 1, low)
            high = np.where(searching & ~before, middle, high)
        return low


def _user_ranges(scopes: Codes, dictionary: Dictionary) -> tuple[Codes, Codes, Codes]:
    """The numbers of the users, ascending, with the start and end of each user's rows."""
    if not len(scopes):
        return np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.uint32)
    rows = dictionary.user_numbers()[scopes]
    starts = np.concatenate([[0], np.flatnonzero(rows[1:] != rows[:-1]) + 1]).astype(np.uint32)
    ends = np.append(starts[1:], np.uint32(len(rows)))
    users = dictionary.interners.scopes.user_codes(dictionary.scopes[scopes[starts]])
    order = np.argsort(users)
    return users[order], starts[order], ends[order]
