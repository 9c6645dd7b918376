"""The index of all events of a vault, as numeric columns in memory."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.events.index.block_set import BlockSet
from mnemon_server.engines.events.index.blocks import BlockView
from mnemon_server.engines.events.index.hash_index import Matches
from mnemon_server.engines.events.index.hashes import id_hash
from mnemon_server.engines.events.index.interning import Interners
from mnemon_server.engines.events.index.open_block import OpenBlock
from mnemon_server.engines.events.index.paging import find_all, find_first, references, references_in_order
from mnemon_server.engines.events.index.rows import Counts, EventKey, EventRef, EventRow, Expired, Summary, Times
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.selection import Query, Selection
from mnemon_server.engines.events.index.summaries import summarize

CHUNK = 1000


class TimelineIndex:
    """Finds the events of a vault by scope, type, importance and time, by id, and by key.

    Reads need no lock, and each returns a consistent state. Changes run one at a time. The index has neither texts nor
    ids, so a look-up by id or key returns candidates, which the caller must read and compare. A reference to a segment
    that is sealed, rewritten or dropped meanwhile becomes invalid; the caller must then look up again.
    """

    def __init__(self, interners: Interners | None = None) -> None:
        self.interners = interners or Interners()
        self._blocks = BlockSet()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of events, without dead ones."""
        return sum(view.alive_count for view in self._blocks.views())

    @property
    def nbytes(self) -> int:
        """Allocated memory in bytes, without the texts of scopes and types."""
        return sum(block.nbytes for block in self._blocks) + self.interners.scopes.nbytes

    @property
    def segment_ids(self) -> list[int]:
        """The segments that have a block, ascending."""
        return [block.segment_id for block in self._blocks]

    def open_block(self, segment_id: int) -> OpenBlock:
        """The open block of a segment. Raises KeyError if the segment has no open block."""
        block = self._blocks.get(segment_id)
        if not isinstance(block, OpenBlock):
            raise KeyError(segment_id)
        return block

    def sealed_block(self, segment_id: int) -> SealedBlock:
        """The sealed block of a segment. Raises KeyError if the segment has no sealed block."""
        block = self._blocks.get(segment_id)
        if not isinstance(block, SealedBlock):
            raise KeyError(segment_id)
        return block

    # Reading

    def page(
        self, selection: Selection, *, before: tuple[int, str] | None = None, limit: int, oldest_first: bool = False
    ) -> list[EventRef]:
        """The first events of a selection, newest first or oldest first.

        Events of the same time are ordered by id, but the index does not know ids. So a page always contains all events
        of its last time, and may exceed `limit`. With `before`, the time and id of the last event already read, it
        starts with all events of that time, and `limit` counts the events after them. The caller reads the ids, sorts
        events of the same time, drops those up to `before`, and truncates.
        """
        views = self._blocks.overlapping(*selection.window)
        query = Query.of(selection, self.interners)
        return [] if query is None else _page(views, query, before, limit, oldest_first=oldest_first)

    def counted_page(
        self, selection: Selection, *, before: tuple[int, str] | None = None, limit: int
    ) -> tuple[Counts, list[EventRef]]:
        """The `counts` of a selection and its newest `page`, from the same state of the index."""
        blocks = self._blocks
        views = blocks.views()
        query = Query.of(selection, self.interners)
        refs = [] if query is None else _page(views, query, before, limit, oldest_first=False)
        return _counts(blocks, views, query), refs

    def iterate(
        self,
        selection: Selection,
        *,
        before: tuple[int, str] | None = None,
        oldest_first: bool = False,
        chunk: int = CHUNK,
    ) -> Iterator[list[EventRef]]:
        """All events of a selection in pages of about `chunk`, each computed on demand; see `page`.

        Each page ends with all events of its last time, and the next one starts after those.
        """
        refs = self.page(selection, before=before, limit=chunk, oldest_first=oldest_first)
        while refs:
            yield refs
            last = refs[-1].time_us
            rest = replace(selection, start_us=last + 1) if oldest_first else replace(selection, end_us=last - 1)
            refs = self.page(rest, limit=chunk, oldest_first=oldest_first)

    def counts(self, selection: Selection) -> Counts:
        """The number of all events, of those matching the selection apart from time, and of those within its window."""
        blocks = self._blocks
        return _counts(blocks, blocks.views(), Query.of(selection, self.interners))

    def summarize(self, selection: Selection) -> Summary:
        """A summary of the events in a selection."""
        views = self._blocks.overlapping(*selection.window)
        query = Query.of(selection, self.interners)
        return summarize([] if query is None else [view.summarize(query) for view in views], self.interners.types)

    def expired(self, before_us: int, limit: int) -> Expired:
        """The oldest events before a time, at most `limit`, and the number of all events before it."""
        selection = Selection(end_us=before_us - 1)
        views = self._blocks.overlapping(INT64_MIN, before_us - 1)
        query = Query.of(selection, self.interners)
        if query is None:
            return Expired([], 0)
        oldest = references(find_first(views, query, limit, oldest_first=True), oldest_first=True, limit=limit)
        return Expired(oldest[:limit], sum(view.tally(query)[1] for view in views))

    def find_ids(self, ids: Sequence[str]) -> list[list[EventRef]]:
        """For each id, the events that may have it: none, one or, if hashes are equal, several."""
        hashes = np.array([id_hash(event_id) for event_id in ids], np.uint64)
        refs: list[list[EventRef]] = [[] for _ in ids]
        for view in self._blocks.views():
            _hand_out(view, view.find_ids(hashes), refs)
        return refs

    def find_keys(self, keys: Sequence[EventKey]) -> list[list[EventRef]]:
        """For each key, the events that may have it. Blocks without its time are skipped."""
        refs: list[list[EventRef]] = [[] for _ in keys]
        if not keys:
            return refs
        of_users, of_times, of_hashes = zip(*keys, strict=True)
        views = self._blocks.overlapping(min(of_times), max(of_times))
        known = list(map(self.interners.scopes.find_user, of_users))
        asked = np.array([index for index, user in enumerate(known) if user is not None], np.intp)
        users = np.array([user for user in known if user is not None], np.uint32)
        times, hashes = np.array(of_times, np.int64)[asked], np.array(of_hashes, np.uint64)[asked]
        for view in views:
            near = np.flatnonzero((times >= view.min_time) & (times <= view.max_time))
            if len(near):
                matches = view.find_keys(users[near], times[near], hashes[near])
                _hand_out(view, Matches(asked[near[matches.asked]], matches.positions), refs)
        return refs

    def sequences(self, selection: Selection) -> Times:
        """The ascending sequences of the events in a selection."""
        views = self._blocks.overlapping(*selection.window)
        query = Query.of(selection, self.interners)
        if query is None:
            return np.empty(0, np.int64)
        # The sequences of a segment are below those of the next, and sorting each alone takes less time.
        views.sort(key=_segment_id)
        return np.concatenate([np.empty(0, np.int64), *(np.sort(view.sequences(view.select(query))) for view in views)])

    @property
    def last_sequence(self) -> int:
        """The highest sequence, including dead events; 0 without events."""
        return max((view.last_sequence for view in self._blocks.views() if view.count), default=0)

    def alive(self, first: int, last: int) -> Times:
        """The sequences from `first` to `last` that are not dead, ascending.

        The result is complete up to a `last_sequence` that was read before, because events become visible in order.
        """
        found = [np.empty(0, np.int64)]
        for view in self._blocks.views():
            low, high = max(first, view.segment_id), min(last, view.last_sequence)
            if low <= high:
                found.append(view.sequences(view.find_sequences(np.arange(low, high + 1))))
        ascending: Times = np.sort(np.concatenate(found))
        return ascending

    def alive_among(self, sequences: Times) -> Times:
        """Those of the given ascending sequences that belong to events that are not dead; ascending."""
        alive = np.zeros(len(sequences), np.bool_)
        for view in self._blocks.views():
            low, high = sequences.searchsorted((view.segment_id, view.last_sequence + 1)).tolist()
            if low < high:
                alive[low:high] = view.are_alive(sequences[low:high])
        return sequences if alive.all() else sequences[alive]

    def count_behind(self, sequence: int) -> int:
        """The number of events with a higher sequence."""
        views = [view for view in self._blocks.views() if view.last_sequence > sequence]
        whole = sum(view.alive_count for view in views if view.segment_id > sequence)
        begun = [view.last_sequence for view in views if view.segment_id <= sequence]
        return whole + (len(self.alive(sequence + 1, max(begun))) if begun else 0)

    def locate(self, sequences: Sequence[int]) -> list[EventRef]:
        """References to the events with these sequences, in any order, without those that no longer exist."""
        wanted = np.sort(np.array(sequences, np.int64))
        refs: list[EventRef] = []
        for view in self._blocks.views():
            low, high = wanted.searchsorted((view.segment_id, view.last_sequence + 1)).tolist()
            if low < high:
                refs += references_in_order(view, view.find_sequences(wanted[low:high]))
        return refs

    def has(self, segment_id: int) -> bool:
        """Whether a segment has a block."""
        return self._blocks.get(segment_id) is not None

    # Changes of blocks

    def add_open(self, segment_id: int) -> OpenBlock:
        """Adds the block of a new segment."""
        block = OpenBlock(segment_id, self.interners)
        with self._lock:
            self._blocks = self._blocks.exchanged([segment_id], block)
        return block

    def add_sealed(self, *blocks: SealedBlock) -> None:
        """Adds blocks of sealed segments, for example at a start."""
        with self._lock:
            self._blocks = self._blocks.exchanged([block.segment_id for block in blocks], *blocks)

    def append(self, segment_id: int, rows: Sequence[EventRow]) -> None:
        """Adds events with ascending sequences to an open block. They become visible together."""
        with self._lock:
            self.open_block(segment_id).append_rows(rows)

    def seal(self, block: SealedBlock) -> None:
        """Replaces an open block by the sealed block made from it. Dead events stay dead.

        Raises ValueError if the open block has different events.
        """
        with self._lock:
            count = self.open_block(block.segment_id).view().count
            if count != block.count:
                raise ValueError(f"segment {block.segment_id} has {count} events, its sealed block {block.count}")
            self._exchange([block.segment_id], block)

    def swap(self, segment_ids: Iterable[int], block: SealedBlock | None) -> None:
        """Replaces blocks by a rewritten one, or removes them if `block` is None. Dead events stay dead."""
        with self._lock:
            self._exchange(list(segment_ids), block)

    def drop(self, segment_id: int) -> None:
        """Removes a segment with all its events."""
        self.swap([segment_id], None)

    def mark_dead(self, sequences: Iterable[int]) -> int:
        """Hides events; returns how many of them existed and were alive."""
        wanted = np.fromiter(sequences, np.int64)
        marked = 0
        with self._lock:
            for block in self._blocks:
                own = wanted[(wanted >= block.segment_id) & (wanted <= block.view().last_sequence)]
                marked += block.mark_dead(own.tolist()) if len(own) else 0
        return marked

    def _exchange(self, segment_ids: Sequence[int], block: SealedBlock | None) -> None:
        replaced = [old for segment_id in segment_ids if (old := self._blocks.get(segment_id)) is not None]
        if block is None:
            self._blocks = self._blocks.exchanged(segment_ids)
            return
        for old in replaced:
            # Events may have died after the new block was made.
            block.mark_dead(old.dead_sequences())
        self._blocks = self._blocks.exchanged([*segment_ids, block.segment_id], block)


