"""Answers written as bytes, record by record: as one message they would be in memory several times over."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from mnemon_server.services.shared.answers import ANSWER_BYTES_MAX

_LENGTH_DELIMITED, _SEVEN_BITS, _MORE = 2, 0x7F, 0x80
"""Of the wire format: a type of fields, and the parts of a byte in a number of any length."""


@lru_cache(maxsize=4_096)
def field_start(field: int, size: int) -> bytes:
    """What stands before a message or a text of so many bytes in a field with a number below 16."""
    start = bytearray([field << 3 | _LENGTH_DELIMITED])
    while size > _SEVEN_BITS:
        start.append(size & _SEVEN_BITS | _MORE)
        size >>= 7
    start.append(size)
    return bytes(start)


class AnswerBytes:
    """A message in the making: records in its repeated fields, and the rest. Joined, messages are merged.

    It ends before the record with which it would be larger than `bytes_max`, but for its first.
    """

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_full = False
        """Whether a record was left out."""

    def add(self, field: int, *record: bytes) -> bool:
        """Adds a record, given in pieces; False where it is left out, as are all behind it."""
        size = sum(map(len, record))
        start = field_start(field, size)
        total = self._size + len(start) + size
        if self.is_full or (self._pieces and total > self._bytes_max):
            self.is_full = True
            return False
        self._pieces += (start, *record)
        self._size = total
        return True

    def finish(self, rest: Any = None) -> bytes:
        """The message; `rest` is one of its type with what is not repeated."""
        return b"".join(self._pieces if rest is None else [*self._pieces, rest.SerializeToString()])


def joined(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """A message of these fields."""
    return b"".join(piece for field, body in pieces for piece in (field_start(field, len(body)), body))
