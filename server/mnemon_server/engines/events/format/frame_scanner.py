"""Reads consecutive frames of a file, and holds at most a frame and a chunk in memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from mnemon_server.engines.events.format.files import ReadFile
from mnemon_server.engines.events.format.frames import (
    FRAME_HEADER_BYTES,
    FRAME_OVERHEAD,
    FRAME_START,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    event_run,
    parse_body,
    parse_frame_header,
)

CHUNK_BYTES: Final = 1 << 20
_GAP_BYTES: Final = 4 << 10


class FrameScanner:
    """The frames of a file up to `end`, read forwards. For use by one thread."""

    def __init__(self, file: ReadFile, seed: int, end: int) -> None:
        """Reads nothing yet.

        Args:
            file: must stay open while the scanner is used.
            seed: the seed in the file's header.
            end: the offset at which reading stops.
        """
        self._file = file
        self._seed = seed
        self._end = end
        self._data = b""
        self._start = 0

    def hold_all(self, offset: int) -> None:
        """Reads everything from `offset` to the end at once. These bytes must exist.

        Raises:
            StorageFailedError: the disk failed.
        """
        self._data, self._start = self._file.pread(self._end - offset, offset), offset

    def frame_at(self, offset: int) -> tuple[FrameHeader, bytes]:
        """The header and body of the frame that starts at `offset`.

        Raises:
            FrameError: no complete frame starts there.
            StorageFailedError: the disk failed.
        """
        header = self.header_at(offset)
        position = self._hold(offset, FRAME_OVERHEAD + header.length)
        if position < 0:
            raise FrameError("the file ends within the frame")
        return header, parse_body(header, self._data, position)

    def events(self, offset: int) -> Iterator[Frame]:
        """Yields every event from `offset` to the end, or to the first frame of another kind. Includes erased events.

        Raises:
            FrameError: after the last yielded event, no complete frame starts, or its sequence does not increase.
            StorageFailedError: the disk failed.
        """
        last = 0
        while offset < self._end:
            run = self.events_from(offset, last)
            if not run:
                header, body = self.frame_at(offset)
                if not header.type.is_of_event:
                    return
                if header.sequence <= last:
                    raise FrameError(f"event {header.sequence} follows event {last}")
                run = [Frame(header.sequence, body, offset, header.type is FrameType.ERASED)]
            yield from run
            offset, last = run[-1].end, run[-1].sequence

    def events_from(self, offset: int, last_sequence: int) -> list[Frame]:
        """Some of the intact events from `offset` on, with ascending sequences above `last_sequence`. Empty if no such
        event starts there, or if it is so long that it must be read with `frame_at`.

        Raises:
            StorageFailedError: the disk failed.
        """
        position = self._hold(offset, FRAME_OVERHEAD)
        return [] if position < 0 else event_run(self._seed, offset, self._data, position, last_sequence)

    def header_at(self, offset: int) -> FrameHeader:
        """The header of the frame that starts at `offset`. Does not check the body.

        Raises:
            FrameError: no frame header starts there.
            StorageFailedError: the disk failed.
        """
        position = self._hold(offset, FRAME_HEADER_BYTES)
        if position < 0:
            raise FrameError("the file ends within the header of a frame")
        return parse_frame_header(self._seed, offset, self._data, position)

    def find_start(self, offset: int) -> int:
        """The first offset, from `offset` on, with three bytes that look like the start of a frame; -1 if there
        are no such bytes.

        Raises:
            StorageFailedError: the disk failed.
        """
        while (position := self._hold(offset, len(FRAME_START))) >= 0:
            found = self._data.find(FRAME_START, position)
            if found >= 0:
                return self._start + found
            offset = self._start + len(self._data) - len(FRAME_START) + 1
        return -1

    def _hold(self, offset: int, size: int) -> int:
        """Ensures that `size` bytes from `offset` are in memory; returns their position, or -1 if the file ends
        earlier.
        """
        position = offset - self._start
        if position >= 0 and position + size <= len(self._data):
            return position
        if offset + size > self._end:
            return -1
        kept = self._data[position:] if 0 <= position < len(self._data) else b""
        begin = offset + len(kept)
        fresh = self._file.pread(min(max(size, CHUNK_BYTES), self._end - offset) - len(kept), begin)
        self._data, self._start = kept + fresh, offset
        return 0 if len(self._data) >= size else -1


def close_runs(offsets: list[int]) -> Iterator[list[int]]:
    """Splits ascending offsets into runs. A gap that is cheaper to skip than to read starts a new run."""
    first = 0
    for position, (before, offset) in enumerate(pairwise(offsets), 1):
        if offset - before > _GAP_BYTES or offset - offsets[first] > CHUNK_BYTES:
            yield offsets[first:position]
            first = position
    if offsets:
        yield offsets[first:]