def _page(
    views: Sequence[BlockView], query: Query, before: tuple[int, str] | None, limit: int, *, oldest_first: bool
) -> list[EventRef]:
    refs: list[EventRef] = []
    if before is not None:
        time_us = before[0]
        same_time = query.between(time_us, time_us)
        refs = references(find_all(_within(views, time_us, time_us), same_time), oldest_first=oldest_first)
        query = query.between(time_us + 1, INT64_MAX) if oldest_first else query.between(INT64_MIN, time_us - 1)
    found = find_first(_within(views, query.start_us, query.end_us), query, limit, oldest_first=oldest_first)
    return refs + references(found, oldest_first=oldest_first, limit=limit)


def _counts(blocks: BlockSet, views: Sequence[BlockView], query: Query | None) -> Counts:
    total = sum([view.alive_count for view in views])
    if query is None:
        return Counts(total, 0, 0)
    in_context = in_window = 0
    if query.user is not None and query.is_of_user_alone:
        # The sealed blocks outside of the window are not visited: their number grows with all events.
        views = [view for view in views if not _is_counted(view, query)]
        in_context = blocks.sealed_count(query.user)
        in_context -= sum([view.size_of_user(query) for view in views if isinstance(view, SealedBlock)])
    for view in views:
        context, window = view.tally(query)
        in_context += context
        in_window += window
    return Counts(total, in_context, in_window)


def _is_counted(view: BlockView, query: Query) -> bool:
    """Whether the block's rows of a user match in context, but not in the window."""
    is_outside = view.max_time < query.start_us or view.min_time > query.end_us
    return is_outside and isinstance(view, SealedBlock) and not view.has_dead


def _within(views: Sequence[BlockView], start_us: int, end_us: int) -> list[BlockView]:
    return [view for view in views if view.max_time >= start_us and view.min_time <= end_us]


_segment_id = attrgetter("segment_id")


def _hand_out(view: BlockView, matches: Matches, refs: list[list[EventRef]]) -> None:
    if not len(matches.asked):
        return
    found = references_in_order(view, matches.positions)
    for asked, ref in zip(matches.asked.tolist(), found, strict=True):
        refs[asked].append(ref)
