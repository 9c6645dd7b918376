"""Writes a segment: appends events and, once it is full, the index and the footer that seal it."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.format.bodies import Bodies
from mnemon_server.engines.events.format.files import AppendFile, Files
from mnemon_server.engines.events.format.frames import (
    BODY_MAX,
    FrameType,
    encode_events,
    frame_parts,
)
from mnemon_server.engines.events.format.layout import (
    HEADER_BYTES,
    Footer,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentHeader,
)
from mnemon_server.engines.events.format.segment_reader import SegmentReader


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Facts about the events that the writer cannot know, because it does not parse their bodies."""

    event_count: int
    """Number of events in the index; it must equal the number that was written."""
    min_time_us: int
    """Earliest time of an event, in microseconds since 1970, UTC."""
    max_time_us: int


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file that is complete, synced, and was read back."""

    name: str
    size: int
    footer: Footer

    @property
    def sha256(self) -> bytes:
        """SHA-256 of everything before the footer's frame, as in the footer. `SegmentReader.verify` compares it."""
        return self.footer.sha256


class SegmentWriter:
    """Appends to one segment. For use by one thread.

    After a StorageFullError or StorageFailedError it is unusable: data written since the last `sync` may or may not be
    on the disk, and a failed sync must not be repeated. `close` it, and `resume` at the last synced size.
    """

    def __init__(self, files: Files, name: str, header: SegmentHeader, file: AppendFile) -> None:
        """Use `create` or `resume`."""
        self._files = files
        self._name = name
        self._header = header
        self._file = file
        self._bodies = Bodies(header, files.cipher)
        self._digest = hashlib.sha256()
        self._usable = True
        self._first_sequence = 0
        self._last_sequence = 0
        self._event_count = 0

    @classmethod
    def create(cls, files: Files, name: str, header: SegmentHeader) -> Self:
        """Creates a file. Its header and name are durable when it returns, so the file can be resumed.

        Raises:
            StorageFullError: the disk is full; the file does not exist.
            StorageFailedError: the disk failed, and the file may not exist; or a file with this name already exists.
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
        """Continues a file that is not sealed. Truncates it to `at` bytes, which must end with a frame and are
        validated.

        Args:
            files: the folder of the file.
            name: the file's name.
            header: the file must have the same epoch, first sequence and generation; seed and time are the file's.
            at: the number of bytes to keep, at least the size of the header.

        Raises:
            SegmentDamagedError: the first `at` bytes are not complete event frames in order.
            StorageFullError: the disk is full.
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
        """The file's header."""
        return self._header

    @property
    def size(self) -> int:
        """The size of the file in bytes, including data that is not synced."""
        return self._file.size

    @property
    def event_count(self) -> int:
        """The number of events in the file, including events that are not synced."""
        return self._event_count

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest event in the file; 0 if it is empty."""
        return self._last_sequence

    def append(self, sequence: int, body: bytes) -> int:
        """Appends one event; returns the offset of its frame. See `append_many`."""
        return self.append_many([(sequence, body)])[0]

    def append_many(self, events: Sequence[tuple[int, bytes]]) -> list[int]:
        """Appends (sequence, body) pairs in one write; returns the offsets of their frames.

        Raises:
            ValueError: a body is longer than 16 MiB, or a sequence does not increase; nothing was written.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed, or had failed before.
        """
        with self._guarded():
            stored = [(sequence, self._bodies.written(FrameType.EVENT, sequence, body)) for sequence, body in events]
            data, offsets, last = encode_events(self._header.seed, self._file.size, self._last_sequence, stored)
            if offsets:
                self._write(data)
                self._first_sequence = self._first_sequence or events[0][0]
                self._last_sequence = last
                self._event_count += len(offsets)
        return offsets

    def sync(self) -> None:
        """Returns once everything appended is on the disk.

        Raises:
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed, or had failed before.
        """
        with self._guarded():
            self._file.sync()

    def close(self) -> None:
        """Closes the file without a sync. Further calls have no effect."""
        self._usable = False
        self._file.close()

    def seal(self, index: bytes, summary: SegmentSummary) -> SealedFile:
        """Writes index and footer, syncs file and folder, reads the whole file back from the disk, and closes it.

        Raises:
            ValueError: there are no events, or their number differs from `summary`; nothing was written.
            SegmentDamagedError: the data read back differs from the data written.
            StorageFullError: the disk is full.
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
        offset, size = self._file.size, BODY_MAX - self._bodies.overhead
        for number, start in enumerate(range(0, max(1, len(index)), size)):
            body = self._bodies.written(FrameType.INDEX, number, index[start : start + size])
            pieces = frame_parts(self._header.seed, offset, FrameType.INDEX, self._last_sequence, body)
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
            # The digest is that of the bytes as they were written, so the frames need not be checked as well.
            if reader.verify(footer.sha256) != footer:
                raise SegmentDamagedError(
                    self._name, footer.events_end, "the data read back differs from the data written"
                )

    def _adopt(self, reader: SegmentReader, at: int) -> None:
        if at < HEADER_BYTES:
            raise ValueError(f"at must be at least {HEADER_BYTES} bytes, the size of the header, not {at}")
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
        """Makes the writer unusable after an error, because the content of the file is unknown then."""
        if not self._usable:
            raise StorageFailedError(f"{self._name} is closed, or could not be written before")
        try:
            yield
        except ValueError:
            raise
        except BaseException:
            self.close()
            raise
