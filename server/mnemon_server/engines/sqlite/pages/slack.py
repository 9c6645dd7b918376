"""Overwrites the unused space between the cells of database pages.

`secure_delete` overwrites deleted cells and free pages. But when SQLite moves cells to another page to balance a tree,
their bytes stay in the unused middle of the old page until that space is needed. About one deletion in a thousand
leaves such a copy.
"""

import struct
from collections.abc import Iterable, Iterator

from mnemon_server.engines.sqlite.pages.page_file import PageFile

_TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""The length of a tree page's header, by the first byte of the page."""
_FILE_HEADER_BYTES = 100
_PAGES_AT_ONCE = 64
_PAGES_MAX = 1 << 25
"""A page without cells starts with a page number. Below this number of pages, its first byte is not a tree page's."""


def clear_slack(file: PageFile, numbers: Iterable[int]) -> bool:
    """Overwrites the unused space of these pages, and syncs; returns whether anything was overwritten.

    No other connection may use the file meanwhile, except for reading from the write-ahead log.

    Raises:
        apsw.Error: the disk failed, or a page is damaged.
    """
    runs = runs_of(sorted(number for number in numbers if number < _PAGES_MAX))
    cleared = sum([_clear(file, first, count) for first, count in runs])
    if cleared:
        file.sync()
    return bool(cleared)


def _clear(file: PageFile, first: int, count: int) -> int:
    """Overwrites the unused space of `count` pages; returns in how many it was not empty."""
    size, cleared = file.page_bytes, 0
    data = file.read(first, count)
    for offset in range(0, len(data), size):
        page, number = data[offset : offset + size], first + offset // size
        middle, end = _slack(page, _FILE_HEADER_BYTES if number == 1 else 0)
        if middle < end and page.count(0, middle, end) < end - middle:
            file.write(number, page[:middle] + bytes(end - middle) + page[end:])
            cleared += 1
    return cleared


def runs_of(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first of adjacent pages, and how many there are, up to `_PAGES_AT_ONCE`, for ascending numbers.

    Each read releases the interpreter lock, so reading page by page would be a wait for other threads each time.
    """
    first = count = 0
    for number in numbers:
        if number != first + count or count == _PAGES_AT_ONCE:
            if count:
                yield first, count
            first, count = number, 0
        count += 1
    if count:
        yield first, count


def _slack(page: bytes, start: int) -> tuple[int, int]:
    """The start and end of the unused middle. Empty if the page is not a tree page or is malformed."""
    header_bytes = _TREE_PAGES.get(page[start])
    if header_bytes is None:
        return 0, 0
    cell_count, content = struct.unpack_from(">HH", page, start + 3)
    first, end = start + header_bytes + 2 * cell_count, content or 65_536
    return (first, end) if end <= len(page) else (0, 0)
