"""The warm start: rebuilds the in-memory index from records.db and the files."""

import logging
from collections.abc import Callable, Iterable

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.format.layout import (
    SegmentDamagedError,
    SegmentFormatError,
    parse_segment_name,
)
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.index.columns import IndexFrameError, decode_index
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.events.upkeep.rewriting import DRAFT_SUFFIX
from mnemon_server.engines.events.upkeep.store import SegmentStore, file_name

log = logging.getLogger(__name__)


def load_block(store: SegmentStore, row: SegmentRow) -> SealedBlock:
    """Loads the block of a sealed segment from the index in its file, without reading events.

    Raises:
        SegmentDamagedError: the file is missing or unreadable, or its header, footer or index differs from what was
            sealed.
    """
    name = file_name(row)
    try:
        with SegmentReader(store.files, name, epoch=store.manifest.epoch) as reader:
            reader.check_identity(row.seed, row.sha256)
            block = decode_index(reader.index(), store.index.interners)
    except (StorageFailedError, SegmentFormatError, IndexFrameError) as error:
        raise SegmentDamagedError(name, 0, str(error)) from error
    if (block.segment_id, block.count, block.last_sequence) != (row.segment_id, row.event_count, row.last_sequence):
        raise SegmentDamagedError(name, 0, "its index has other events")
    return block


def load_index(store: SegmentStore, loaded: Callable[[], None]) -> list[SegmentRow]:
    """Fills the index; returns the sealed segments that could not be loaded.

    Args:
        store: the segments to load; its index is empty.
        loaded: called after each segment.
    """
    holed = store.manifest.dead_counts()
    sealed: list[SealedBlock] = []
    unsound: list[SegmentRow] = []
    for row in store.manifest.segments():
        if row.is_sealed:
            try:
                block = load_block(store, row)
            except SegmentDamagedError as damage:
                log.warning("%s", damage)
                unsound.append(row)
                continue
            if row.segment_id in holed:
                block.mark_dead(store.manifest.dead(row.segment_id))
            sealed.append(block)
        else:
            store.index.add_open(row.segment_id)
            for rows in store.manifest.index_rows(row.segment_id):
                store.index.append(row.segment_id, rows)
        loaded()
    # All at once, because each call visits all blocks.
    store.index.add_sealed(*sealed)
    return unsound


def tidy(store: SegmentStore, unsound: Iterable[SegmentRow]) -> None:
    """Cleans up files that are not in records.db.

    Deletes unfinished files and the remains of interrupted rewrites, whose events are in the current file. Moves all
    other files to the quarantine.
    """
    rows = store.manifest.segments()
    named = {file_name(row) for row in rows}
    spared = {row.segment_id for row in unsound}
    for name in store.files.names():
        if name not in named:
            _clear(store, name, is_remnant=name.endswith(DRAFT_SUFFIX) or _is_remnant(name, rows, spared))


def _clear(store: SegmentStore, name: str, *, is_remnant: bool) -> None:
    try:
        if is_remnant:
            log.info("%s is the remains of an interrupted rewrite and is deleted", name)
        elif not store.set_aside(name):
            return
        store.discard(name)
    except (StorageFullError, StorageFailedError) as error:
        log.warning("%s stays where it is: %s", name, error)


def _is_remnant(name: str, rows: Iterable[SegmentRow], spared: set[int]) -> bool:
    """Whether the file is another generation of an existing segment, or of one that was merged with others."""
    parsed = parse_segment_name(name)
    if parsed is None:
        return False
    owner = next((row for row in rows if row.segment_id <= parsed[0] <= row.last_sequence), None)
    return owner is not None and owner.segment_id not in spared
