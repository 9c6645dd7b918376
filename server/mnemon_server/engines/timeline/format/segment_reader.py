"""Reading a segment: single events by their offset, all of them in order, or whatever damage has left of them."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from types import TracebackType
from typing import Self

from mnemon_server.engines.timeline.format.files import Files
from mnemon_server.engines.timeline.format.frame_scanner import CHUNK_BYTES, FrameScanner, close_runs
from mnemon_server.engines.timeline.format.frames import (
    BODY_MAX,
    FRAME_HEADER_BYTES,
    FRAME_OVERHEAD,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    event_at,
    parse_body,
    parse_frame_header,
)
from mnemon_server.engines.timeline.format.layout import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Footer,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentHeader,
    header_copy,
    parse_segment_name,
)
from mnemon_server.engines.timeline.format.salvage import Salvage, salvage_frames

_GUESS_BYTES = 512


class SegmentReader:
    """One segment's file, open for reading. Several threads may use it, until one of them closes it.

    Nothing that it returns is unchecked: whatever bytes the file holds, it raises SegmentDamagedError rather than
    returning something that was not written, and it allocates no more than a frame (16 MiB) and a chunk (1 MiB) at a
    time, however long the file says that something is. Every method raises StorageFailedError where the disk fails.
    """

    def __init__(self, files: Files, name: str, *, epoch: bytes | None, uncached: bool = False) -> None:
        """Opens the file and reads nothing yet.

        Args:
            files: where the file is.
            name: that of the file; where it is the name of a segment, the header must agree.
            epoch: the digest of the vault that the file must belong to; None takes any.
            uncached: asks for what the disk holds, not what memory holds of it.

        Raises:
            StorageFailedError: the file is not there, or the disk failed.
        """
        self._name = name
        self._epoch = epoch
        self._file = files.open_read(name, uncached=uncached)

    @cached_property
    def header(self) -> SegmentHeader:
        """What the file says of itself at its beginning.

        Raises:
            ForeignSegmentError: the file belongs to another vault, or is another segment than its name says.
            SegmentDamagedError: the header is damaged.
            SegmentFormatError: a newer release wrote the file.
        """
        return self._checked(SegmentHeader.decode(self._name, self._file.pread(HEADER_BYTES, 0)))

    @cached_property
    def footer(self) -> Footer:
        """What the file says of itself at its end.

        Raises:
            SegmentDamagedError: the file is not sealed, or its footer is damaged.
        """
        offset = self.size() - FOOTER_BYTES
        if offset < HEADER_BYTES:
            raise SegmentDamagedError(self._name, max(0, offset), "the file is too short to hold a footer")
        header, body = self._frame_at(self._scanner(offset + FOOTER_BYTES), offset)
        if header.type is not FrameType.FOOTER or FRAME_OVERHEAD + header.length != FOOTER_BYTES:
            raise SegmentDamagedError(self._name, offset, "no footer ends the file")
        footer = Footer.decode(body)
        if not footer.is_consistent(offset):
            raise SegmentDamagedError(self._name, offset, "the footer contradicts itself or the size of the file")
        return footer

    def size(self) -> int:
        """Bytes in the file now."""
        return self._file.size()

    def index(self) -> bytes:
        """The index that the file was sealed with.

        Raises:
            SegmentDamagedError: the file is not sealed, or its footer or index is damaged.
        """
        footer = self.footer
        offset, end = footer.index_offset, footer.index_offset + footer.index_length
        scanner = self._scanner(end)
        if footer.index_length <= FRAME_OVERHEAD + BODY_MAX:
            # Read in chunks, it would be copied once more.
            scanner.hold_all(offset)
        pieces: list[bytes] = []
        while offset < end:
            header, body = self._frame_at(scanner, offset)
            if header.type is not FrameType.INDEX:
                raise SegmentDamagedError(self._name, offset, "no part of the index begins here")
            pieces.append(body)
            offset += FRAME_OVERHEAD + header.length
        return b"".join(pieces)

    def read(self, offset: int) -> Frame:
        """The event whose frame begins at `offset`; one read of the file where the frame is short.

        Raises:
            SegmentDamagedError: no whole event does.
        """
        return self._parse(self._guess(offset, _GUESS_BYTES), offset, offset)

    def read_many(self, offsets: Sequence[int], bytes_max: int | None = None) -> list[Frame]:
        """The events whose frames begin at `offsets`, in that order; what lies close together is read at once.

        With `bytes_max`, it ends with the one that brings their bodies to so many bytes, and the rest may be left out.

        Raises:
            SegmentDamagedError: at one of them, no whole event does.
        """
        frames: dict[int, Frame] = {}
        size = 0
        for run in self._runs(offsets):
            if bytes_max is not None and size >= bytes_max:
                break
            seed, start = self._any_header.seed, run[0]
            data = self._guess(start, run[-1] - start + _GUESS_BYTES)
            for offset in run:
                frames[offset] = event_at(seed, offset, data, offset - start) or self._parse(data, start, offset)
                size += len(frames[offset].body)
        return [frames[offset] for offset in takewhile(frames.__contains__, offsets)]

    def _runs(self, offsets: Sequence[int]) -> list[list[int]]:
        """What is read at once, in the order of what is wanted first."""
        place = {offset: number for number, offset in reversed(list(enumerate(offsets)))}
        return sorted(close_runs(sorted(place)), key=lambda run: min(map(place.__getitem__, run)))

    def frames(self, from_offset: int = HEADER_BYTES, to: int | None = None) -> Iterator[Frame]:
        """Every event from `from_offset` to `to`, both of which are ends of frames.

        Without `to` it goes on to the end of the file, and checks index and footer if there are any.

        Raises:
            SegmentDamagedError: at the first byte that is not as it was written.
        """
        end = self.size() if to is None else to
        offset = from_offset
        try:
            for frame in self._scanner(end).events(from_offset):
                yield frame
                offset = frame.end
        except FrameError as error:
            raise SegmentDamagedError(self._name, offset, str(error)) from error
        if offset < end:
            self._check_seal(offset, to)

    def valid_prefix(self, until: int | None = None) -> int:
        """Where the last whole event ends of those that follow each other from the beginning, `until` at the latest.

        Raises:
            SegmentDamagedError: the header is damaged.
        """
        # The copy of the header does not do here: a prefix begins with the header itself.
        seed, size = self.header.seed, self.size()
        scanner = FrameScanner(self._file, seed, size if until is None else min(until, size))
        end = HEADER_BYTES
        with contextlib.suppress(FrameError):
            for frame in scanner.events(HEADER_BYTES):
                end = frame.end
        return end

    def prefix_digest(self, size: int) -> "hashlib._Hash":
        """SHA-256 of the first `size` bytes; more can be added to it.

        Raises:
            SegmentDamagedError: the file is shorter.
        """
        digest, offset = hashlib.sha256(), 0
        while offset < size:
            chunk = self._file.pread(min(CHUNK_BYTES, size - offset), offset)
            if not chunk:
                raise SegmentDamagedError(self._name, offset, f"the file ends before byte {size}")
            digest.update(chunk)
            offset += len(chunk)
        return digest

    def verify(self, sha256: bytes | None = None) -> Footer:
        """Reads the whole of a sealed file; returns its footer.

        Args:
            sha256: what the SHA-256 of everything before the footer must be. Where it is that, no frame is looked at:
                the file is what was sealed, byte for byte. Without it, every frame is checked, too.

        Raises:
            SegmentDamagedError: at the first byte that is not as it was written; at the footer where all frames are
                sound and only the SHA-256 is not.
        """
        # The copy of the header does not do here: a sealed file begins with the header itself.
        _ = self.header
        footer = self.footer
        end = self.size() - FOOTER_BYTES
        found = self.prefix_digest(end).digest()
        if sha256 is None or not found == sha256 == footer.sha256:
            self._verify_frames(footer)
            if found != footer.sha256 or sha256 not in (None, found):
                raise SegmentDamagedError(self._name, end, "the SHA-256 of what is before the footer is another")
        return footer

    def salvage(self) -> Salvage:
        """Everything that is sound, and every range that is not; goes on behind damage.

        Raises:
            ForeignSegmentError: the file belongs to another vault, or is another segment than its name says.
            SegmentFormatError: a newer release wrote the file.
        """
        try:
            header: SegmentHeader | None = self._any_header
        except ForeignSegmentError:
            raise
        except SegmentDamagedError:
            header = None
        return salvage_frames(self._file, header, self._file.pread(HEADER_BYTES, 0))

    def close(self) -> None:
        """Lets the file go, when no thread reads it any more; a reader that is dropped unclosed lets it go as well."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _any_header(self) -> SegmentHeader:
        """The header, or, where it is damaged, the copy of it that ends a sealed file."""
        try:
            return self.header
        except ForeignSegmentError:
            raise
        except SegmentDamagedError as damage:
            try:
                return self._checked(self._header_copy())
            except ForeignSegmentError:
                raise
            except SegmentDamagedError:
                raise damage from None

    def _header_copy(self) -> SegmentHeader:
        footer = self._file.pread(FOOTER_BYTES, max(0, self.size() - FOOTER_BYTES))
        return SegmentHeader.decode(self._name, header_copy(footer))

    def _checked(self, header: SegmentHeader) -> SegmentHeader:
        if self._epoch is not None and header.epoch != self._epoch:
            raise ForeignSegmentError(self._name, 0, "the file belongs to another vault")
        named = parse_segment_name(self._name)
        if named is not None and named != (header.first_sequence, header.generation):
            raise ForeignSegmentError(self._name, 0, f"the header is that of {header.file_name}")
        return header

    def _scanner(self, end: int) -> FrameScanner:
        return FrameScanner(self._file, self._any_header.seed, end)

    def _frame_at(self, scanner: FrameScanner, offset: int) -> tuple[FrameHeader, bytes]:
        try:
            return scanner.frame_at(offset)
        except FrameError as error:
            raise SegmentDamagedError(self._name, offset, str(error)) from error

    def _guess(self, offset: int, size: int) -> bytes:
        return self._file.pread(size, offset) if offset >= HEADER_BYTES else b""

    def _parse(self, data: bytes, base: int, offset: int) -> Frame:
        """The event at `offset`, of which `data`, read from `base`, holds at least the header if the file does."""
        position = offset - base
        try:
            if len(data) - position < FRAME_HEADER_BYTES:
                raise FrameError("no frame begins here")
            header = parse_frame_header(self._any_header.seed, offset, data, position)
            if header.type is not FrameType.EVENT:
                raise FrameError("no event begins here")
            size = FRAME_OVERHEAD + header.length
            if len(data) - position < size:
                data, position = self._file.pread(size, offset), 0
                if len(data) < size:
                    raise FrameError("the file ends within the frame")
            return Frame(header.sequence, parse_body(header, data, position), offset)
        except FrameError as error:
            raise SegmentDamagedError(self._name, offset, str(error)) from error

    def _check_seal(self, offset: int, to: int | None) -> None:
        if to is not None or self.footer.events_end != offset:
            raise SegmentDamagedError(self._name, offset, "no event begins here")
        self.index()

    def _verify_frames(self, footer: Footer) -> None:
        count = first = last = 0
        for frame in self.frames():
            count += 1
            first = first or frame.sequence
            last = frame.sequence
        if (count, first, last) != (footer.event_count, footer.first_sequence, footer.last_sequence):
            raise SegmentDamagedError(self._name, footer.events_end, "the footer counts other events than there are")
