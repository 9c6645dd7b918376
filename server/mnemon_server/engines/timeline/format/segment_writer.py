"""Writing a segment: events at its end, and once it is full the index and the footer that seal it."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.timeline.format.files import AppendFile, Files
from mnemon_server.engines.timeline.format.frames import (
    BODY_MAX,
    FrameType,
    encode_events,
    frame_parts,
)
from mnemon_server.engines.timeline.format.layout import (
    HEADER_BYTES,
    Footer,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentHeader,
)
from mnemon_server.engines.timeline.format.segment_reader import SegmentReader


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What the writer cannot know of the events, because their bodies are opaque to it."""

    event_count: int
    """How many events the index covers; it must be as many as were written."""
    min_time_us: int
    """Earliest time of an event, in microseconds since 1970, UTC."""
    max_time_us: int


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file that is complete, on the disk, and was read back."""

    name: str
    size: int
    footer: Footer

    @property
    def sha256(self) -> bytes:
        """Of everything before the footer's frame: what the footer says, and `SegmentReader.verify` compares."""
        return self.footer.sha256


class SegmentWriter:
    """Appends to one segment. One thread uses it.

    After a StorageFullError or StorageFailedError it is of no more use: what it wrote since the last `sync` may or may
    not be on the disk, and a sync that failed is never repeated. `close` it, and `resume` at the last synced size.
    """

    def __init__(self, files: Files, name: str, header: SegmentHeader, file: AppendFile) -> None:
        """Use `create` or `resume`."""
        self._files = files
        self._name = name
        self._header = header
        self._file = file
        self._digest = hashlib.sha256()
        self._usable = True
        self._first_sequence = 0
        self._last_sequence = 0
        self._event_count = 0

    @classmethod
    def create(cls, files: Files, name: str, header: SegmentHeader) -> Self:
        """Starts a file; its header and its name are on the disk, so that it can be resumed there.

        Raises:
            StorageFullError: no space is left; there is no file.
            StorageFailedError: the disk failed, and there may be no file; or there is one of this name already.
        """
        writer = cls(files, name, header, files.create(name))
        try:
            writer._write(header.encode())
            writer._file.sync()
            files.sync_folder()
        except (StorageFullError, StorageFailedError):
            writer.close()
            with contextlib.suppress(StorageFullError, StorageFailedError):
                files.unlink(name)
            raise
        return writer

    @classmethod
    def resume(cls, files: Files, name: str, header: SegmentHeader, *, at: int) -> Self:
        """Goes on with a file that is not sealed: cuts it to `at` bytes, which end with a frame and are checked.

        Args:
            files: where the file is.
            name: that of the file.
            header: whose epoch, first sequence and generation the file must have; seed and time are the file's.
            at: bytes to keep, at least those of the header.

        Raises:
            SegmentDamagedError: the first `at` bytes are not whole frames of events, in order.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        with SegmentReader(files, name, epoch=header.epoch) as reader:
            found = reader.header
            if (found.first_sequence, found.generation) != (header.first_sequence, header.generation):
                raise ForeignSegmentError(name, 0, f"the header is that of {found.file_name}")
            writer = cls(files, name, found, files.open_append(name))
            with writer._guarded():
                writer._adopt(reader, at)
                writer._file.truncate(at)
        return writer

    @property
    def header(self) -> SegmentHeader:
        """What the file says of itself."""
        return self._header

    @property
    def size(self) -> int:
        """Bytes in the file, synced or not."""
        return self._file.size

    @property
    def event_count(self) -> int:
        """Events in the file, synced or not."""
        return self._event_count

    @property
    def last_sequence(self) -> int:
        """Of the newest event in the file; 0 where there is none."""
        return self._last_sequence

    def append(self, sequence: int, body: bytes) -> int:
        """Appends one event; returns the offset of its frame. See `append_many`."""
        return self.append_many([(sequence, body)])[0]

    def append_many(self, events: Sequence[tuple[int, bytes]]) -> list[int]:
        """Appends (sequence, body) pairs in one write; returns the offsets of their frames.

        Raises:
            ValueError: a body is longer than 16 MiB, or a sequence is not above that before it; nothing was written.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed, or had failed before.
        """
        with self._guarded():
            data, offsets, last = encode_events(self._header.seed, self._file.size, self._last_sequence, events)
            if offsets:
                self._write(data)
                self._first_sequence = self._first_sequence or events[0][0]
                self._last_sequence = last
                self._event_count += len(offsets)
        return offsets

    def sync(self) -> None:
        """Returns once everything appended is on the disk.

        Raises:
            StorageFullError: no space is left.
            StorageFailedError: the disk failed, or had failed before.
        """
        with self._guarded():
            self._file.sync()

    def close(self) -> None:
        """Lets the file go, without a sync. Calling it again does nothing."""
        self._usable = False
        self._file.close()

    def seal(self, index: bytes, summary: SegmentSummary) -> SealedFile:
        """Writes index and footer, syncs file and folder, reads the whole file back from the disk, and closes it.

        Raises:
            ValueError: there are no events, or not as many as `summary` says; nothing was written.
            SegmentDamagedError: what was read back is not what was written.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed, or had failed before.
        """
        if not self._event_count or summary.event_count != self._event_count:
            raise ValueError(f"the file holds {self._event_count} events, the summary says {summary.event_count}")
        with self._guarded():
            events_end = self._file.size
            self._write(b"".join(self._index_pieces(index)))
            footer = self._footer(events_end, summary)
            offset, last = self._file.size, self._last_sequence
            body = footer.encode(self._header)
            self._file.append(b"".join(frame_parts(self._header.seed, offset, FrameType.FOOTER, last, body)))
            self._file.sync()
            self._files.sync_folder()
            self._read_back(footer)
        sealed = SealedFile(self._name, self._file.size, footer)
        self.close()
        return sealed

    def _index_pieces(self, index: bytes) -> Iterator[bytes]:
        offset = self._file.size
        for start in range(0, max(1, len(index)), BODY_MAX):
            pieces = frame_parts(
                self._header.seed, offset, FrameType.INDEX, self._last_sequence, index[start : start + BODY_MAX]
            )
            offset += sum(map(len, pieces))
            yield from pieces

    def _footer(self, events_end: int, summary: SegmentSummary) -> Footer:
        return Footer(
            event_count=self._event_count,
            first_sequence=self._first_sequence,
            last_sequence=self._last_sequence,
            min_time_us=summary.min_time_us,
            max_time_us=summary.max_time_us,
            events_end=events_end,
            index_offset=events_end,
            index_length=self._file.size - events_end,
            sha256=self._digest.digest(),
        )

    def _read_back(self, footer: Footer) -> None:
        with SegmentReader(self._files, self._name, epoch=self._header.epoch, uncached=True) as reader:
            if reader.verify() != footer:
                raise SegmentDamagedError(self._name, footer.events_end, "what was read back is not what was written")

    def _adopt(self, reader: SegmentReader, at: int) -> None:
        if at < HEADER_BYTES:
            raise ValueError(f"at least the header of {HEADER_BYTES} bytes is kept, not {at}")
        self._digest = reader.prefix_digest(at)
        for frame in reader.frames(to=at):
            self._first_sequence = self._first_sequence or frame.sequence
            self._last_sequence = frame.sequence
            self._event_count += 1

    def _write(self, data: bytes) -> None:
        self._file.append(data)
        self._digest.update(data)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Makes a file whose bytes are no longer known unusable."""
        if not self._usable:
            raise StorageFailedError(f"{self._name} is closed, or could not be written before")
        try:
            yield
        except ValueError:
            raise
        except BaseException:
            self.close()
            raise
