"""What parent and child say to each other over their pipe: frames of a JSON header and raw bytes, never pickle.

A frame is two little-endian 32-bit lengths, the header as UTF-8 JSON, and the payload. A request's header holds `id`
and `op`; its answer holds the same `id`, and either `result` or `failure` with `message`. Answers come in any order.
"""

import json
import struct
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, BinaryIO

_LENGTHS = struct.Struct("<II")
_FRAME_BYTES_MAX = 1 << 30


class Operation(StrEnum):
    """What the parent may ask for."""

    OPEN = "open"
    APPLY = "apply"
    SEARCH = "search"
    RESET = "reset"
    PING = "ping"


class Failure(StrEnum):
    """Why a request failed, as far as the parent acts differently."""

    UNREACHABLE = "unreachable"
    """The server did not answer: trying again may help."""
    BUSY = "busy"
    """Another process holds the folder."""
    DAMAGED = "damaged"
    """What is on disk cannot be searched."""
    STALE = "stale"
    """The collection is gone, or another one than was opened."""
    MISMATCH = "mismatch"
    """The collection holds another model's vectors."""
    FOREIGN = "foreign"
    """The collection holds somebody else's records."""
    FAILED = "failed"
    """Anything else."""


class CollectionError(Exception):
    """A request failed in the child; the message is for the log."""

    def __init__(self, failure: Failure, message: str) -> None:
        self.failure = failure
        super().__init__(message)


class BrokenFrameError(Exception):
    """The stream ended within a frame, or what it holds is no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message: a header that JSON can write, and raw bytes."""

    header: dict[str, Any]
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Which collection to open, where, and on what terms. Exactly one of `path` and `host` is set."""

    collection: str
    dimension: int
    model_identity: str
    new_generation: str
    """The generation of the collection if it has to be created."""
    expected_generation: str = ""
    """If set, only a collection of this generation is opened, and none is created."""
    path: str = ""
    lock_wait_s: float = 10.0
    """How long a folder's former owner may take to leave it."""
    host: str = ""
    port: int = 8000
    ssl: bool = False

    def to_header(self) -> dict[str, Any]:
        """The request as values that JSON can write."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened."""

    generation: str
    entry_count: int
    space: str

    def to_header(self) -> dict[str, Any]:
        """The answer as values that JSON can write."""
        return asdict(self)


def encode_frame(frame: Frame) -> bytes:
    """The frame as it goes over the pipe."""
    header = json.dumps(frame.header, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(header), len(frame.payload)), header, frame.payload))


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame, or None at the end of the stream. Raises BrokenFrameError."""
    lengths = stream.read(_LENGTHS.size)
    if not lengths:
        return None
    if len(lengths) < _LENGTHS.size:
        raise BrokenFrameError("the stream ended within a frame's lengths")
    header_length, payload_length = _LENGTHS.unpack(lengths)
    if header_length + payload_length > _FRAME_BYTES_MAX:
        raise BrokenFrameError(f"a frame of {header_length + payload_length:,} bytes is none of ours")
    header, payload = stream.read(header_length), stream.read(payload_length)
    if len(header) < header_length or len(payload) < payload_length:
        raise BrokenFrameError("the stream ended within a frame")
    return Frame(json.loads(header), payload)
