"""The segments of a vault in files, records.db and the index, and changes that keep the three consistent."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.events import LostRange
from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.format.layout import (
    SegmentDamagedError,
    SegmentFormatError,
    SegmentHeader,
    segment_name,
)
from mnemon_server.engines.events.format.readers import ReaderCache
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.upkeep.erasing import Erasing
from mnemon_server.engines.events.upkeep.manifest import Change, Manifest, SegmentRow
from mnemon_server.engines.events.upkeep.quarantine import erase
from mnemon_server.engines.promises.events import EventsWarning

UNREADABLE_SUFFIX = ".unreadable"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A replacement of sealed segments by one segment, or by none."""

    removed: Sequence[SegmentRow]
    added: tuple[SegmentRow, SealedBlock] | None
    erased: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """For each segment of `removed`: removed events that are not in the new file."""
    lost: tuple[LostRange, ...] = ()
    warning: EventsWarning | None = None
    keeps_files: bool = False
    """The old files are damaged and could not be copied, so they are kept under another name."""

    @property
    def change(self) -> Change:
        """The change for records.db."""
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
    """The segments for the maintenance thread. Only that thread makes changes; any thread may read through `readers`.

    A new file is complete and synced before records.db refers to it, and an old file is deleted after that. So a power
    failure can only leave files that records.db does not refer to.
    """

    def __init__(self, files: Files, quarantine: Files, manifest: Manifest, index: TimelineIndex) -> None:
        self.files = files
        self.quarantine = quarantine
        self.manifest = manifest
        self.index = index
        self.readers = ReaderCache(files, manifest.epoch)
        self.erasing = Erasing(files, quarantine, manifest, index)
        self._unsettled: Swap | None = None

    @property
    def erasing_count(self) -> int:
        """The number of removed events in files that records.db no longer refers to, but that still exist."""
        swap = self._unsettled
        return sum(map(len, swap.erased.values())) if swap else 0

    def find(self, segment_id: int) -> SegmentRow | None:
        """The current row of a segment; None if it does not exist."""
        return next((row for row in self.manifest.segments() if row.segment_id == segment_id), None)

    def new_header(self, row: SegmentRow, generation: int) -> SegmentHeader:
        """The header of a new file of a segment."""
        return SegmentHeader.new(
            epoch=self.manifest.epoch,
            first_sequence=row.segment_id,
            generation=generation,
            created_us=row.create_time_us,
            is_encrypted=self.encrypts,
        )

    def header(self, row: SegmentRow, *, is_encrypted: bool) -> SegmentHeader:
        """The expected header of a segment's file. records.db does not know whether it is encrypted."""
        return SegmentHeader(
            self.manifest.epoch, row.segment_id, row.generation, row.create_time_us, row.seed, is_encrypted
        )

    @property
    def encrypts(self) -> bool:
        """Whether new files are encrypted."""
        return self.files.cipher is not None and self.files.cipher.is_for_new

    def must_encrypt(self, row: SegmentRow) -> bool:
        """Whether the file of a sealed segment should be encrypted with the vault's key, and is not; False if it is
        damaged.
        """
        cipher = self.files.cipher
        if cipher is None or not cipher.is_for_new:
            return False
        try:
            reader = self.readers.get(file_name(row))
            return not reader.header.is_encrypted or (
                cipher.former is not None and reader.is_encrypted_with(cipher.former)
            )
        except (SegmentDamagedError, SegmentFormatError, StorageFailedError):
            return False

    def set_aside(self, name: str) -> bool:
        """Copies a file into the quarantine; returns False if it cannot be read.

        Raises:
            StorageFullError: the disk is full.
        """
        try:
            self.files.copy_to(name, self.quarantine)
        except StorageFailedError:
            log.warning("%s could not be copied into the quarantine", name)
            return False
        log.warning("a copy of %s is in the quarantine", name)
        return True

    def discard(self, name: str) -> None:
        """Deletes a file that is no longer referred to."""
        self.files.unlink(name)

    def swap(self, swap: Swap) -> None:
        """Replaces segments by a rewritten one, whose file is complete. Events that were removed while it was written
        are overwritten in it.

        If the transaction fails, its outcome may be unknown; `settle` determines it once records.db works again.
        """
        # Before records.db deletes the marks, so that a crash in between does not lose them.
        erase(self.quarantine, self.manifest.epoch, {row: swap.erased.get(row.segment_id, ()) for row in swap.removed})
        self._unsettled = swap
        self.manifest.commit(swap.change)
        self._finish(swap)
        if swap.added:
            self.erasing.erase(swap.added[0])

    def settle(self) -> None:
        """Brings files and index in line with records.db after an interrupted `swap`.

        Raises:
            StorageFullError: the transaction that tests records.db failed with it.
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
