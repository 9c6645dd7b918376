"""Repairs a damaged segment: intact events are written to a new file, and losses are determined exactly."""

import contextlib
import errno
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.format.bodies import Bodies
from mnemon_server.engines.events.format.files import ReadFile
from mnemon_server.engines.events.format.frames import (
    FRAME_CHECKSUM_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_OVERHEAD,
    FrameType,
    parse_body,
    parse_frame_header,
)
from mnemon_server.engines.events.format.layout import (
    HEADER_BYTES,
    SegmentDamagedError,
    SegmentFormatError,
)
from mnemon_server.engines.events.format.salvage import Damage, Salvage, salvage_frames
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.index.columns import IndexFrameError, decode_index
from mnemon_server.engines.events.index.event_rows import event_row
from mnemon_server.engines.events.index.rows import EventRow
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.upkeep.losses import Lost, lost_of_known, lost_of_unknown
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.events.upkeep.recovery import load_block
from mnemon_server.engines.events.upkeep.rewriting import Rewriting
from mnemon_server.engines.events.upkeep.scrubbing import is_sound
from mnemon_server.engines.events.upkeep.store import UNREADABLE_SUFFIX, SegmentStore, Swap, file_name
from mnemon_server.engines.events.upkeep.warning_texts import repaired_warning

log = logging.getLogger(__name__)

_RUN = 500
_LOST = frozenset({errno.ENOENT, errno.EIO, errno.EBADMSG})
"""Errors that mean loss. After any other error on opening, such as too many open files, the file may be intact."""


@dataclass(slots=True)
class _Findings:
    """The remains of a damaged segment."""

    row: SegmentRow
    file: ReadFile | None
    """None if there is no file."""
    bodies: Bodies
    offsets: dict[int, int]
    """Offsets of the intact events in the file, by sequence."""
    damages: Sequence[Damage]
    rows: dict[int, bytes]
    """Bodies of its events that are still in records.db."""
    gone: set[int]
    """Events that had been removed."""
    held: Sequence[int] | None = None
    """The ascending sequences of all its original events; None if they are unknown."""

    @property
    def alive(self) -> list[int]:
        """The ascending sequences of the events to keep."""
        return sorted((self.offsets.keys() | self.rows.keys()) - self.gone)

    def lost(self) -> list[Lost]:
        """The lost events."""
        found = self.offsets.keys() | self.rows.keys()
        if self.held is None:
            return lost_of_unknown(self.row, self.damages, sorted(found), self.gone)
        return lost_of_known(self.held, set(self.held) - found - self.gone)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """The events to keep."""
        for sequence in self.alive:
            body = self.rows.get(sequence)
            yield sequence, self._body(sequence) if body is None else body

    def index_rows(self) -> list[EventRow]:
        """Index rows of the events to keep, at their offsets in the damaged file."""
        alive = set(self.alive)
        return [event_row(one, self._body(one), at) for one, at in self.offsets.items() if one in alive]

    def _body(self, sequence: int) -> bytes:
        """The body of an intact frame. Reads no other bytes."""
        assert self.file is not None  # noqa: S101 - there are offsets
        offset, seed = self.offsets[sequence], self.row.seed
        header = parse_frame_header(seed, offset, self.file.pread(FRAME_HEADER_BYTES, offset), 0)
        stored = parse_body(header, self.file.pread(FRAME_OVERHEAD + header.length, offset), 0)
        return self.bodies.read(FrameType.EVENT, sequence, stored)


