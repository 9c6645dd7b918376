"""Searches by signs: those of the nearest inverted lists, and those that are not in a list yet."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Vector
from mnemon_server.engines.quantized.block import View
from mnemon_server.engines.quantized.signs import (
    Distances,
    SignWords,
    cluster_centres,
    distances,
    nearest,
    nearest_centres,
    sides,
    signs_of,
)
from mnemon_server.engines.turns import next_turn
from mnemon_server.ranking.keyword_context import distinct

# The signs of vectors, grouped by the nearest of many centres, so that a search compares only the groups near it.


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
        """The number of vectors, including removed ones."""

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


LISTS_MIN = 65_536
"""With fewer vectors, the signs of all are compared."""

LISTS, LIST_ROWS_MIN = 1_024, 16
"""The number of lists, and the minimum number of vectors for each."""

SAMPLE_ROWS = 16_384
"""How many vectors determine the centres of the lists."""

RENEWED_GROWTH = 4
"""When there are this many times as many vectors as there were then, the centres are determined anew."""

COMPARED_SHARE, COMPARED_OVERFETCH = 1 / 8, 32
"""The share of the listed vectors whose signs are compared, and how many at least for each one proposed."""

DEAD_SHARE_MAX = 0.25
"""Maximum share of removed vectors before their memory is released."""

TAIL_MAX = 4_096
"""Up to this many new vectors are compared one by one before the lists take them."""

_COMPARED_AT_ONCE = 8_192

log = logging.getLogger(__name__)


class SignSearch:
    """Proposes vectors that have many signs in common with a query.

    A thread copies the signs of new vectors into lists of similar ones. A search compares the lists nearest to it, and
    all signs that are not in a list yet, so it finds every vector, however far the thread is behind. Removed vectors
    stay in the lists for a while; callers leave them out.
    """

    def __init__(
        self,
        dimension: int,
        views: Callable[[], tuple[View, ...]],
        drop_signs: Callable[[int], None],
        *,
        lists_min: int = LISTS_MIN,
    ) -> None:
        """Creates it without lists, and without its thread.

        `views` returns what is stored. `drop_signs` is called with a passage id: the lists have all up to that one.
        """
        self._dimension = dimension
        self._views = views
        self._drop_signs = drop_signs
        self._lists_min = lists_min
        self._lists: InvertedLists | None = None
        self._renewed_at = 0
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def listed_count(self) -> int:
        """The number of vectors that are in lists, with those that were removed since."""
        return 0 if self._lists is None else self._lists.count

    @property
    def nbytes(self) -> int:
        """Bytes of the lists."""
        return 0 if self._lists is None else self._lists.nbytes

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="vector-lists", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """Notifies the thread that vectors were added or removed."""
        # Setting it again would take longer than adding a few rounded vectors.
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Stops the thread. Searches continue to work."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def nearest(self, views: Sequence[View], query: Vector, origin: Vector, wanted: int) -> PassageIds:
        """The passages with the most signs in common, ascending: at least `wanted`, if there are as many."""
        signs = signs_of(query[None, :], origin)[:, 0]
        # After the views: what these do not have any more is in the lists by now.
        lists = self._lists
        ids, apart = [np.empty(0, np.int64)], [np.empty(0, np.uint16)]
        for view in views:
            first = view.first_after(0 if lists is None else lists.newest)
            # A few at a time, so that the intermediate results stay in a core's cache.
            for start in range(first, len(view.ids), _COMPARED_AT_ONCE):
                part = slice(start, start + _COMPARED_AT_ONCE)
                found = distances(view.signs[:, part], signs)
                found[~view.alive[part]] = REMOVED
                ids.append(view.ids[part])
                apart.append(found)
        if lists is not None:
            compared = max(COMPARED_OVERFETCH * wanted, int(COMPARED_SHARE * lists.count))
            for page_ids, found in lists.near(query - origin, signs, compared):
                ids.append(page_ids)
                apart.append(found)
        return distinct(np.concatenate(ids)[nearest(np.concatenate(apart), wanted, self._dimension)])

    # The thread

    def _run(self) -> None:
        try:
            while next_turn(self._wake, self._closing):
                if not self._list_more():
                    self._wake.wait()
        except Exception:
            log.exception("vectors are no longer arranged in lists; searches take longer until the next start")

    def _list_more(self) -> bool:
        """Does one step; returns False if no work is left."""
        lists, count = self._lists, self._live_count()
        if lists is None:
            if count < self._lists_min:
                return False
        elif self._list_tail(lists):
            return True
        elif lists.count * (1 - DEAD_SHARE_MAX) <= count and lists.count <= RENEWED_GROWTH * self._renewed_at:
            return False
        self._renew(lists)
        return True

    def _list_tail(self, lists: InvertedLists) -> bool:
        """Moves the next signs into lists."""
        tails = [(view.first_after(lists.newest), view) for view in self._views()]
        tails = [(first, view) for first, view in tails if first < len(view.ids)]
        if sum(len(view.ids) - first for first, view in tails) <= TAIL_MAX:
            return False
        first, view = tails[0]
        part = slice(first, first + TAIL_MAX)
        ids, alive = view.ids[part], view.alive[part]
        lists.add(ids[alive], view.signs[:, part][:, alive])
        lists.newest = int(ids[-1])
        self._drop_signs(lists.newest)
        return True

    def _renew(self, old: InvertedLists | None) -> None:
        """Creates lists with new centres, without what was removed."""
        sample = self._sample(old)
        wanted = max(1, min(LISTS, sample.shape[1] // LIST_ROWS_MIN))
        lists = InvertedLists(cluster_centres(sample, wanted), self._dimension, 0 if old is None else old.newest)
        for ids, signs in () if old is None else old.chunks():
            kept = self._are_held(ids)
            lists.add(ids[kept], np.ascontiguousarray(signs[:, kept]))
        self._lists, self._renewed_at = lists, max(self._live_count(), self._lists_min)

    def _sample(self, lists: InvertedLists | None) -> SignWords:
        """The signs of some vectors, selected at random with a fixed seed."""
        rng, views = np.random.default_rng(0), self._views()
        if lists is not None:
            parts = [signs[:, rng.random(len(ids)) < SAMPLE_ROWS / lists.count] for ids, signs in lists.chunks()]
            return np.concatenate(parts, axis=1)
        parts = []
        share = SAMPLE_ROWS / sum(len(view.ids) for view in views)
        for view in views:
            parts.append(view.signs[:, view.alive & (rng.random(len(view.ids)) < share)])
        return np.concatenate(parts, axis=1)

    def _are_held(self, ids: PassageIds) -> NDArray[np.bool_]:
        order = np.sort(ids)
        return np.isin(ids, np.concatenate([view.ids[view.rows_of(order)] for view in self._views()]))

    def _live_count(self) -> int:
        return sum(int(np.count_nonzero(view.alive)) for view in self._views())
