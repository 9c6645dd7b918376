"""Identification of segment files: the file name, the header at the start, and the footer at the end.

All numbers are little-endian. README.md in this folder describes every byte.
"""

import re
import secrets
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from google_crc32c import value

from mnemon_server.domain.errors import ErrorReason, MnemonError
from mnemon_server.engines.events.format.frames import FRAME_OVERHEAD

FORMAT = 1
MAGIC = b"MNEMSEG\x01"
HEADER_BYTES = 64
EPOCH_BYTES = 16
_ENCRYPTED = 1
"""The flag of a segment whose events and index are encrypted."""

_HEADER = struct.Struct("<8sHHI16sQIqIII")
_FOOTER = struct.Struct("<QQQqqQQQ32s")
_CHECKSUM = struct.Struct("<I")

FOOTER_BODY_BYTES = _FOOTER.size + HEADER_BYTES
FOOTER_BYTES = FRAME_OVERHEAD + FOOTER_BODY_BYTES

_NAME = re.compile(r"(\d{20})-(\d{4,10})\.segment", re.ASCII)


class SegmentDamagedError(MnemonError):
    """A segment differs from what was written. `name` is the file, `offset` the damaged byte, `problem` a
    description.
    """

    reason = ErrorReason.INTERNAL

    def __init__(self, name: str, offset: int, problem: str) -> None:
        self.name, self.offset, self.problem = name, offset, problem
        super().__init__(f"{name} is damaged at byte {offset}: {problem}")


class ForeignSegmentError(SegmentDamagedError):
    """The file header is valid but belongs to another vault or segment: another file was put in place of this one."""


class SegmentFormatError(MnemonError):
    """A newer release wrote the segment in a format that this one does not know. It is not damaged."""

    reason = ErrorReason.INVALID_OPERATION

    def __init__(self, name: str, found: int, flags: int) -> None:
        self.name, self.found, self.flags = name, found, flags
        super().__init__(
            f"{name} has format {found} with flags {flags}; this release reads format {FORMAT} with flags "
            f"up to {_ENCRYPTED}: use a newer release"
        )


def epoch_digest(identity: bytes) -> bytes:
    """A digest that identifies the vault in its files (16 bytes). It does not reveal the epoch, which is secret."""
    return blake2b(identity, digest_size=EPOCH_BYTES, person=b"mnemon segment").digest()


def segment_name(first_sequence: int, generation: int) -> str:
    """The name of a segment's file. Names sort by sequence, then by generation."""
    return f"{first_sequence:020d}-{generation:04d}.segment"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """First sequence and generation from a file's name; None if it is not the name of a segment."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first 64 bytes of a segment file."""

    epoch: bytes
    """Identifies the vault: 16 bytes, see `epoch_digest`."""
    first_sequence: int
    """Sequence of the first event in the segment's first generation."""
    generation: int
    created_us: int
    """When the file was created, in microseconds since 1970, UTC."""
    seed: int
    """Part of every checksum in the file, so that bytes of another file never look valid here."""
    is_encrypted: bool = False
    """Whether the bodies of the frames of events and of the index are encrypted."""

    @classmethod
    def new(
        cls, *, epoch: bytes, first_sequence: int, generation: int, created_us: int, is_encrypted: bool = False
    ) -> Self:
        """Creates a header with a random seed."""
        return cls(epoch, first_sequence, generation, created_us, secrets.randbits(32), is_encrypted)

    @property
    def file_name(self) -> str:
        """The name that the file should have."""
        return segment_name(self.first_sequence, self.generation)

    def encode(self) -> bytes:
        """The 64 bytes."""
        if len(self.epoch) != EPOCH_BYTES:
            raise ValueError(f"an epoch's digest has {EPOCH_BYTES} bytes, not {len(self.epoch)}")
        flags = _ENCRYPTED if self.is_encrypted else 0
        fields = (self.epoch, self.first_sequence, self.generation, self.created_us, self.seed)
        return _with_checksum(_HEADER.pack(MAGIC, FORMAT, flags, 0, *fields, 0, 0)[: -_CHECKSUM.size])

    @classmethod
    def decode(cls, name: str, data: bytes) -> Self:
        """Reads the first 64 bytes of a file.

        Raises:
            SegmentDamagedError: they are not a valid header.
            SegmentFormatError: the header is from a newer release.
        """
        if len(data) < HEADER_BYTES:
            raise SegmentDamagedError(name, len(data), f"the file ends within its header of {HEADER_BYTES} bytes")
        magic, found, flags, reserved, epoch, first, generation, created, seed, more_reserved, _ = _HEADER.unpack(data)
        if magic != MAGIC:
            raise SegmentDamagedError(name, 0, "the file does not start like a segment")
        if data != _with_checksum(data[: -_CHECKSUM.size]):
            raise SegmentDamagedError(name, 0, "the checksum of the file's header is wrong")
        if found != FORMAT or flags not in (0, _ENCRYPTED) or reserved or more_reserved:
            raise SegmentFormatError(name, found, flags)
        return cls(epoch, first, generation, created, seed, flags == _ENCRYPTED)


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a sealed file."""

    event_count: int
    first_sequence: int
    """Number of events in the file."""
    last_sequence: int
    min_time_us: int
    """Earliest time of an event, in microseconds since 1970, UTC."""
    max_time_us: int
    events_end: int
    """Offset of the first byte after the events."""
    index_offset: int
    """Offset of the index frames."""
    index_length: int
    """Size of all index frames together, in bytes."""
    sha256: bytes
    """SHA-256 of everything before the footer's frame."""

    def is_consistent(self, offset: int) -> bool:
        """Whether it is plausible for a file in which its frame starts at `offset`."""
        return (
            HEADER_BYTES < self.events_end == self.index_offset
            and self.index_offset + self.index_length == offset
            and 1 <= self.event_count <= self.last_sequence - self.first_sequence + 1
            and self.min_time_us <= self.max_time_us
        )

    def encode(self, header: SegmentHeader) -> bytes:
        """The body of the footer's frame, which includes a copy of the file's header."""
        numbers = (self.event_count, self.first_sequence, self.last_sequence, self.min_time_us, self.max_time_us)
        places = (self.events_end, self.index_offset, self.index_length)
        return _FOOTER.pack(*numbers, *places, self.sha256) + header.encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Reads the body of a footer frame whose checksum is correct."""
        return cls(*_FOOTER.unpack_from(body))


def header_copy(footer_frame: bytes) -> bytes:
    """The copy of the file's header in the last bytes of a sealed file."""
    return footer_frame[-_CHECKSUM.size - HEADER_BYTES : -_CHECKSUM.size]


def _with_checksum(data: bytes) -> bytes:
    return data + _CHECKSUM.pack(value(data))
