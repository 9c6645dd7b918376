"""Reads a segment: single events by offset, all events in order, or the intact events of a damaged file."""

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from types import TracebackType
from typing import Self

from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.events.format.bodies import Bodies
from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.format.frame_scanner import CHUNK_BYTES, FrameScanner, close_runs
from mnemon_server.engines.events.format.frames import (
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
from mnemon_server.engines.events.format.layout import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Footer,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentHeader,
    header_copy,
    parse_segment_name,
)
from mnemon_server.engines.events.format.salvage import Salvage, salvage_frames

_GUESS_BYTES = 512


class SegmentReader:
    """One segment file, open for reading. Thread-safe until it is closed.

    Everything that it returns has been validated. Whatever bytes the file contains, it raises SegmentDamagedError
    rather than return data that was not written. It allocates at most a frame (16 MiB) and a chunk (1 MiB) at a time,
    whatever lengths the file claims. Every method raises StorageFailedError if the disk fails.
    """

    def __init__(self, files: Files, name: str, *, epoch: bytes | None, uncached: bool = False) -> None:
        """Opens the file and reads nothing yet.

        Args:
            files: the folder of the file.
            name: the file's name. If it is the name of a segment, the header must match.
            epoch: the digest of the vault to which the file must belong; None accepts any.
            uncached: asks for the content on the disk rather than in the page cache.

        Raises:
            StorageFailedError: the file does not exist, or the disk failed.
        """
        self._name = name
        self._epoch = epoch
        self._cipher = files.cipher
        self._file = files.open_read(name, uncached=uncached)

    @cached_property
    def header(self) -> SegmentHeader:
        """The header at the start of the file.

        Raises:
            ForeignSegmentError: the file belongs to another vault, or is a different segment than its name says.
            SegmentDamagedError: the header is damaged.
            SegmentFormatError: a newer release wrote the file.
        """
        return self._checked(SegmentHeader.decode(self._name, self._file.pread(HEADER_BYTES, 0)))

    @cached_property
    def footer(self) -> Footer:
        """The footer at the end of the file.

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
        """The current size of the file in bytes."""
        return self._file.size()

    def index(self) -> bytes:
        """The index with which the file was sealed.

        Raises:
            SegmentDamagedError: the file is not sealed, or its footer or index is damaged.
        """
        pieces: list[bytes] = []
        for offset, body in self._index_parts():
            try:
                pieces.append(self._bodies.read(FrameType.INDEX, len(pieces), body))
            except FrameError as error:
                raise SegmentDamagedError(self._name, offset, str(error)) from error
        return b"".join(pieces)

    def is_encrypted_with(self, cipher: Cipher) -> bool:
        """Whether the file is encrypted with the key of this cipher. Raises the same as `index`."""
        bodies, (_, part) = Bodies(self._any_header, cipher), next(self._index_parts())
        with contextlib.suppress(FrameError):
            return self.header.is_encrypted and bool(bodies.read(FrameType.INDEX, 0, part))
        return False

    def _index_parts(self) -> Iterator[tuple[int, bytes]]:
        """The offsets and bodies of the index frames, as they are stored."""
        footer = self.footer
        offset, end = footer.index_offset, footer.index_offset + footer.index_length
        scanner = self._scanner(end)
        if footer.index_length <= FRAME_OVERHEAD + BODY_MAX:
            # Reading in chunks would copy it once more.
            scanner.hold_all(offset)
        while offset < end:
            header, body = self._frame_at(scanner, offset)
            if header.type is not FrameType.INDEX:
                raise SegmentDamagedError(self._name, offset, "no part of the index starts here")
            yield offset, body
            offset += FRAME_OVERHEAD + header.length

    def read(self, offset: int) -> Frame:
        """The event whose frame starts at `offset`. A short frame takes a single read.

        Raises:
            SegmentDamagedError: no complete event starts there.
        """
        return self._event(self._parse(self._guess(offset, _GUESS_BYTES), offset, offset))

    def read_many(self, offsets: Sequence[int], bytes_max: int | None = None) -> list[Frame]:
        """The events whose frames start at `offsets`, in that order. Adjacent frames are read together.

        With `bytes_max`, the result may end early: with the event whose body brings the total to that size.

        Raises:
            SegmentDamagedError: no complete event starts at one of the offsets.
        """
        frames: dict[int, Frame] = {}
        size = 0
        for run in self._runs(offsets):
            if bytes_max is not None and size >= bytes_max:
                break
            seed, start = self._any_header.seed, run[0]
            data = self._guess(start, run[-1] - start + _GUESS_BYTES)
            for offset in run:
                found = event_at(seed, offset, data, offset - start) or self._parse(data, start, offset)
                frames[offset] = self._event(found)
                size += len(frames[offset].body)
        return [frames[offset] for offset in takewhile(frames.__contains__, offsets)]

    def _runs(self, offsets: Sequence[int]) -> list[list[int]]:
        """The groups of offsets to read together, in the order of the request."""
        place = {offset: number for number, offset in reversed(list(enumerate(offsets)))}
        return sorted(close_runs(sorted(place)), key=lambda run: min(map(place.__getitem__, run)))

    def frames(self, from_offset: int = HEADER_BYTES, to: int | None = None) -> Iterator[Frame]:
        """Yields every event from `from_offset` to `to`, which must both be frame boundaries, without erased ones.

        Without `to`, it continues to the end of the file, and checks index and footer if there are any.

        Raises:
            SegmentDamagedError: at the first damaged byte.
        """
        return (self._event(frame) for frame in self._frames(from_offset, to) if not frame.is_erased)

    def _frames(self, from_offset: int, to: int | None) -> Iterator[Frame]:
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
        """The end of the last complete event, counting consecutive events from the start of the file, but at most
        `until`.

        Raises:
            SegmentDamagedError: the header is damaged.
        """
        # Only the header itself counts, not its copy, because the prefix starts with it.
        seed, size = self.header.seed, self.size()
        scanner = FrameScanner(self._file, seed, size if until is None else min(until, size))
        end = HEADER_BYTES
        with contextlib.suppress(FrameError):
            for frame in scanner.events(HEADER_BYTES):
                end = frame.end
        return end

    def prefix_digest(self, size: int) -> "hashlib._Hash":
        """The SHA-256 hash object of the first `size` bytes, to which more data can be added.

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

    def verify(self, sha256: bytes | None = None, *, erased: Collection[int] | None = ()) -> Footer:
        """Reads a whole sealed file; returns its footer.

        Args:
            sha256: the expected SHA-256 of everything before the footer. If it matches, the file is byte for byte what
                was sealed, and frames are not checked. If it is None, every frame is checked, too.
            erased: the events that may have been erased since; None allows any. If one was, the SHA-256 can no longer
                match, and every frame is checked instead.

        Raises:
            SegmentDamagedError: at the first damaged byte, or at the footer if all frames are intact but the SHA-256
                differs.
        """
        # Only the header itself counts, not its copy, because a sealed file starts with it.
        _ = self.header
        footer = self.footer
        end = self.size() - FOOTER_BYTES
        found = self.prefix_digest(end).digest()
        if sha256 is None or not found == sha256 == footer.sha256:
            is_changed = self._verify_frames(footer, erased)
            if sha256 not in (None, footer.sha256) or (found != footer.sha256 and not is_changed):
                raise SegmentDamagedError(self._name, end, "the SHA-256 of the data before the footer is wrong")
        return footer

    def check_identity(self, seed: int, sha256: bytes | None) -> None:
        """Compares header and footer with what is known of the file. Reads nothing else.

        Raises:
            SegmentDamagedError: it is not the file that was sealed.
        """
        if self.header.seed != seed or self.footer.sha256 != sha256:
            raise SegmentDamagedError(self._name, 0, "it is not the file that was sealed")

    def salvage(self) -> Salvage:
        """All intact events and all damaged ranges. Continues after damage.

        Raises:
            ForeignSegmentError: the file belongs to another vault, or is a different segment than its name says.
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
        """Closes the file; no thread may be reading it. A reader that is garbage-collected closes it as well."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _bodies(self) -> Bodies:
        return Bodies(self._any_header, self._cipher)

    def _event(self, frame: Frame) -> Frame:
        """The event in a frame as it is stored."""
        try:
            return self._bodies.event(frame)
        except FrameError as error:
            raise SegmentDamagedError(self._name, frame.offset, str(error)) from error

    @cached_property
    def _any_header(self) -> SegmentHeader:
        """The header or, if it is damaged, the copy at the end of a sealed file."""
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
        """Parses the event at `offset`. `data`, read from `base`, contains at least the frame header if the file
        does.
        """
        position = offset - base
        try:
            if len(data) - position < FRAME_HEADER_BYTES:
                raise FrameError("no frame starts here")
            header = parse_frame_header(self._any_header.seed, offset, data, position)
            if header.type is not FrameType.EVENT:
                raise FrameError("no event starts here")
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
            raise SegmentDamagedError(self._name, offset, "no event starts here")
        for _ in self._index_parts():
            pass

    def _verify_frames(self, footer: Footer, erased: Collection[int] | None) -> bool:
        """Returns whether events were erased."""
        count = first = last = 0
        is_changed = False
        for frame in self._frames(HEADER_BYTES, None):
            count += 1
            first = first or frame.sequence
            last = frame.sequence
            if frame.is_erased:
                is_changed = True
                if erased is not None and last not in erased:
                    raise SegmentDamagedError(self._name, frame.offset, f"event {last} is erased, but was not removed")
        if (count, first, last) != (footer.event_count, footer.first_sequence, footer.last_sequence):
            raise SegmentDamagedError(self._name, footer.events_end, "the footer's event count is wrong")
        return is_changed
