"""Overwrites the unused space between the cells of database pages.

`secure_delete` overwrites deleted cells and free pages. But when SQLite moves cells to another page to balance a tree,
their bytes stay in the unused middle of the old page until that space is needed. About one deletion in a thousand
leaves such a copy.
"""

import struct
from collections.abc import Iterable

from mnemon_server.engines.sqlite.pages.page_file import PageFile

_TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""The length of a tree page's header, by the first byte of the page."""
_FILE_HEADER_BYTES = 100
_PAGES_MAX = 1 << 25
"""A page without cells starts with a page number. Below this number of pages, its first byte is not a tree page's."""


def clear_slack(file: PageFile, numbers: Iterable[int]) -> bool:
    """Overwrites the unused space of these pages, and syncs; returns whether anything was overwritten.

    No other connection may use the file meanwhile, except for reading from the write-ahead log.

    Raises:
        apsw.Error: the disk failed, or a page is damaged.
    """
    cleared, wanted = 0, sorted(number for number in numbers if number < _PAGES_MAX)
    for number, page in zip(wanted, file.read_each(wanted), strict=True):
        middle, end = _slack(page, _FILE_HEADER_BYTES if number == 1 else 0)
        if middle < end and page[middle:end] != (empty := bytes(end - middle)):
            file.write(number, page[:middle] + empty + page[end:])
            cleared += 1
    if cleared:
        file.sync()
    return bool(cleared)


def _slack(page: bytes, start: int) -> tuple[int, int]:
    """The start and end of the unused middle. Empty if the page is not a tree page or is malformed."""
    header_bytes = _TREE_PAGES.get(page[start])
    if header_bytes is None:
        return 0, 0
    cell_count, content = struct.unpack_from(">HH", page, start + 3)
    first, end = start + header_bytes + 2 * cell_count, content or 65_536
    return (first, end) if end <= len(page) else (0, 0)
