"""Periodic reading of all data, to find damage while it can still be repaired."""

import logging
from collections.abc import Callable, Generator

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.events.format.layout import SegmentDamagedError, SegmentFormatError
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.events.upkeep.store import SegmentStore, file_name

log = logging.getLogger(__name__)


def read_all(store: SegmentStore, repair: Callable[[int], None]) -> Generator[None]:
    """Reads every sealed segment, one per step; calls `repair` for each damaged one."""
    for segment_id in [row.segment_id for row in store.manifest.segments() if row.is_sealed]:
        row = store.find(segment_id)
        # A segment that was rewritten meanwhile has just been read back.
        if row is not None and row.is_sealed and not is_sound(store, row):
            repair(segment_id)
        yield


def is_sound(store: SegmentStore, row: SegmentRow) -> bool:
    """Whether the file of a sealed segment is byte for byte what was sealed, apart from events erased since."""
    try:
        with SegmentReader(store.files, file_name(row), epoch=store.manifest.epoch, uncached=True) as reader:
            reader.check_identity(row.seed, row.sha256)
            reader.verify(row.sha256, erased=set(store.manifest.dead(row.segment_id)))
    except (SegmentDamagedError, SegmentFormatError, StorageFailedError) as damage:
        log.warning("%s", damage)
        return False
    return True
