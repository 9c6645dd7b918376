"""The counts of the timeline's writes, and the index updates that become visible with their commits."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import apsw

from mnemon_server.engines.events.format.layout import segment_name
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import EventRow
from mnemon_server.engines.events.rows import segments as timeline_segments
from mnemon_server.engines.events.rows import tables as timeline_tables
from mnemon_server.engines.events.rows.incoming import KeyTexts, KnownEvent
from mnemon_server.engines.events.rows.recent import RecentBodies
from mnemon_server.engines.events.rows.tables import EventValues
from mnemon_server.engines.events.upkeep.manifest import SegmentRow, SegmentState

ROWS_AT_ONCE = 5_000

FileNames: TypeAlias = dict[int, str]
"""File names by segment."""


class Counts(NamedTuple):
    """The state of the timeline."""

    sequence: int = 0
    """The last assigned sequence."""
    opened: SegmentRow | None = None
    """The open segment. records.db may have newer information about its file."""
    segment_count: int = 0


class Addition(NamedTuple):
    """The effects of one call that stores events."""

    counts: Counts
    """Afterwards."""
    rows: dict[int, list[EventRow]]
    """By segment, ascending."""
    by_id: dict[str, KnownEvent]
    by_key: dict[KeyTexts, KnownEvent]
    stored: list[EventValues]
    """As they are in the table, ascending."""
    byte_count: int
    """Total size of the frames in bytes."""


class Ledger:
    """Follows the timeline's transactions; see Follower. Any thread may call `file_names`; everything else is for the
    writer's thread.

    Events are added to and removed from the index once their transaction is on stable storage, before listeners are
    notified.
    """

    def __init__(self, index: TimelineIndex) -> None:
        """`index` is the index that reads use. The ledger is empty before `load`."""
        self._index = index
        self._on_append: Callable[[int], None] = lambda byte_count: None
        self._on_remove: Callable[[Collection[int]], None] = lambda sequences: None
        self._is_loaded = False
        self.counts = self._committed = Counts()
        """Effects of the running transaction."""
        self.by_id: dict[str, KnownEvent] = {}
        """Events that the running transaction has stored so far, by id; `by_key` has the same by key."""
        self.by_key: dict[KeyTexts, KnownEvent] = {}
        self.removed: set[int] = set()
        """Events that the running transaction has removed."""
        self.recent = RecentBodies()
        """Any thread may read from it."""
        self._rows: list[tuple[int, Sequence[EventRow]]] = []
        self._stored: list[EventValues] = []
        self._byte_count = 0
        self._files: tuple[FileNames, FileNames] = {}, {}
        self._new_files: FileNames | None = None
        self._is_listed = True

    def file_names(self, segment_id: int) -> list[str]:
        """The file of a sealed segment and, if the last change of the segment list replaced it, its previous file.

        Until the index has the new file, its offsets refer to the old one, which is kept until then.
        """
        return list(dict.fromkeys(files[segment_id] for files in self._files if segment_id in files))

    def listen(self, on_append: Callable[[int], None], on_remove: Callable[[Collection[int]], None]) -> None:
        """Sets the callbacks: after a commit with events, with the total size of their frames, and after one with
        removals, with the removed sequences.

        The callbacks must not block. Call this before the first write.
        """
        self._on_append, self._on_remove = on_append, on_remove

    # Within a transaction

    def add(self, addition: Addition) -> None:
        """Stages the events that a successful call has stored."""
        self.counts = addition.counts
        self.by_id.update(addition.by_id)
        self.by_key.update(addition.by_key)
        self._rows += addition.rows.items()
        self._stored += addition.stored
        self._byte_count += addition.byte_count

    def remove(self, sequences: Iterable[int]) -> None:
        """Stages the events that a successful call has removed."""
        self.removed.update(sequences)

    def roll(self, connection: apsw.Connection, segment_id: int) -> None:
        """Closes a segment if it is open, so that the next event starts a new one."""
        opened = self.counts.opened
        if opened is not None and opened.segment_id == segment_id:
            timeline_segments.note_appended(connection, opened._replace(state=SegmentState.ROLLED))
            self.counts = self.counts._replace(opened=None)

    def relist(self) -> None:
        """Marks the list of segments as changed, so that it is read again before the commit."""
        self._is_listed = False

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Loads the stored state. After a failure, this includes commits whose outcome was unknown."""
        before = self._committed.sequence if self._is_loaded else None
        self.counts = Counts(timeline_tables.last_sequence(connection))
        self._list_segments(connection)
        if before is not None:
            self._catch_up(connection, before)
        self._is_loaded = True
        self.recent.start(self.counts.sequence)
        self._settle()

    def before_commit(self, connection: apsw.Connection) -> None:
        """Stores the state of the timeline."""
        counts = self.counts
        if counts.sequence != self._committed.sequence:
            timeline_tables.set_last_sequence(connection, counts.sequence)
            if counts.opened is not None:
                timeline_segments.note_appended(connection, counts.opened)
        if not self._is_listed:
            self._list_segments(connection)

    def after_commit(self) -> None:
        """Updates the index: stored events become visible, removed ones are hidden."""
        byte_count, removed = self._byte_count, self.removed
        if removed:
            self.recent.start(self.counts.sequence)
        elif self._stored:
            self.recent.add(self._stored, byte_count)
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
        """Discards the staged effects."""
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
        self.by_id, self.by_key, self.removed, self._rows, self._stored = {}, {}, set(), [], []
        self._byte_count = 0
        self._is_listed = True
