"""Compressed messages: their content is unpacked as far as it may be."""

import gzip
import random

import pytest
from mnemon_server.transport.errors import MalformedMessageError, MessageTooLargeError
from mnemon_server.transport.http.intake import unzipped, unzipped_size

MAX = 2 << 20


def read(data: bytes) -> bytes:
    """The content of a message."""
    return unzipped(data, unzipped_size(data, MAX))


@pytest.mark.parametrize("size", [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, MAX])
def test_what_was_packed_is_unpacked(size: int) -> None:
    for data in (bytes(size), random.Random(7).randbytes(size)):
        packed = gzip.compress(data)
        assert (read(packed), unzipped_size(packed, MAX)) == (data, size)


def test_too_much_is_refused_before_it_is_unpacked_or_once_it_turns_out() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    with pytest.raises(MessageTooLargeError):
        unzipped_size(bomb, MAX)
    lie = bomb[:-4] + (100).to_bytes(4, "little")
    assert unzipped_size(lie, MAX) == 100
    with pytest.raises(MalformedMessageError, match="more bytes than its end says"):
        read(lie)


# Without the time, which would be part of the names of the tests.
PACKED = gzip.compress(b"x" * 1000, mtime=0)


@pytest.mark.parametrize("damaged", [b"", b"no gzip", PACKED[:-9], PACKED[:5]])
def test_what_is_not_gzip_or_cut_off_is_refused(damaged: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read(damaged)


def test_several_parts_are_refused_rather_than_the_first_one_read() -> None:
    with pytest.raises(MalformedMessageError, match="several parts"):
        read(gzip.compress(b"{}") * 2)
