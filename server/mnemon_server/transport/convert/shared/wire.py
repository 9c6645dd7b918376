"""Answers written as bytes, record by record: as one message, they would be in memory several times."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from mnemon_server.services.shared.answers import ANSWER_BYTES_MAX

_LENGTH_DELIMITED, _SEVEN_BITS, _MORE = 2, 0x7F, 0x80
"""Of the wire format: the type of a field, and the two parts of each byte of a varint."""


@lru_cache(maxsize=4_096)
def field_start(field: int, size: int) -> bytes:
    """The bytes before a message or a text of `size` bytes in a field."""
    start = bytearray()
    for number in (field << 3 | _LENGTH_DELIMITED, size):
        left = number
        while left > _SEVEN_BITS:
            start.append(left & _SEVEN_BITS | _MORE)
            left >>= 7
        start.append(left)
    return bytes(start)


class AnswerBytes:
    """Builds a message from records in its repeated fields, and the rest: messages that are joined are merged.

    It ends before the record that would make it larger than `bytes_max`, but always holds the first.
    """

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_full = False
        """Whether a record was left out."""

    def add(self, field: int, *record: bytes) -> bool:
        """Adds a record, given in pieces; False if it is left out, as all after it are."""
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
        """The message; `rest` is one of its type with the fields that are not repeated."""
        return b"".join(self._pieces if rest is None else [*self._pieces, rest.SerializeToString()])


def joined(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """A message of these fields."""
    return b"".join(piece for field, body in pieces for piece in (field_start(field, len(body)), body))
