"""Writing a segment anew, as the next generation of its file."""

from array import array
from collections.abc import Sequence

import numpy as np

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.timeline.format.layout import SegmentDamagedError, segment_name
from mnemon_server.engines.timeline.format.segment_writer import SealedFile, SegmentSummary, SegmentWriter
from mnemon_server.engines.timeline.index.columns import encode_index
from mnemon_server.engines.timeline.index.event_rows import event_row
from mnemon_server.engines.timeline.index.open_block import OpenColumns
from mnemon_server.engines.timeline.index.rows import EventRow
from mnemon_server.engines.timeline.index.sealed_block import SealedBlock
from mnemon_server.engines.timeline.index.selection import rows_numbered
from mnemon_server.engines.timeline.upkeep.manifest import SegmentRow, SegmentState
from mnemon_server.engines.timeline.upkeep.store import SegmentStore, file_name

DRAFT_SUFFIX = ".tmp"


class Rewriting:
    """A sealed file of events that come in order; it gets its name once it is complete and was read back."""

    def __init__(self, store: SegmentStore, row: SegmentRow, known: OpenColumns | None) -> None:
        """Starts the file that follows `row`, in its segment.

        Args:
            store: where the file is to be.
            row: the segment.
            known: what the index knows of the events that will come, and maybe of others, by ascending sequence,
                counted from the segment's first; None where it has to be read from their bodies, which takes time.
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
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        offsets = self._writer.append_many(events)
        self._sequences.extend(sequence for sequence, _ in events)
        self._offsets.extend(offsets)
        if self._known is None:
            self._rows += [event_row(*event, offset) for event, offset in zip(events, offsets, strict=True)]

    def finish(self) -> tuple[SegmentRow, SealedBlock] | None:
        """Seals the file; None, and no file, where nothing was added.

        Raises:
            SegmentDamagedError: the index does not know the events.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed, or what was read back is not what was written.
        """
        if not self._sequences:
            self.abandon()
            return None
        block = self._block()
        try:
            sealed = seal_file(self._writer, block)
        except SegmentDamagedError as damage:
            # Nothing that is kept is damaged, and there is nothing to repair.
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
            raise SegmentDamagedError(file_name(self._row), 0, "the index in memory is that of other events")
        return SealedBlock.from_columns(segment_id, columns, np.frombuffer(self._offsets, np.uint32), interners)

    def abandon(self) -> None:
        """Gives the file up."""
        self._writer.close()
        self._store.discard(self._draft)


def seal_file(writer: SegmentWriter, block: SealedBlock) -> SealedFile:
    """Seals the file of a block's events; see `SegmentWriter.seal`."""
    return writer.seal(encode_index(block), SegmentSummary(block.count, block.min_time, block.max_time))


def sealed_row(row: SegmentRow, sealed: SealedFile) -> SegmentRow:
    """What records.db is to say of a segment that was sealed."""
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
