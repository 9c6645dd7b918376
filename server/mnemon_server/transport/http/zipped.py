"""Messages that are compressed with gzip, unpacked in steps: a few kilobytes may hold megabytes."""

import zlib

from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.json_text import COPIED_MAX, Step, Steps
from mnemon_server.transport.http.request import too_large

_UNZIPPED_BYTES = 64 << 10
"""So much is unpacked at once, in a fifth of a millisecond."""
_GZIP, _GZIP_BITS, _SIZE_BYTES = b"\x1f\x8b", 31, 4
"""How gzip begins; a window of the largest size, and gzip's header; it ends with the size of what it holds."""
_RATIO_MAX = 1032
"""Gzip cannot compress more than that."""
_CUT_OFF = "the compressed message is cut off"


def unzipped_size(data: bytes, bytes_max: int) -> int:
    """How many bytes a message says that it holds.

    Raises:
        MalformedMessageError: it is not gzip, or cannot hold so many.
        MessageTooLargeError: it says that it holds more than that.
    """
    if not data.startswith(_GZIP):
        raise MalformedMessageError("the message is not compressed with gzip, as its header says")
    size = int.from_bytes(data[-_SIZE_BYTES:], "little")
    if size > len(data) * _RATIO_MAX:
        raise MalformedMessageError(_CUT_OFF)
    if size > bytes_max:
        raise too_large(bytes_max)
    return size


def unzipped(data: bytes, bytes_max: int) -> Steps[bytes]:
    """What a message holds.

    Raises:
        MalformedMessageError: it is not one message of gzip, or is cut off.
        MessageTooLargeError: it holds more bytes than that; no more are unpacked.
    """
    reader, pieces, left, step = zlib.decompressobj(_GZIP_BITS), list[bytes](), bytes_max, Step()
    while not reader.eof:
        try:
            piece = reader.decompress(data, _UNZIPPED_BYTES)
        except zlib.error:
            raise MalformedMessageError("the message is not compressed with gzip, as its header says") from None
        data = reader.unconsumed_tail
        if not piece and not data and not reader.eof:
            raise MalformedMessageError(_CUT_OFF)
        if (left := left - len(piece)) < 0:
            raise too_large(bytes_max)
        pieces.append(piece)
        if step.is_over():
            yield
    if reader.unused_data:
        raise MalformedMessageError("the compressed message has several parts; it must be one")
    if bytes_max - left > COPIED_MAX:
        yield
    return b"".join(pieces)
