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
    watched = _FitsRecorder(fits or _PageSize().fits)
    rows = records.list_documents(
        where,
        after=after,
        limit=limit,
        vectors=vectors,
        descending=descending,
        fields_only=fields_only,
        fits=watched,
    )
    has_more = watched.refused or len(rows) == limit
    return rows, (rows[-1][0] if rows else after) if has_more else None


class _PageSize:
    """The default limit of a page."""

    def __init__(self) -> None:
        self._size = 0

    def fits(self, _: str, size: int) -> bool:
        self._size += size
        return self._size == size or self._size <= PAGE_BYTES_MAX


class _FitsRecorder:
    """Remembers whether a document was refused."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self.refused = False

    def __call__(self, record_id: str, size: int) -> bool:
        fits = self._fits(record_id, size)
        self.refused |= not fits
        return fits
