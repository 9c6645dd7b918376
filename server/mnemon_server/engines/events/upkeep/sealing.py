"""Sealing: completes the file of a segment that receives no more events, so that its rows can be deleted."""

import logging

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.format.layout import SegmentDamagedError
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.upkeep.active_files import ActiveFile, ActiveFiles
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.events.upkeep.rewriting import Rewriting, seal_file, sealed_row
from mnemon_server.engines.events.upkeep.store import SegmentStore, Swap

log = logging.getLogger(__name__)


def seal_segment(store: SegmentStore, active_files: ActiveFiles, row: SegmentRow) -> bool:
    """Seals a closed segment, whose rows may then be deleted. Returns False if the segment changed meanwhile; then
    retry.

    If events were removed from it, it is rewritten without them.

    Raises:
        StorageFullError: the disk is full.
        StorageFailedError: the disk failed, or the data read back differs from the data written.
    """
    store.manifest.roll(row.segment_id)
    if store.manifest.dead(row.segment_id):
        _rewrite_and_seal(store, row)
        active_files.forget(row.segment_id)
        return True
    return _seal_active(store, active_files, row)


def _seal_active(store: SegmentStore, active_files: ActiveFiles, row: SegmentRow) -> bool:
    file = active_files.write(row)
    opened = store.index.open_block(row.segment_id)
    if len(file.offsets) != opened.view().count:
        # Events were removed in the meantime.
        return False
    block = SealedBlock.from_open(opened, file.offsets)
    synced = _seal_file(active_files, file, row, block)
    store.swap(Swap(removed=[row], added=(synced, block)))
    active_files.forget(row.segment_id)
    log.info("sealed segment %d: %d events, %d bytes", row.segment_id, synced.event_count, synced.byte_count)
    return True


def _seal_file(active_files: ActiveFiles, file: ActiveFile, row: SegmentRow, block: SealedBlock) -> SegmentRow:
    header = file.writer.header
    try:
        sealed = seal_file(file.writer, block)
    except StorageFullError:
        active_files.forget(row.segment_id)
        raise
    except (StorageFailedError, SegmentDamagedError) as error:
        active_files.give_up(row.segment_id)
        raise StorageFailedError(str(error)) from error
    return sealed_row(row._replace(generation=header.generation, seed=header.seed), sealed)


def _rewrite_and_seal(store: SegmentStore, row: SegmentRow) -> None:
    """Writes the remaining rows to a new file."""
    rewriting = Rewriting(store, row, store.index.open_block(row.segment_id).view().columns)
    written: set[int] = set()
    after = 0
    try:
        while events := store.manifest.bodies(row.segment_id, after):
            rewriting.add(events)
            written.update(sequence for sequence, _ in events)
            after = events[-1][0]
        # Of the events that were removed meanwhile, only some were written.
        erased = [one for one in store.manifest.dead(row.segment_id) if one not in written]
        added = rewriting.finish()
    except SegmentDamagedError as damage:
        rewriting.abandon()
        raise StorageFailedError(str(damage)) from damage
    except BaseException:
        rewriting.abandon()
        raise
    store.swap(Swap(removed=[row], added=added, erased={row.segment_id: erased}))
