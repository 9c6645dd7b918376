"""Reading frames one after the other out of a file, of which no more than a frame and a chunk is held at a time."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from mnemon_server.engines.timeline.format.files import ReadFile
from mnemon_server.engines.timeline.format.frames import (
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
    """Frames of a file up to `end`, read forwards. One thread uses it."""

    def __init__(self, file: ReadFile, seed: int, end: int) -> None:
        """Reads nothing yet.

        Args:
            file: stays open meanwhile.
            seed: that of the file's header.
            end: the first byte that is not to be looked at.
        """
        self._file = file
        self._seed = seed
        self._end = end
        self._data = b""
        self._start = 0

    def hold_all(self, offset: int) -> None:
        """Reads everything from `offset` to the end at once, which must be known to be there.

        Raises:
            StorageFailedError: the disk failed.
        """
        self._data, self._start = self._file.pread(self._end - offset, offset), offset

    def frame_at(self, offset: int) -> tuple[FrameHeader, bytes]:
        """Header and body of the frame that begins at `offset`.

        Raises:
            FrameError: no whole frame does.
            StorageFailedError: the disk failed.
        """
        header = self.header_at(offset)
        position = self._hold(offset, FRAME_OVERHEAD + header.length)
        if position < 0:
            raise FrameError("the file ends within the frame")
        return header, parse_body(header, self._data, position)

    def events(self, offset: int) -> Iterator[Frame]:
        """Every event from `offset` to the end, or to the first frame that is not an event.

        Raises:
            FrameError: behind the last event that was yielded, no whole frame begins, or its sequence is not above.
            StorageFailedError: the disk failed.
        """
        last = 0
        while offset < self._end:
            run = self.events_from(offset, last)
            if not run:
                header, body = self.frame_at(offset)
                if header.type is not FrameType.EVENT:
                    return
                if header.sequence <= last:
                    raise FrameError(f"event {header.sequence} follows event {last}")
                run = [Frame(header.sequence, body, offset)]
            yield from run
            offset, last = run[-1].end, run[-1].sequence

    def events_from(self, offset: int, last_sequence: int) -> list[Frame]:
        """Some of the sound events from `offset` on, of ascending sequences above `last_sequence`; none where no such
        event begins there, or where it is so long that `frame_at` must be asked for it.

        Raises:
            StorageFailedError: the disk failed.
        """
        position = self._hold(offset, FRAME_OVERHEAD)
        return [] if position < 0 else event_run(self._seed, offset, self._data, position, last_sequence)

    def header_at(self, offset: int) -> FrameHeader:
        """The header of the frame that begins at `offset`, whatever its body is like.

        Raises:
            FrameError: none does.
            StorageFailedError: the disk failed.
        """
        position = self._hold(offset, FRAME_HEADER_BYTES)
        if position < 0:
            raise FrameError("the file ends within the header of a frame")
        return parse_frame_header(self._seed, offset, self._data, position)

    def find_start(self, offset: int) -> int:
        """The first place from `offset` on where three bytes look like the start of a frame; -1 where there is none.

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
        """Sees to it that `size` bytes from `offset` are held; their position, or -1 where the file ends before."""
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
    """Ascending offsets, split where so much lies between two that a read of its own is cheaper."""
    first = 0
    for position, (before, offset) in enumerate(pairwise(offsets), 1):
        if offset - before > _GAP_BYTES or offset - offsets[first] > CHUNK_BYTES:
            yield offsets[first:position]
            first = position
    if offsets:
        yield offsets[first:]
