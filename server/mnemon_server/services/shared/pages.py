"""Pages of documents: as long as was asked for, or until an answer is full."""

from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits

PAGE_BYTES_MAX = 3 << 20
"""A page ends before the document with which it would be larger, but for its first."""


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
    """Documents that match, each with its position, from behind position `after`; and where to go on, None at the end.

    `descending`: the last one of the order of first indexing comes first; then 0 begins with it. `fits`, where a page
    is to end, is asked about each before it is read; without, a page ends at PAGE_BYTES_MAX.
    """
    watched = _Watched(fits or _Page().fits)
    rows = records.list_documents(
        where,
        after=after,
        limit=limit,
        vectors=vectors,
        descending=descending,
        fields_only=fields_only,
        fits=watched,
    )
    goes_on = watched.turned_down or len(rows) == limit
    return rows, (rows[-1][0] if rows else after) if goes_on else None


class _Page:
    """What a page holds where nobody else says so."""

    def __init__(self) -> None:
        self._size = 0

    def fits(self, _: str, size: int) -> bool:
        self._size += size
        return self._size == size or self._size <= PAGE_BYTES_MAX


class _Watched:
    """Notes whether something was turned down."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self.turned_down = False

    def __call__(self, record_id: str, size: int) -> bool:
        fits = self._fits(record_id, size)
        self.turned_down |= not fits
        return fits
