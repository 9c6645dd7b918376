"""Overwrites what SQLite leaves between the cells of a page.

`secure_delete` overwrites deleted cells and free pages. But where SQLite moves cells from page to page, to keep its
trees in balance, their bytes stay behind in the unused middle of the page that they left, until the page needs the
room: about one deletion of a thousand leaves a copy there.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from mnemon_server.engines.file_errors import translated

_TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""By the first byte of a page of a tree, the length of its header."""
_FILE_HEADER_BYTES = 100
_PAGES_MAX = 1 << 25
"""A page without cells begins with the number of another page; up to here, its first byte is none of these."""


class PageSlack:
    """The unused room in the pages of a database file.

    The file stays open until `close`, which must come after every connection of this process has been closed: closing
    any descriptor of a file gives up all locks that the process holds on it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def clear(self, numbers: Iterable[int]) -> bool:
        """Overwrites the slack of these pages, and syncs; whether there was anything.

        Nobody else may write to the file meanwhile; who reads it sees nothing of this.

        Raises:
            StorageFullError, StorageFailedError: the disk failed.
        """
        with translated("clear", self._path.name):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            size = _page_size(os.pread(self._descriptor, _FILE_HEADER_BYTES, 0))
            cleared = sum([self._clear(number, size) for number in sorted(numbers) if number < _PAGES_MAX])
            if cleared:
                os.fdatasync(self._descriptor)
        return bool(cleared)

    def close(self) -> None:
        """Closes the file. Calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _clear(self, number: int, size: int) -> bool:
        offset = (number - 1) * size
        page = os.pread(self._descriptor, size, offset)
        start, end = _slack(page, _FILE_HEADER_BYTES if number == 1 else 0) if len(page) == size else (0, 0)
        if start >= end or page.count(0, start, end) == end - start:
            return False
        os.pwrite(self._descriptor, bytes(end - start), offset + start)
        return True


def _page_size(file_header: bytes) -> int:
    (size,) = struct.unpack_from(">H", file_header, 16)
    return 65_536 if size == 1 else int(size)


def _slack(page: bytes, start: int) -> tuple[int, int]:
    """Where the unused middle begins and ends; nothing where the page is of no tree, or not what it should be."""
    header_bytes = _TREE_PAGES.get(page[start])
    if header_bytes is None:
        return 0, 0
    cell_count, content = struct.unpack_from(">HH", page, start + 3)
    first, end = start + header_bytes + 2 * cell_count, content or 65_536
    return (first, end) if end <= len(page) else (0, 0)
