"""Reads pages of documents: up to a number of documents, or until the answer is full."""

from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits

PAGE_BYTES_MAX = 3 << 20
"""The most bytes of documents on a page; only a single document may exceed it."""


def read_page(
    records: RecordEngine,
    where: RecordFilter,
    *,
    after: int,
    limit: int,
    vectors: bool = False,
    descending: bool = False,
    fields_only: bool = False,
    fits: Fits | None = None,
) -> tuple[list[tuple[int, Document]], int | None]:
    """The matching documents after position `after`, with their positions, and the position to continue after.

    That position is None at the end. With `descending`, the document that was stored last comes first, and an `after`
    of 0 begins with it. `fits` is called before each document is read, and ends the page; without it, a page ends at
    PAGE_BYTES_MAX.
    """
    admits, is_full = fits or _page_size(), False

    def watched(record_id: str, size: int) -> bool:
        nonlocal is_full
        is_full = is_full or not admits(record_id, size)
        return not is_full

    rows = records.list_documents(
        where,
        after=after,
        limit=limit,
        vectors=vectors,
        descending=descending,
        fields_only=fields_only,
        fits=watched,
    )
    has_more = is_full or len(rows) == limit
    return rows, (rows[-1][0] if rows else after) if has_more else None


def _page_size() -> Fits:
    """The default limit of a page."""
    taken = 0

    def fits(_: str, size: int) -> bool:
        nonlocal taken
        taken += size
        return taken == size or taken <= PAGE_BYTES_MAX

    return fits
