"""Frames: the encoding of events, the index and the footer of a segment, with checksums.

All numbers are little-endian. README.md in this folder describes every byte.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from google_crc32c import extend, value

FRAME_MAGIC = 0xA57E
FRAME_VERSION = 1
FRAME_HEADER_BYTES = 20
FRAME_CHECKSUM_BYTES = 4
FRAME_OVERHEAD = FRAME_HEADER_BYTES + FRAME_CHECKSUM_BYTES
BODY_MAX = 16 << 20
FRAME_START = struct.pack("<HB", FRAME_MAGIC, FRAME_VERSION)
"""The first bytes of every frame."""

_FRAME = struct.Struct("<HBBIQI")
_EVENT_FRAME = struct.Struct("<IIQI")
_EVENT_HEADER = struct.Struct("<IQIIQ")
_EVENT_START = 1 << 24 | FRAME_VERSION << 16 | FRAME_MAGIC
"""Magic, version and kind of an event frame as one number."""
_BOUND_HEADER = struct.Struct("<IQHBBIQ")
_PLACE = struct.Struct("<IQ")
_CHECKSUM = struct.Struct("<I")
_CHECKED_HEADER_BYTES = FRAME_HEADER_BYTES - FRAME_CHECKSUM_BYTES


class FrameType(IntEnum):
    """The content of a frame's body."""

    EVENT = 1
    ERASED = 2
    """A removed event: its frame with a body of zeros."""
    INDEX = 14
    FOOTER = 15

    @property
    def is_of_event(self) -> bool:
        """Whether the frame is or was that of an event."""
        return self in (FrameType.EVENT, FrameType.ERASED)


class Frame(NamedTuple):
    """An event that was read with all checksums correct."""

    sequence: int
    body: bytes
    offset: int
    """Offset of the frame in the file."""
    is_erased: bool = False
    """Whether the event was removed, and its body overwritten with zeros."""
    cipher_bytes: int = 0
    """How much longer the body is in the file, because it is encrypted there."""

    @property
    def end(self) -> int:
        """Offset of the first byte after the frame."""
        return self.offset + FRAME_OVERHEAD + len(self.body) + self.cipher_bytes


class FrameError(Exception):
    """The bytes are not a valid frame. The message says why."""


class FrameHeader(NamedTuple):
    """A validated frame header."""

    type: FrameType
    length: int
    """Length of the body in bytes."""
    sequence: int
    checksum: int
    """CRC-32C of seed, offset and header. The body's checksum continues from it."""


def frame_parts(seed: int, offset: int, kind: FrameType, sequence: int, body: bytes) -> tuple[bytes, bytes, bytes]:
    """A frame for the given `offset`, in three pieces to be concatenated: header, body, checksum.

    Raises:
        ValueError: the body is longer than 16 MiB.
    """
    length = len(body)
    if length > BODY_MAX:
        raise ValueError(f"a body has at most {BODY_MAX} bytes, not {length}")
    bound = _BOUND_HEADER.pack(seed, offset, FRAME_MAGIC, FRAME_VERSION, kind, length, sequence)
    checksum = value(bound)
    return bound[_PLACE.size :] + _CHECKSUM.pack(checksum), body, _CHECKSUM.pack(extend(checksum, body))


def erased_frame(seed: int, offset: int, sequence: int, length: int) -> bytes:
    """The frame that replaces that of a removed event with a body of this length."""
    return b"".join(frame_parts(seed, offset, FrameType.ERASED, sequence, bytes(length)))


def encode_events(
    seed: int, offset: int, last_sequence: int, events: Iterable[tuple[int, bytes]]
) -> tuple[bytes, list[int], int]:
    """Encodes (sequence, body) pairs as frames, the first of which starts at `offset`. Returns bytes, offsets, and the
    last sequence.

    Raises:
        ValueError: a body is longer than 16 MiB, or a sequence does not increase.
    """
    pieces: list[bytes] = []
    offsets: list[int] = []
    pack_header, pack_checksum, skipped = _BOUND_HEADER.pack, _CHECKSUM.pack, _PLACE.size
    # The same as frame_parts, inlined for speed, because every recorded event passes through here.
    for sequence, body in events:
        length = len(body)
        if sequence <= last_sequence or length > BODY_MAX:
            raise ValueError(f"event {sequence} of {length} bytes cannot follow event {last_sequence}")
        bound = pack_header(seed, offset, FRAME_MAGIC, FRAME_VERSION, 1, length, sequence)
        checksum = value(bound)
        pieces += (bound[skipped:], pack_checksum(checksum), body, pack_checksum(extend(checksum, body)))
        offsets.append(offset)
        offset += FRAME_OVERHEAD + length
        last_sequence = sequence
    return b"".join(pieces), offsets, last_sequence


def parse_frame_header(seed: int, offset: int, data: bytes, position: int) -> FrameHeader:
    """Reads the header at `position` in `data`, which must contain all 20 bytes. `offset` is its place in the file.

    Raises:
        FrameError: it is not a valid header.
    """
    magic, version, kind, length, sequence, checksum = _FRAME.unpack_from(data, position)
    if magic != FRAME_MAGIC:
        raise FrameError("no frame starts here")
    checked = data[position : position + _CHECKED_HEADER_BYTES]
    if value(_PLACE.pack(seed, offset) + checked) != checksum:
        raise FrameError("the checksum of the frame's header is wrong")
    if version != FRAME_VERSION or kind not in _TYPES or length > BODY_MAX:
        raise FrameError("this format does not have frames of this kind")
    return FrameHeader(_TYPES[kind], length, sequence, checksum)


def parse_body(header: FrameHeader, data: bytes, position: int) -> bytes:
    """The body of the frame whose header is at `position` in `data`, which must contain the whole frame.

    Raises:
        FrameError: its checksum is wrong.
    """
    start = position + FRAME_HEADER_BYTES
    end = start + header.length
    body = data[start:end]
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    if extend(header.checksum, body) != checksum:
        raise FrameError("the checksum of the frame's body is wrong")
    return body


def event_at(seed: int, offset: int, data: bytes, position: int) -> Frame | None:
    """The event whose frame starts at `position` in `data`, which lies at `offset` in the file. None if no complete,
    intact event starts there; the caller determines why.
    """
    # The same as parse_frame_header and parse_body, inlined for speed, because every event that is read passes through
    # here.
    size, start = len(data), position + FRAME_HEADER_BYTES
    if position + FRAME_OVERHEAD > size:
        return None
    begins, length, sequence, checksum = _EVENT_FRAME.unpack_from(data, position)
    end = start + length
    if begins != _EVENT_START or length > BODY_MAX or end + FRAME_CHECKSUM_BYTES > size:
        return None
    body = data[start:end]
    if value(_EVENT_HEADER.pack(seed, offset, begins, length, sequence)) != checksum:
        return None
    if (extend(checksum, body),) != _CHECKSUM.unpack_from(data, end):
        return None
    return Frame(sequence, body, offset)


def event_run(seed: int, offset: int, data: bytes, position: int, last_sequence: int) -> list[Frame]:
    """Consecutive events from `position` in `data`, which lies at `offset` in the file, as long as they are complete,
    intact and of ascending sequence. The caller determines what ended the run.
    """
    frames: list[Frame] = []
    while (frame := event_at(seed, offset, data, position)) is not None and frame.sequence > last_sequence:
        frames.append(frame)
        last_sequence = frame.sequence
        position += frame.end - offset
        offset = frame.end
    return frames


_TYPES = {int(kind): kind for kind in FrameType}
