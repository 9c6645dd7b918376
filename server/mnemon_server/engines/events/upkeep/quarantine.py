"""Erases removed events from the copies of damaged segments."""

import contextlib
import logging
from collections.abc import Collection, Mapping

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.events.format.files import Files, ReadFile
from mnemon_server.engines.events.format.frames import FRAME_HEADER_BYTES, erased_frame, parse_frame_header
from mnemon_server.engines.events.format.layout import (
    HEADER_BYTES,
    SegmentDamagedError,
    SegmentFormatError,
    SegmentHeader,
    parse_segment_name,
)
from mnemon_server.engines.events.format.salvage import salvage_frames
from mnemon_server.engines.events.upkeep.manifest import SegmentRow

log = logging.getLogger(__name__)


def erase(quarantine: Files, epoch: bytes, erased: Mapping[SegmentRow, Collection[int]]) -> None:
    """Removes events from the copies of their segments.

    If an event is found, its bytes are overwritten, and the rest of the copy stays for an examination of the damage. If
    it is not found, it may be in the damaged part, so the copy is deleted; the segment has all intact events of the
    copy.

    Args:
        quarantine: the folder of the copies.
        epoch: the vault's epoch digest; files of other vaults are ignored.
        erased: removed events by the segment in records.db.

    Raises:
        StorageFullError: the disk is full.
        StorageFailedError: a copy can neither be read or written, nor be deleted.
    """
    for row, sequences in erased.items():
        for name in quarantine.names() if sequences else ():
            first = (parse_segment_name(name) or (0, 0))[0]
            # Copies of merged segments have their former numbers.
            if row.segment_id <= first <= row.last_sequence:
                try:
                    _erase_in(quarantine, name, epoch, {one for one in sequences if one >= first})
                except StorageFailedError:
                    _remove(quarantine, name)


def discard_plain(quarantine: Files) -> None:
    """Deletes the copies of segments that are not encrypted. Their intact events are in the timeline.

    Raises:
        StorageFailedError: one can neither be read nor be deleted.
    """
    for name in quarantine.names():
        if parse_segment_name(name) is not None and not _is_encrypted(quarantine, name):
            quarantine.unlink(name)
            quarantine.sync_folder()
            log.warning("%s was deleted from the quarantine: it was not encrypted", name)


def _is_encrypted(quarantine: Files, name: str) -> bool:
    with contextlib.closing(quarantine.open_read(name)) as file:
        header = _header(name, file)
    return header is not None and header.is_encrypted


def _erase_in(quarantine: Files, name: str, epoch: bytes, sequences: Collection[int]) -> None:
    with contextlib.closing(quarantine.open_read(name)) as file:
        header = _header(name, file)
        if header is not None and header.epoch != epoch:
            return
        salvage = salvage_frames(file, header, file.pread(HEADER_BYTES, 0))
        if salvage.footer is not None:
            sequences = {one for one in sequences if one <= salvage.footer.last_sequence}
        found = [(one, at) for one, at in zip(salvage.sequences, salvage.offsets, strict=True) if one in sequences]
        if header is None or (salvage.damages and len(found) < len(set(sequences).difference(salvage.erased))):
            _remove(quarantine, name)
        elif found:
            quarantine.overwrite(name, [(at, _erased(file, header.seed, at)) for _, at in found])


def _remove(quarantine: Files, name: str) -> None:
    quarantine.unlink(name)
    quarantine.sync_folder()
    log.warning("%s was deleted from the quarantine: it may contain a removed event", name)


def _header(name: str, file: ReadFile) -> SegmentHeader | None:
    with contextlib.suppress(SegmentDamagedError, SegmentFormatError):
        return SegmentHeader.decode(name, file.pread(HEADER_BYTES, 0))
    return None


def _erased(file: ReadFile, seed: int, offset: int) -> bytes:
    """What replaces an intact frame."""
    header = parse_frame_header(seed, offset, file.pread(FRAME_HEADER_BYTES, offset), 0)
    return erased_frame(seed, offset, header.sequence, header.length)
