"""Answers written as bytes, record by record: as one message, they would be in memory several times.

A message is written in pieces, which are joined once, at the end: copying a megabyte takes up to a millisecond.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mnemon_server.services.background.offload import converted
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX

Pieces = Sequence[bytes]
"""The bytes of a message, in their order."""

_LENGTH_DELIMITED, _SEVEN_BITS, _MORE = 2, 0x7F, 0x80
"""Parts of the wire format: the type of a field, and the two parts of each byte of a varint."""


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


def size_of(pieces: Pieces) -> int:
    """The number of bytes in all of them."""
    return sum(map(len, pieces))


def in_field(field: int, pieces: Pieces) -> list[bytes]:
    """A message in a field of another one."""
    return [field_start(field, size_of(pieces)), *pieces]


async def joined(pieces: Pieces) -> bytes:
    """The message; joined on a thread if it is large, since copying it would hold up other calls."""
    return await converted(b"".join, pieces, size_of(pieces))


class AnswerBytes:
    """Builds a message from records in its repeated fields, and the rest: messages that are joined are merged.

    It ends before the record that would make it larger than ANSWER_BYTES_MAX, but always holds the first.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_full = False
        """Whether a record was left out."""

    def add(self, field: int, record: Pieces) -> bool:
        """Adds a record; False if it is left out, as all after it are."""
        pieces = in_field(field, record)
        total = self._size + size_of(pieces)
        if self.is_full or (self._pieces and total > ANSWER_BYTES_MAX):
            self.is_full = True
            return False
        self._pieces += pieces
        self._size = total
        return True

    async def finish(self, rest: Any) -> bytes:
        """The message; `rest` is one of its type with the fields that are not repeated."""
        return await joined([*self._pieces, rest.SerializeToString()])
