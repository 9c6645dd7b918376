"""What is counted along with the timeline's writes, and what becomes visible with their commit."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import apsw

from mnemon_server.domain.episodic import EventReceipt
from mnemon_server.engines.timeline.format.layout import segment_name
from mnemon_server.engines.timeline.index.index import TimelineIndex
from mnemon_server.engines.timeline.index.rows import EventRow
from mnemon_server.engines.timeline.rows import segments as timeline_segments
from mnemon_server.engines.timeline.rows import tables as timeline_tables
from mnemon_server.engines.timeline.rows.incoming import KeyTexts
from mnemon_server.engines.timeline.upkeep.manifest import SegmentRow, SegmentState

ROWS_AT_ONCE = 5_000

FileNames: TypeAlias = dict[int, str]
"""By segment."""


class Counts(NamedTuple):
    """How far the timeline has come."""

    sequence: int = 0
    """The last one that was given."""
    opened: SegmentRow | None = None
    """The open segment; what is known of its file may be older here than in records.db."""
    segment_count: int = 0


class Addition(NamedTuple):
    """What one call stores."""

    counts: Counts
    """Afterwards."""
    rows: dict[int, list[EventRow]]
    """By segment, ascending."""
    by_id: dict[str, EventReceipt]
    by_key: dict[KeyTexts, EventReceipt]
    byte_count: int
    """Of their frames."""


class Ledger:
    """Follows the transactions on the timeline; see Follower. `file_names` is for any thread, all else for the
    writer's.

    Events enter the index, and removed ones leave it, once their transaction is on stable storage and before anybody is
    told.
    """

    def __init__(self, index: TimelineIndex) -> None:
        """Nothing is known before `load`; the index is what reads are answered from."""
        self._index = index
        self._on_append: Callable[[int], None] = lambda byte_count: None
        self._on_remove: Callable[[Collection[int]], None] = lambda sequences: None
        self._is_loaded = False
        self.counts = self._committed = Counts()
        """Of the running transaction."""
        self.by_id: dict[str, EventReceipt] = {}
        """What the running transaction has stored so far; so is `by_key`."""
        self.by_key: dict[KeyTexts, EventReceipt] = {}
        self.removed: set[int] = set()
        """What it has removed."""
        self._rows: list[tuple[int, Sequence[EventRow]]] = []
        self._byte_count = 0
        self._files: tuple[FileNames, FileNames] = {}, {}
        self._new_files: FileNames | None = None
        self._is_listed = True

    def file_names(self, segment_id: int) -> list[str]:
        """The file of a sealed segment, and, where the list of segments changed last, the one before.

        Until the index knows the new file, its places are those of the old one, and so long that one is there.
        """
        return list(dict.fromkeys(files[segment_id] for files in self._files if segment_id in files))

    def listen(self, on_append: Callable[[int], None], on_remove: Callable[[Collection[int]], None]) -> None:
        """Who is told after a commit of events, with the bytes of their frames, and after one of removals, with these.

        Neither may block. It is said before the first write.
        """
        self._on_append, self._on_remove = on_append, on_remove

    # Parts of a transaction

    def add(self, addition: Addition) -> None:
        """Takes what a call stored that can no longer fail by itself."""
        self.counts = addition.counts
        self.by_id.update(addition.by_id)
        self.by_key.update(addition.by_key)
        self._rows += addition.rows.items()
        self._byte_count += addition.byte_count

    def remove(self, sequences: Iterable[int]) -> None:
        """Takes what a call removed that can no longer fail by itself."""
        self.removed.update(sequences)

    def roll(self, connection: apsw.Connection, segment_id: int) -> None:
        """Ends a segment if it is open: the next event begins a new one."""
        opened = self.counts.opened
        if opened is not None and opened.segment_id == segment_id:
            timeline_segments.note_appended(connection, opened._replace(state=SegmentState.ROLLED))
            self.counts = self.counts._replace(opened=None)

    def relist(self) -> None:
        """The list of segments was changed; it is read again before the commit."""
        self._is_listed = False

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Takes up what is stored; after a failure, also what was committed although nobody was told so."""
        before = self._committed.sequence if self._is_loaded else None
        self.counts = Counts(timeline_tables.last_sequence(connection))
        self._list_segments(connection)
        if before is not None:
            self._catch_up(connection, before)
        self._is_loaded = True
        self._settle()

    def before_commit(self, connection: apsw.Connection) -> None:
        """Writes how far the timeline has come."""
        counts = self.counts
        if counts.sequence != self._committed.sequence:
            timeline_tables.set_last_sequence(connection, counts.sequence)
            if counts.opened is not None:
                timeline_segments.note_appended(connection, counts.opened)
        if not self._is_listed:
            self._list_segments(connection)

    def after_commit(self) -> None:
        """What was stored is found from now on, and what was removed is not."""
        byte_count, removed = self._byte_count, self.removed
        for segment_id, rows in self._rows:
            self._publish(segment_id, rows)
        if removed:
            self._index.mark_dead(removed)
        self._settle()
        if byte_count:
            self._on_append(byte_count)
        if removed:
            self._on_remove(removed)

    def after_rollback(self) -> None:
        """None of it happened."""
        self.counts, self._new_files = self._committed, None
        self._forget()

    def _list_segments(self, connection: apsw.Connection) -> None:
        rows = timeline_segments.segments(connection)
        opened = next((row for row in rows if row.state is SegmentState.OPEN), None)
        self.counts = self.counts._replace(opened=opened, segment_count=len(rows))
        self._new_files = {
            row.segment_id: segment_name(row.segment_id, row.generation) for row in rows if row.is_sealed
        }
        self._is_listed = True

    def _catch_up(self, connection: apsw.Connection, sequence: int) -> None:
        for segment in timeline_segments.segments(connection):
            after = sequence
            while rows := timeline_tables.event_rows(connection, segment, after=after, limit=ROWS_AT_ONCE):
                self._publish(segment.segment_id, [timeline_tables.index_row(row) for row in rows])
                after = rows[-1].sequence
            self._index.mark_dead(timeline_segments.dead_sequences(connection, segment.segment_id))

    def _publish(self, segment_id: int, rows: Sequence[EventRow]) -> None:
        if not self._index.has(segment_id):
            self._index.add_open(segment_id)
        self._index.append(segment_id, rows)

    def _settle(self) -> None:
        self._committed = self.counts
        if self._new_files is not None:
            self._files, self._new_files = (self._new_files, self._files[0]), None
        self._forget()

    def _forget(self) -> None:
        self.by_id, self.by_key, self.removed, self._rows, self._byte_count = {}, {}, set(), [], 0
        self._is_listed = True
