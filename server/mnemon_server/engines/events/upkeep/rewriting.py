"""Rewrites a segment as the next generation of its file."""

from array import array
from collections.abc import Sequence

import numpy as np

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.events.format.layout import SegmentDamagedError, segment_name
from mnemon_server.engines.events.format.segment_writer import SealedFile, SegmentSummary, SegmentWriter
from mnemon_server.engines.events.index.columns import encode_index
from mnemon_server.engines.events.index.event_rows import event_row
from mnemon_server.engines.events.index.open_block import OpenColumns
from mnemon_server.engines.events.index.rows import EventRow
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.selection import rows_numbered
from mnemon_server.engines.events.upkeep.manifest import SegmentRow, SegmentState
from mnemon_server.engines.events.upkeep.store import SegmentStore, file_name

DRAFT_SUFFIX = ".tmp"


class Rewriting:
    """A new sealed file, written event by event. It gets its name once it is complete and was read back."""

    def __init__(self, store: SegmentStore, row: SegmentRow, known: OpenColumns | None) -> None:
        """Starts the next generation of `row`'s file.

        Args:
            store: the segments.
            row: the segment.
            known: index columns of the events to come, and possibly others, by ascending sequence relative to the
                segment's first; None if they must be computed from the bodies, which takes time.
        """
        self._store = store
        self._row = row
        self._known = known
        self._generation = row.generation + 1
        self._name = segment_name(row.segment_id, self._generation)
        self._draft = self._name + DRAFT_SUFFIX
        store.discard(self._draft)
        self._writer = SegmentWriter.create(store.files, self._draft, store.new_header(row, self._generation))
        self._rows: list[EventRow] = []
        self._sequences = array("q")
        self._offsets = array("I")

    def add(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Adds events: (sequence, body), ascending.

        Raises:
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        offsets = self._writer.append_many(events)
        self._sequences.extend(sequence for sequence, _ in events)
        self._offsets.extend(offsets)
        if self._known is None:
            self._rows += [event_row(*event, offset) for event, offset in zip(events, offsets, strict=True)]

    def finish(self) -> tuple[SegmentRow, SealedBlock] | None:
        """Seals the file; None, without a file, if no events were added.

        Raises:
            SegmentDamagedError: the index does not match the events.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed, or the data read back differs from the data written.
        """
        if not self._sequences:
            self.abandon()
            return None
        block = self._block()
        try:
            sealed = seal_file(self._writer, block)
        except SegmentDamagedError as damage:
            # The stored files are intact, so this is not a case for repair.
            raise StorageFailedError(str(damage)) from damage
        self._store.files.rename(self._draft, self._name)
        self._store.files.sync_folder()
        header = self._writer.header
        return sealed_row(self._row._replace(generation=self._generation, seed=header.seed), sealed), block

    def _block(self) -> SealedBlock:
        segment_id, interners = self._row.segment_id, self._store.index.interners
        if self._known is None:
            return SealedBlock.from_rows(segment_id, self._rows, interners)
        deltas = np.frombuffer(self._sequences, np.int64) - segment_id
        columns = self._known.where(rows_numbered(self._known.deltas, deltas))
        if not np.array_equal(columns.deltas, deltas):
            raise SegmentDamagedError(file_name(self._row), 0, "the index in memory belongs to other events")
        return SealedBlock.from_columns(segment_id, columns, np.frombuffer(self._offsets, np.uint32), interners)

    def abandon(self) -> None:
        """Deletes the unfinished file."""
        self._writer.close()
        self._store.discard(self._draft)


def seal_file(writer: SegmentWriter, block: SealedBlock) -> SealedFile:
    """Seals the file with a block's events; see `SegmentWriter.seal`."""
    return writer.seal(encode_index(block), SegmentSummary(block.count, block.min_time, block.max_time))


def sealed_row(row: SegmentRow, sealed: SealedFile) -> SegmentRow:
    """The row of a sealed segment for records.db."""
    footer = sealed.footer
    return row._replace(
        state=SegmentState.SEALED,
        first_sequence=footer.first_sequence,
        last_sequence=footer.last_sequence,
        event_count=footer.event_count,
        byte_count=sealed.size,
        synced_offset=sealed.size,
        synced_sequence=footer.last_sequence,
        min_time_us=footer.min_time_us,
        max_time_us=footer.max_time_us,
        sha256=sealed.sha256,
    )
