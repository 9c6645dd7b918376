"""What a segment's file says of itself: its name, the header at its beginning, the footer at its end.

All numbers are little-endian. README.md beside this file describes every byte.
"""

import re
import secrets
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from google_crc32c import value

from mnemon_server.domain.errors import ErrorReason, MnemonError
from mnemon_server.engines.timeline.format.frames import FRAME_OVERHEAD

FORMAT = 1
MAGIC = b"MNEMSEG\x01"
HEADER_BYTES = 64
EPOCH_BYTES = 16

_HEADER = struct.Struct("<8sHHI16sQIqIII")
_FOOTER = struct.Struct("<QQQqqQQQ32s")
_CHECKSUM = struct.Struct("<I")

FOOTER_BODY_BYTES = _FOOTER.size + HEADER_BYTES
FOOTER_BYTES = FRAME_OVERHEAD + FOOTER_BODY_BYTES

_NAME = re.compile(r"(\d{20})-(\d{4,10})\.segment", re.ASCII)


class SegmentDamagedError(MnemonError):
    """A segment is not what was written: `name`, the `offset` in bytes of what is wrong, and `problem`, in words."""

    reason = ErrorReason.INTERNAL

    def __init__(self, name: str, offset: int, problem: str) -> None:
        self.name, self.offset, self.problem = name, offset, problem
        super().__init__(f"{name} is damaged at byte {offset}: {problem}")


class ForeignSegmentError(SegmentDamagedError):
    """A whole file header, but of another vault or another segment: the file was put in this one's place."""


class SegmentFormatError(MnemonError):
    """A newer release wrote the segment, in a format that this one does not know; it is not damaged."""

    reason = ErrorReason.INVALID_OPERATION

    def __init__(self, name: str, found: int, flags: int) -> None:
        self.name, self.found, self.flags = name, found, flags
        super().__init__(
            f"{name} has format {found} with flags {flags}; this release reads format {FORMAT} without flags: "
            f"use a newer release"
        )


def epoch_digest(identity: bytes) -> bytes:
    """What a file may say of the vault that it belongs to (16 bytes): it tells vaults apart and gives nothing away."""
    return blake2b(identity, digest_size=EPOCH_BYTES, person=b"mnemon segment").digest()


def segment_name(first_sequence: int, generation: int) -> str:
    """The name of a segment's file: it sorts by sequence, then by generation."""
    return f"{first_sequence:020d}-{generation:04d}.segment"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """First sequence and generation that a file's name tells; None where it is no name of a segment."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a file says of itself in its first 64 bytes."""

    epoch: bytes
    """Which vault it belongs to: 16 bytes, see `epoch_digest`."""
    first_sequence: int
    """Sequence of the first event that was written into the segment's first generation."""
    generation: int
    created_us: int
    """When the file was created, in microseconds since 1970, UTC."""
    seed: int
    """Goes into every checksum of the file, so that bytes of another file are never taken for this one's."""

    @classmethod
    def new(cls, *, epoch: bytes, first_sequence: int, generation: int, created_us: int) -> Self:
        """A header with a random seed."""
        return cls(epoch, first_sequence, generation, created_us, secrets.randbits(32))

    @property
    def file_name(self) -> str:
        """The name that the file should have."""
        return segment_name(self.first_sequence, self.generation)

    def encode(self) -> bytes:
        """The 64 bytes."""
        if len(self.epoch) != EPOCH_BYTES:
            raise ValueError(f"an epoch's digest has {EPOCH_BYTES} bytes, not {len(self.epoch)}")
        fields = (self.epoch, self.first_sequence, self.generation, self.created_us, self.seed)
        return _with_checksum(_HEADER.pack(MAGIC, FORMAT, 0, 0, *fields, 0, 0)[: -_CHECKSUM.size])

    @classmethod
    def decode(cls, name: str, data: bytes) -> Self:
        """Reads the first 64 bytes of a file.

        Raises:
            SegmentDamagedError: they are no header.
            SegmentFormatError: they are one of a newer release.
        """
        if len(data) < HEADER_BYTES:
            raise SegmentDamagedError(name, len(data), f"the file ends within its header of {HEADER_BYTES} bytes")
        magic, found, flags, reserved, *fields, more_reserved, _ = _HEADER.unpack(data)
        if magic != MAGIC:
            raise SegmentDamagedError(name, 0, "the file does not begin like a segment")
        if data != _with_checksum(data[: -_CHECKSUM.size]):
            raise SegmentDamagedError(name, 0, "the checksum of the file's header is wrong")
        if found != FORMAT or flags or reserved or more_reserved:
            raise SegmentFormatError(name, found, flags)
        return cls(*fields)


@dataclass(frozen=True, slots=True)
class Footer:
    """What a sealed file says of itself at its end."""

    event_count: int
    first_sequence: int
    """Of the events that are in the file."""
    last_sequence: int
    min_time_us: int
    """Earliest time of an event, in microseconds since 1970, UTC."""
    max_time_us: int
    events_end: int
    """The first byte behind the events."""
    index_offset: int
    """Where the index frames begin."""
    index_length: int
    """Bytes of all index frames together."""
    sha256: bytes
    """Of everything before the footer's frame."""

    def is_consistent(self, offset: int) -> bool:
        """Whether it can be the footer of a file in which its frame begins at `offset`."""
        return (
            HEADER_BYTES < self.events_end == self.index_offset
            and self.index_offset + self.index_length == offset
            and 1 <= self.event_count <= self.last_sequence - self.first_sequence + 1
            and self.min_time_us <= self.max_time_us
        )

    def encode(self, header: SegmentHeader) -> bytes:
        """The body of the footer's frame; it repeats the file's header."""
        numbers = (self.event_count, self.first_sequence, self.last_sequence, self.min_time_us, self.max_time_us)
        places = (self.events_end, self.index_offset, self.index_length)
        return _FOOTER.pack(*numbers, *places, self.sha256) + header.encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Reads the body of a footer's frame, whose checksum was right."""
        return cls(*_FOOTER.unpack_from(body))


def header_copy(footer_frame: bytes) -> bytes:
    """The copy of the file's header that the last bytes of a sealed file hold."""
    return footer_frame[-_CHECKSUM.size - HEADER_BYTES : -_CHECKSUM.size]


def _with_checksum(data: bytes) -> bytes:
    return data + _CHECKSUM.pack(value(data))
