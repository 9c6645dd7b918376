"""The signs of vectors, grouped by the nearest of many centres, so that a search compares only the groups near it."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Vector
from mnemon_server.engines.quantized.signs import (
    Distances,
    SignWords,
    distances,
    nearest_centres,
    sides,
)

PAGE_ROWS = 128
"""A list grows by so many vectors at a time."""

CHUNK_PAGES = 4_096
"""Memory is reserved for so many pages at once; the system provides it as they fill."""

_PAGES_AT_ONCE = 256

REMOVED = np.uint16(65_535)
"""The distance of an empty place."""


class _Chunk:
    """A number of pages. Empty places have the id 0, which no passage has."""

    def __init__(self, words: int) -> None:
        self.signs = np.empty((CHUNK_PAGES, words, PAGE_ROWS), np.uint64)
        self.ids = np.zeros((CHUNK_PAGES, PAGE_ROWS), np.int64)


class InvertedLists:
    """The signs and ids of vectors in one list for each centre. One thread adds; any number of threads search."""

    def __init__(self, centres: SignWords, dimension: int, newest: int) -> None:
        """Creates empty lists for centres of shape (words, n). `newest` is the largest id that counts as added."""
        self._centres = centres
        self._sides = sides(centres, dimension)
        self._sizes = np.zeros(centres.shape[1], np.int64)
        self._pages = np.full((centres.shape[1], 1), -1, np.int32)
        self._page_count = 0
        self._chunks: list[_Chunk] = []
        self.newest = newest
        """The largest id; vectors with larger ones are not found yet."""
        self.count = 0
        """The number of vectors, with those that were removed since."""

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return self._page_count * PAGE_ROWS * (8 * len(self._centres) + 8) + self._sides.nbytes + self._pages.nbytes

    def add(self, passage_ids: PassageIds, signs: SignWords) -> None:
        """Adds vectors, given by their signs of shape (words, n)."""
        if not len(passage_ids):
            return
        lists = nearest_centres(signs, self._centres)
        order = np.argsort(lists, kind="stable")
        lists = lists[order]
        used, starts, sizes = np.unique(lists, return_index=True, return_counts=True)
        places = self._sizes[lists] + np.arange(len(lists)) - np.repeat(starts, sizes)
        self._make_room(used, self._sizes[used] + sizes)
        pages, slots = self._pages[lists, places // PAGE_ROWS], places % PAGE_ROWS
        for number, chunk in enumerate(self._chunks):
            inside = np.flatnonzero(pages // CHUNK_PAGES == number)
            if len(inside):
                local, slot, row = pages[inside] % CHUNK_PAGES, slots[inside], order[inside]
                # Readers take the ids first, so the signs of every id that they see are complete.
                chunk.signs[local, :, slot] = signs[:, row].T
                chunk.ids[local, slot] = passage_ids[row]
        self._sizes[used] += sizes
        self.count += len(passage_ids)

    def near(self, query: Vector, signs: SignWords, wanted: int) -> Iterator[tuple[PassageIds, Distances]]:
        """The lists nearest to the query that have at least `wanted` vectors together: passage ids, and how many
        of the signs differ from those of the query. Where a page is empty, the id is 0 and the distance REMOVED.

        `query` is relative to the origin of the signs.
        """
        order = np.argsort(-np.vecdot(self._sides, query))
        enough = int(np.searchsorted(np.cumsum(self._sizes[order]), wanted)) + 1
        pages = self._pages[order[:enough]]
        pages = np.sort(pages[pages >= 0])
        for number, chunk in enumerate(tuple(self._chunks)):
            first, last = np.searchsorted(pages, (number * CHUNK_PAGES, (number + 1) * CHUNK_PAGES)).tolist()
            # A few at a time, so that the intermediate results stay in a core's cache.
            for start in range(first, last, _PAGES_AT_ONCE):
                local = pages[start : min(start + _PAGES_AT_ONCE, last)] - number * CHUNK_PAGES
                ids = chunk.ids[local]
                apart = distances(chunk.signs[local], signs)
                apart[ids == 0] = REMOVED
                yield ids.ravel(), apart.ravel()

    def chunks(self) -> Iterator[tuple[PassageIds, SignWords]]:
        """Everything that was added, in no particular order: ids, and signs of shape (words, n)."""
        for start in range(0, self._page_count, _PAGES_AT_ONCE):
            chunk, first = self._chunks[start // CHUNK_PAGES], start % CHUNK_PAGES
            part = slice(first, first + min(_PAGES_AT_ONCE, self._page_count - start))
            ids = chunk.ids[part].ravel()
            used = np.flatnonzero(ids)
            yield ids[used], chunk.signs[part].swapaxes(0, 1).reshape(len(self._centres), -1)[:, used]

    def _make_room(self, lists: NDArray[np.intp], sizes: NDArray[np.int64]) -> None:
        """Provides the pages for lists of these sizes."""
        needed = -(-sizes // PAGE_ROWS)
        width = self._pages.shape[1]
        if needed.max() > width:
            wider = np.full((len(self._pages), max(2 * width, int(needed.max()))), -1, np.int32)
            wider[:, :width] = self._pages
            self._pages = wider
        had = -(-self._sizes[lists] // PAGE_ROWS)
        new = needed - had
        count = int(new.sum())
        while self._page_count + count > CHUNK_PAGES * len(self._chunks):
            self._chunks.append(_Chunk(len(self._centres)))
        columns = np.arange(count) - np.repeat(np.cumsum(new) - new, new) + np.repeat(had, new)
        self._pages[np.repeat(lists, new), columns] = np.arange(self._page_count, self._page_count + count)
        self._page_count += count
