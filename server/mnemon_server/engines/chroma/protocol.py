"""The protocol between parent and child over pipes: frames with a JSON header and raw bytes, without pickle.

A frame consists of two little-endian 32-bit lengths, the header as UTF-8 JSON, and the payload. A request's header has
`id` and `op`. Its answer has the same `id`, and either `result`, or `failure` with `message`. Answers come in any
order.
"""

import json
import struct
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, BinaryIO

_LENGTHS = struct.Struct("<II")
_FRAME_BYTES_MAX = 1 << 30


class Operation(StrEnum):
    """The operations that the parent can request."""

    OPEN = "open"
    APPLY = "apply"
    SEARCH = "search"
    RESET = "reset"


class Failure(StrEnum):
    """Why a request failed, as far as the parent's reaction depends on it."""

    UNREACHABLE = "unreachable"
    """The server did not answer; a retry may help."""
    BUSY = "busy"
    """Another process uses the folder."""
    DAMAGED = "damaged"
    """The data on disk cannot be searched."""
    STALE = "stale"
    """The collection no longer exists, or was replaced since it was opened."""
    MISMATCH = "mismatch"
    """The collection has vectors of another model."""
    FOREIGN = "foreign"
    """The collection has records of another program."""
    FAILED = "failed"
    """Any other failure."""


class CollectionError(Exception):
    """A request failed in the child. The message is for the log."""

    def __init__(self, failure: Failure, message: str) -> None:
        self.failure = failure
        super().__init__(message)


class BrokenFrameError(Exception):
    """The stream ended within a frame, or contains an invalid frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message: a JSON-serialisable header, and raw bytes."""

    header: dict[str, Any]
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Which collection to open, and how. Exactly one of `path` and `host` is set."""

    collection: str
    dimension: int
    model_identity: str
    new_generation: str
    """The generation of the collection if it must be created."""
    expected_generation: str = ""
    """If set, only a collection of this generation is opened, and none is created."""
    path: str = ""
    lock_wait_s: float = 10.0
    """How long to wait for a previous owner of the folder."""
    host: str = ""
    port: int = 8000
    ssl: bool = False

    @property
    def url(self) -> str:
        """The address of the server. `host` may be a whole URL, which then includes the port."""
        scheme = "https" if self.ssl else "http"
        if "://" in self.host:
            given, _, rest = self.host.rstrip("/").partition("://")
            return f"{scheme if self.ssl else given}://{rest}"
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"{scheme}://{host}:{self.port}"

    def to_header(self) -> dict[str, Any]:
        """The request as JSON-serialisable values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Opened:
    """A description of the open collection."""

    generation: str
    entry_count: int
    space: str

    def to_header(self) -> dict[str, Any]:
        """The answer as JSON-serialisable values."""
        return asdict(self)


def encode_frame(frame: Frame) -> bytes:
    """The frame in its encoding for the pipe."""
    header = json.dumps(frame.header, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(header), len(frame.payload)), header, frame.payload))


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame; None at the end of the stream. Raises BrokenFrameError."""
    lengths = stream.read(_LENGTHS.size)
    if not lengths:
        return None
    if len(lengths) < _LENGTHS.size:
        raise BrokenFrameError("the stream ended within a frame's lengths")
    header_length, payload_length = _LENGTHS.unpack(lengths)
    if header_length + payload_length > _FRAME_BYTES_MAX:
        raise BrokenFrameError(f"a frame of {header_length + payload_length:,} bytes is not a valid frame")
    header, payload = stream.read(header_length), stream.read(payload_length)
    if len(header) < header_length or len(payload) < payload_length:
        raise BrokenFrameError("the stream ended within a frame")
    return Frame(json.loads(header), payload)
