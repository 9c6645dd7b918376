"""Erases removed events: overwrites their bytes in the files of sealed segments and in copies of damaged ones."""

from collections.abc import Collection, Mapping

from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.format.frames import FRAME_OVERHEAD, erased_frame
from mnemon_server.engines.events.format.layout import SegmentDamagedError, segment_name
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.upkeep import quarantine as copies
from mnemon_server.engines.events.upkeep.manifest import Manifest, SegmentRow


class Erasing:
    """Overwrites removed events in sealed files, long before compaction rewrites these files without them.

    The marks in records.db stay until then, so events that were overwritten when the process ended are overwritten
    once more. For the maintenance thread; any thread may call `counts`.
    """

    def __init__(self, files: Files, quarantine: Files, manifest: Manifest, index: TimelineIndex) -> None:
        self._files = files
        self._quarantine = quarantine
        self._manifest = manifest
        self._index = index
        self._erased: Mapping[tuple[int, int], Collection[int]] = {}

    def counts(self) -> dict[tuple[int, int], int]:
        """By segment and generation: how many of the marked events are no longer in the file."""
        return {file: len(erased) for file, erased in self._erased.items()}

    def erase(self, row: SegmentRow) -> None:
        """Overwrites the removed events of a sealed segment in its file, and in copies of it.

        No other byte is written. So if the process is killed meanwhile, all other events are intact, and a repetition
        has the same result.

        Raises:
            SegmentDamagedError: the file must be repaired first.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        file = row.segment_id, row.generation
        dead = set(self._manifest.dead(row.segment_id))
        fresh = dead.difference(self._erased.get(file, ()))
        if not fresh:
            return
        copies.erase(self._quarantine, self._manifest.epoch, {row: fresh})
        pieces = [
            (offset, erased_frame(row.seed, offset, sequence, size - FRAME_OVERHEAD))
            for sequence, offset, size in self._frames(row, fresh)
        ]
        self._files.overwrite(segment_name(*file), pieces)
        current = {(one.segment_id, one.generation) for one in self._manifest.segments()}
        # Replaced instead of changed, because other threads read it.
        self._erased = {one: erased for one, erased in self._erased.items() if one in current} | {file: dead}

    def _frames(self, row: SegmentRow, sequences: Collection[int]) -> list[tuple[int, int, int]]:
        """Where these events are, by the index: an interrupted attempt may have left their headers incomplete."""
        name = segment_name(row.segment_id, row.generation)
        block = self._index.sealed_block(row.segment_id)
        if block.count != row.event_count:
            raise SegmentDamagedError(name, 0, "the index does not have all its events")
        with SegmentReader(self._files, name, epoch=self._manifest.epoch) as reader:
            reader.check_identity(row.seed, row.sha256)
            return block.frames_of(sequences, reader.footer.events_end)
