"""The segments of a vault as files, records.db and index know them, and how all three are changed together."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mnemon_server.domain.episodic import LostRange
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.promises.timeline import TimelineWarning
from mnemon_server.engines.timeline.format.files import Files
from mnemon_server.engines.timeline.format.layout import SegmentHeader, segment_name
from mnemon_server.engines.timeline.format.readers import ReaderCache
from mnemon_server.engines.timeline.index.index import TimelineIndex
from mnemon_server.engines.timeline.index.sealed_block import SealedBlock
from mnemon_server.engines.timeline.upkeep.manifest import Change, Manifest, SegmentRow
from mnemon_server.engines.timeline.upkeep.quarantine import erase

UNREADABLE_SUFFIX = ".unreadable"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Sealed segments as they were, and what takes their place: one segment, or nothing."""

    removed: Sequence[SegmentRow]
    added: tuple[SegmentRow, SealedBlock] | None
    erased: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By segment of `removed`, removed events that are not in the new file."""
    lost: tuple[LostRange, ...] = ()
    warning: TimelineWarning | None = None
    keeps_files: bool = False
    """The old files are damaged, and could not be copied: they stay, under another name."""

    @property
    def change(self) -> Change:
        """What records.db is told."""
        kept = self.added[0].segment_id if self.added else None
        return Change(
            put=(self.added[0],) if self.added else (),
            dropped=tuple(row.segment_id for row in self.removed if row.segment_id != kept),
            joined_into=kept,
            erased=self.erased,
            lost=self.lost,
            warning=self.warning,
        )


class SegmentStore:
    """What the keeper works on. Only its thread changes anything; any thread may read through `readers`.

    A new file is complete and on the disk before records.db names it, and an old one is removed after that. A power
    cut leaves files that records.db does not name, and nothing else.
    """

    def __init__(self, files: Files, quarantine: Files, manifest: Manifest, index: TimelineIndex) -> None:
        self.files = files
        self.quarantine = quarantine
        self.manifest = manifest
        self.index = index
        self.readers = ReaderCache(files, manifest.epoch)
        self._unsettled: Swap | None = None

    def find(self, segment_id: int) -> SegmentRow | None:
        """What records.db says of a segment now; None where there is no such segment."""
        return next((row for row in self.manifest.segments() if row.segment_id == segment_id), None)

    def new_header(self, row: SegmentRow, generation: int) -> SegmentHeader:
        """The header of a new file of a segment."""
        return SegmentHeader.new(
            epoch=self.manifest.epoch,
            first_sequence=row.segment_id,
            generation=generation,
            created_us=row.create_time_us,
        )

    def header(self, row: SegmentRow) -> SegmentHeader:
        """What the header of a segment's file must be."""
        return SegmentHeader(self.manifest.epoch, row.segment_id, row.generation, row.create_time_us, row.seed)

    def set_aside(self, name: str) -> bool:
        """Copies a file into the quarantine, and leaves it where it is; False where it cannot be read.

        Raises:
            StorageFullError: no space is left.
        """
        try:
            self.files.copy_to(name, self.quarantine)
        except StorageFailedError:
            log.warning("%s could not be copied into the quarantine", name)
            return False
        log.warning("a copy of %s is in the quarantine", name)
        return True

    def discard(self, name: str) -> None:
        """Removes a file that nothing names any more."""
        self.files.unlink(name)

    def swap(self, swap: Swap) -> None:
        """Puts a rewritten segment, whose file is complete, in the place of others.

        Where the transaction fails nobody may know whether it happened: `settle` finds out, once records.db works.
        """
        # Before records.db forgets that these are to go, so that a crash in between forgets nothing.
        erase(self.quarantine, self.manifest.epoch, {row: swap.erased.get(row.segment_id, ()) for row in swap.removed})
        self._unsettled = swap
        self.manifest.commit(swap.change)
        self._finish(swap)

    def settle(self) -> None:
        """Brings files and index in line with records.db where the last `swap` was cut off.

        Raises:
            StorageFullError: as the transaction does that finds out whether records.db works.
            StorageFailedError: likewise.
        """
        swap = self._unsettled
        if swap is None:
            return
        self.manifest.commit(Change())
        known = {(row.segment_id, row.generation, row.state) for row in self.manifest.segments()}
        done = not any((row.segment_id, row.generation, row.state) in known for row in swap.removed)
        if done:
            self._finish(swap)
        elif swap.added and swap.added[0].generation not in {row.generation for row in swap.removed}:
            self.discard(file_name(swap.added[0]))
        self._unsettled = None

    def _finish(self, swap: Swap) -> None:
        self.index.swap([row.segment_id for row in swap.removed], swap.added[1] if swap.added else None)
        kept = file_name(swap.added[0]) if swap.added else None
        for row in swap.removed:
            if (name := file_name(row)) != kept:
                self.readers.forget(name)
                if swap.keeps_files:
                    self.files.rename(name, name + UNREADABLE_SUFFIX)
                else:
                    self.discard(name)
        self._unsettled = None


def file_name(row: SegmentRow) -> str:
    """The name of a segment's file."""
    return segment_name(row.segment_id, row.generation)
