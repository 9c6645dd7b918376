"""Salvages a damaged segment: finds every intact event and the exact range of each damage."""

import contextlib
from array import array
from dataclasses import dataclass, field

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.events.format.files import ReadFile
from mnemon_server.engines.events.format.frame_scanner import FrameScanner
from mnemon_server.engines.events.format.frames import (
    FRAME_OVERHEAD,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
)
from mnemon_server.engines.events.format.layout import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Footer,
    SegmentHeader,
)

_PAGE_BYTES = 4 << 10


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of bytes that contains no valid data."""

    start: int
    end: int
    """Offset of the first byte after it."""
    problem: str
    after: int | None
    """Sequence of the last intact event before it; None if no event before it is intact."""
    before: int | None
    """Sequence of the first intact event after it; None if no event after it is intact."""


@dataclass(slots=True)
class Salvage:
    """The content of a file. Everything outside the damages is intact."""

    header: SegmentHeader | None
    """None if neither the header nor its copy is intact. Then nothing else can be read."""
    size: int
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    """Ascending offsets of the intact events, for `SegmentReader.read_many`."""
    sequences: "array[int]" = field(default_factory=lambda: array("Q"))
    """Sequences of the same events."""
    erased: "array[int]" = field(default_factory=lambda: array("Q"))
    """Sequences of events that were erased, whose frames are intact."""
    damages: list[Damage] = field(default_factory=list)
    """The damages in file order."""
    footer: Footer | None = None
    """None if the file was not sealed, or if its footer is damaged."""
    was_sealed: bool = False
    """Whether a part of the index or the footer was found."""

    @property
    def is_torn(self) -> bool:
        """Whether the only problem, if any, is an unsealed file that ends within a write."""
        return not self.was_sealed and all(it.start >= HEADER_BYTES and it.end == self.size for it in self.damages)


def salvage_frames(file: ReadFile, header: SegmentHeader | None, beginning: bytes) -> Salvage:
    """Reads a whole file, and continues after damage at the next intact frame.

    After damage, a frame is accepted if the checksums of header and body are correct and its sequence is above that of
    the previous event. The checksums include the file's random seed and the frame's offset. So other bytes look like a
    frame with a probability of 2^-88 per offset (24 bits of magic and version, two checksums of 32 bits), and a copy of
    one of the file's own frames is not accepted either.

    Args:
        file: must stay open during the call.
        header: the file's header, from any source. Without it, no frame can be accepted.
        beginning: the first bytes of the file, as many as a header has.
    """
    size = file.size()
    found = Salvage(header, size)
    if header is None:
        found.damages.append(Damage(0, size, "the file's header and its copy are damaged", None, None))
        return found
    walk = _Walk(file, header.seed, found)
    if beginning != header.encode():
        walk.open_damage(0, "the file's header is damaged")
    walk.run()
    return found


class _Walk:
    """One pass over a file."""

    def __init__(self, file: ReadFile, seed: int, found: Salvage) -> None:
        lenient = _LenientFile(file)
        self._found = found
        self._frames = FrameScanner(lenient, seed, found.size)
        self._starts = FrameScanner(lenient, seed, found.size)
        self._last: int | None = None
        self._open: tuple[int, str] | None = None

    def run(self) -> None:
        offset = HEADER_BYTES
        while offset < self._found.size:
            if run := self._frames.events_from(offset, self._last or 0):
                self._take_run(run)
                offset = run[-1].end
                continue
            try:
                header = self._sound_frame(offset)
            except FrameError as error:
                self.open_damage(offset, str(error))
                offset = self._next_frame(offset)
            else:
                self._close_damage(offset, header.sequence if header.type.is_of_event else None)
                self._take(header, offset)
                offset += FRAME_OVERHEAD + header.length
        self._close_damage(self._found.size, None)

    def open_damage(self, offset: int, problem: str) -> None:
        if self._open is None:
            self._open = offset, problem

    def _close_damage(self, end: int, before: int | None) -> None:
        if self._open is not None:
            start, problem = self._open
            self._found.damages.append(Damage(start, end, problem, self._last, before))
            self._open = None

    def _sound_frame(self, offset: int) -> FrameHeader:
        header, body = self._frames.frame_at(offset)
        last = self._last or 0
        if header.sequence < last or (header.type.is_of_event and header.sequence == last):
            raise FrameError(f"event {header.sequence} follows event {last}")
        if header.type is FrameType.FOOTER:
            self._check_footer(header, body, offset)
        return header

    def _check_footer(self, header: FrameHeader, body: bytes, offset: int) -> None:
        if FRAME_OVERHEAD + header.length != FOOTER_BYTES:
            raise FrameError("the footer has the wrong size")
        footer = Footer.decode(body)
        if not footer.is_consistent(offset):
            raise FrameError("the footer contradicts itself or the size of the file")
        self._found.footer = footer

    def _take(self, header: FrameHeader, offset: int) -> None:
        if not header.type.is_of_event:
            self._found.was_sealed = True
            return
        self._last = header.sequence
        if header.type is FrameType.ERASED:
            self._found.erased.append(header.sequence)
        else:
            self._found.offsets.append(offset)
            self._found.sequences.append(header.sequence)

    def _take_run(self, run: list[Frame]) -> None:
        self._close_damage(run[0].offset, run[0].sequence)
        self._found.offsets.extend(frame.offset for frame in run)
        self._found.sequences.extend(frame.sequence for frame in run)
        self._last = run[-1].sequence

    def _next_frame(self, damaged: int) -> int:
        """The offset of the next intact frame, or the end of the file."""
        with contextlib.suppress(FrameError):
            # If only the body is damaged, its length is known, and no frame is searched within it.
            behind = damaged + FRAME_OVERHEAD + self._frames.header_at(damaged).length
            self._sound_frame(behind)
            return behind
        offset = damaged + 1
        while (offset := self._starts.find_start(offset)) >= 0:
            with contextlib.suppress(FrameError):
                self._sound_frame(offset)
                return offset
            offset += 1
        return self._found.size


class _LenientFile:
    """A file that returns zeros for unreadable pages. The checksums then detect them as damage."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file

    def pread(self, size: int, offset: int) -> bytes:
        try:
            return self._file.pread(size, offset)
        except StorageFailedError:
            return b"".join(self._pages(size, offset))

    def _pages(self, size: int, offset: int) -> list[bytes]:
        end = min(offset + size, self._file.size())
        pages: list[bytes] = []
        while offset < end:
            page = min(_PAGE_BYTES - offset % _PAGE_BYTES, end - offset)
            try:
                pages.append(self._file.pread(page, offset))
            except StorageFailedError:
                pages.append(bytes(page))
            offset += page
        return pages

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