class Repairer:
    """Repairs sealed segments, on the maintenance thread."""

    def __init__(self, store: SegmentStore, clock: Clock) -> None:
        """`clock` gives the time at which a loss was noticed."""
        self._store = store
        self._clock = clock
        self._held_before: dict[int, list[int]] = {}

    def repair(self, row: SegmentRow) -> bool:
        """Reads a whole segment, and rewrites it if it is damaged; returns whether it was.

        If the new file cannot be written, intact events are read from the old file, and the error is raised.

        Raises:
            StorageFullError: the disk is too full for the new file.
            StorageFailedError: the disk failed.
        """
        if self._is_sound(row):
            return False
        with contextlib.ExitStack() as closing:
            findings = self._examine(row, closing)
            try:
                self._rewrite(findings)
            except (StorageFullError, StorageFailedError):
                self._keep_in_place(findings)
                raise
        return True

    def _is_sound(self, row: SegmentRow) -> bool:
        """Whether the file is unchanged since it was sealed. If so, its block is in the index."""
        store = self._store
        if not is_sound(store, row):
            return False
        if self._block(row) is None:
            try:
                block = load_block(store, row)
            except SegmentDamagedError as damage:
                log.warning("%s", damage)
                return False
            block.mark_dead(store.manifest.dead(row.segment_id))
            store.index.swap([row.segment_id], block)
        return True

    def _examine(self, row: SegmentRow, closing: contextlib.ExitStack) -> _Findings:
        store = self._store
        file, salvage = self._salvage(row, closing)
        assert salvage.header is not None  # noqa: S101 - it is reconstructed
        findings = _Findings(
            row=row,
            file=file,
            bodies=Bodies(salvage.header, store.files.cipher),
            offsets=dict(zip(salvage.sequences, salvage.offsets, strict=True)),
            damages=salvage.damages,
            rows=self._rows(row),
            gone=set(store.manifest.dead(row.segment_id)),
            held=self._held(row),
        )
        if findings.held is not None:
            held = set(findings.held)
            findings.offsets = {one: at for one, at in findings.offsets.items() if one in held}
        return findings

    def _salvage(self, row: SegmentRow, closing: contextlib.ExitStack) -> tuple[ReadFile | None, Salvage]:
        """The intact parts of the file. The header is reconstructed, so it need not be intact."""
        store = self._store
        headers = [store.header(row, is_encrypted=flag) for flag in (store.encrypts, not store.encrypts)]
        try:
            file = store.files.open_read(file_name(row), uncached=True)
        except StorageFailedError as error:
            if not _is_lost(error):
                raise
            return None, Salvage(headers[0], 0, damages=[Damage(0, 0, "the file is missing", None, None)])
        closing.callback(file.close)
        found = _piece(file, 0), _piece(file, file.size() - FRAME_CHECKSUM_BYTES - HEADER_BYTES)
        header = next((each for each in headers if each.encode() in found), headers[0])
        return file, salvage_frames(file, header, found[0])

    def _rows(self, row: SegmentRow) -> dict[int, bytes]:
        rows: dict[int, bytes] = {}
        after = 0
        while events := self._store.manifest.bodies(row.segment_id, after):
            rows.update(events)
            after = events[-1][0]
        return rows

    def _held(self, row: SegmentRow) -> list[int] | None:
        """All sequences of the segment, from the index in memory or in the file."""
        block = self._block(row) or self._stored_block(row)
        if block is not None and block.count == row.event_count:
            # If a first attempt fails, the block in memory has only the intact events.
            self._held_before[row.segment_id] = block.all_sequences()
        return self._held_before.get(row.segment_id)

    def _block(self, row: SegmentRow) -> SealedBlock | None:
        """The block in memory, if it has all events of the segment."""
        try:
            block = self._store.index.sealed_block(row.segment_id)
        except KeyError:
            return None
        return block if block.count == row.event_count else None

    def _stored_block(self, row: SegmentRow) -> SealedBlock | None:
        store = self._store
        try:
            with SegmentReader(store.files, file_name(row), epoch=store.manifest.epoch) as reader:
                reader.check_identity(row.seed, row.sha256)
                return decode_index(reader.index(), store.index.interners)
        except (SegmentDamagedError, SegmentFormatError, StorageFailedError, IndexFrameError):
            return None

    def _rewrite(self, findings: _Findings) -> None:
        row, store = findings.row, self._store
        name = file_name(row)
        is_there = name in store.files.names()
        is_copied = is_there and store.set_aside(name)
        kept_at = "in the quarantine" if is_copied else f"beside the others, as {name}{UNREADABLE_SUFFIX}"
        added = self._write(findings) if findings.alive else None
        lost = tuple(run.of(row.segment_id, self._clock()) for run in findings.lost())
        swap = Swap(
            removed=[row],
            added=added,
            erased={row.segment_id: sorted(findings.gone)},
            lost=lost,
            warning=repaired_warning(row, lost, kept_at if is_there else ""),
            keeps_files=is_there and not is_copied,
        )
        store.swap(swap)
        self._held_before.pop(row.segment_id, None)

    def _write(self, findings: _Findings) -> tuple[SegmentRow, SealedBlock] | None:
        block = self._block(findings.row)
        rewriting = Rewriting(self._store, findings.row, None if block is None else block.in_order(block.segment_id))
        try:
            for run in _runs(findings.events()):
                rewriting.add(run)
            return rewriting.finish()
        except BaseException:
            rewriting.abandon()
            raise

    def _keep_in_place(self, findings: _Findings) -> None:
        """Makes intact events readable in the damaged file, until there is room for a new one."""
        index = self._store.index
        block = SealedBlock.from_rows(findings.row.segment_id, findings.index_rows(), index.interners)
        index.swap([findings.row.segment_id], block)


def _runs(events: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    while run := list(islice(events, _RUN)):
        yield run


def _is_lost(error: StorageFailedError) -> bool:
    """Whether a file that could not be opened is missing, or cannot be read from the disk."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _LOST


def _piece(file: ReadFile, offset: int) -> bytes:
    """As many bytes as a header has."""
    try:
        return file.pread(HEADER_BYTES, max(0, offset))
    except StorageFailedError:
        return b""
