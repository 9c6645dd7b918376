"""The manifest of a timeline in records.db; see `engines/events/upkeep/manifest.py`."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import apsw

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.engines.events.format.layout import epoch_digest
from mnemon_server.engines.events.index.rows import EventRow
from mnemon_server.engines.events.rows import segments as timeline_segments
from mnemon_server.engines.events.rows import tables as timeline_tables
from mnemon_server.engines.events.rows.ledger import Ledger
from mnemon_server.engines.events.rows.prunes import note_health
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentRow, SyncedFile
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal

T = TypeVar("T")

_ROWS_AT_ONCE = 5_000


class SQLiteManifest:
    """See Manifest. It follows transactions (see Follower), so that noted values are written with the next one."""

    def __init__(self, journal: Journal, ledger: Ledger, connections: Connections) -> None:
        self._journal = journal
        self._ledger = ledger
        self._connections = connections
        self._lock = threading.Lock()
        self._noted: dict[int, SyncedFile] = {}
        self._writing: dict[int, SyncedFile] = {}

    @property
    def epoch(self) -> bytes:
        """See Manifest."""
        return epoch_digest(self._journal.origin)

    # Reads

    def is_warned(self) -> bool:
        """See Manifest."""
        with self._connections.lend() as connection:
            return timeline_segments.is_warned(connection)

    def segments(self) -> list[SegmentRow]:
        """See Manifest."""
        with self._connections.lend() as connection:
            return timeline_segments.segments(connection)

    def bodies(self, segment_id: int, after: int) -> list[tuple[int, bytes]]:
        """See Manifest."""
        recent = self._ledger.recent.after(segment_id, after)
        return [(row.sequence, row.body) for row in self._rows(segment_id, after)] if recent is None else recent

    def index_rows(self, segment_id: int) -> Iterator[Sequence[EventRow]]:
        """See Manifest."""
        after = 0
        while rows := self._rows(segment_id, after):
            yield [timeline_tables.index_row(row) for row in rows]
            after = rows[-1].sequence

    def dead(self, segment_id: int) -> list[int]:
        """See Manifest."""
        with self._connections.lend() as connection:
            return timeline_segments.dead_sequences(connection, segment_id)

    def dead_counts(self) -> dict[int, int]:
        """See Manifest."""
        with self._connections.lend() as connection:
            return timeline_segments.dead_counts(connection)

    # Writes

    def note_synced(self, synced: SyncedFile) -> None:
        """See Manifest."""
        with self._lock:
            self._noted[synced.segment_id] = synced

    def flush(self) -> None:
        """See Manifest."""
        with self._lock:
            nothing = not self._noted and not self._writing
        if not nothing:
            self._run(lambda connection: None)

    def roll(self, segment_id: int) -> None:
        """See Manifest."""
        self._run(lambda connection: self._ledger.roll(connection, segment_id))

    def commit(self, change: Change) -> None:
        """See Manifest."""
        changed = {row.segment_id for row in change.put} | set(change.dropped)
        if change.synced is not None:
            changed.add(change.synced.segment_id)
        with self._lock:
            # Values noted for the previous file do not apply to the new one.
            for segment_id in changed:
                self._noted.pop(segment_id, None)
        self._run(lambda connection: self._change(connection, change))

    def delete_sealed_rows(self) -> bool:
        """See Manifest."""
        with self._connections.lend() as connection:
            if not timeline_tables.has_sealed_rows(connection):
                return False
        return bool(self._run(timeline_tables.delete_sealed_rows))

    def _rows(self, segment_id: int, after: int) -> list[timeline_tables.TimelineRow]:
        with self._connections.lend() as connection:
            segment = timeline_segments.find_segment(connection, segment_id)
            if segment is None:
                return []
            return timeline_tables.event_rows(connection, segment, after=after, limit=_ROWS_AT_ONCE)

    def _run(self, job: Any) -> Any:
        done: Future[Any] = self._connections.submit(job)
        return done.result()

    def _change(self, connection: apsw.Connection, change: Change) -> None:
        for segment_id, sequences in change.erased.items():
            timeline_segments.forget_dead(connection, segment_id, sequences)
        timeline_segments.drop_segments(connection, change.dropped, joined_into=change.joined_into)
        for row in change.put:
            timeline_segments.put_segment(connection, row)
        if change.synced is not None:
            timeline_segments.note_synced(connection, change.synced)
        timeline_segments.note_lost(connection, change.lost)
        if change.scrub_time is not None:
            timeline_segments.set_scrub_time(connection, to_microseconds(change.scrub_time))
        self._ledger.relist()
        if change.warning is not None:
            note_health(connection, self._journal, change.warning)
        if change.healthy:
            note_health(connection, self._journal, None)

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Keeps the noted values, also after a failure."""
        self.after_rollback()

    def before_commit(self, connection: apsw.Connection) -> None:
        """Writes the noted values."""
        if not self._noted:
            return
        with self._lock:
            self._writing, self._noted = self._noted, {}
        for synced in self._writing.values():
            timeline_segments.note_synced(connection, synced)

    def after_commit(self) -> None:
        """Discards the noted values, which are stored now."""
        self._writing = {}

    def after_rollback(self) -> None:
        """Keeps the noted values for the next transaction."""
        with self._lock:
            self._noted = {**self._writing, **self._noted}
            self._writing = {}
