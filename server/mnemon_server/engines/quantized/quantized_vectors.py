"""The vectors of a collection that are too many to be held in full."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import EXACT_BEST, PassageIds, Scores, Vector, VectorUsage
from mnemon_server.engines.quantized.block import Block, RoundedVectors, Rows, View, round_vectors
from mnemon_server.engines.quantized.sign_search import DEAD_SHARE_MAX, LISTS_MIN, SignSearch
from mnemon_server.engines.quantized.signs import words_per_vector
from mnemon_server.ranking.keyword_context import distinct

ScoreStored = Callable[[Vector, PassageIds], Scores]
"""Returns the exact cosine of those passages that are stored, in any order."""

BLOCK_ROWS = 131_072
"""Maximum number of vectors in a block."""

SPARE = 32
"""How many more vectors than requested are compared exactly, because rounding may have changed their order."""

PROPOSED_MIN, OVERFETCH = 1_024, 4
"""The minimum number of vectors whose rounded components are compared, and how many for each one requested."""

PROPOSED_BY_SIGNS = 512
"""The minimum number of vectors that are compared once some rounded components were dropped."""

ORIGIN_ROWS_MIN, ORIGIN_ROWS_MAX = 256, 4_096
"""How many of the first vectors determine the origin."""

WIDENING = 4
"""If most of the proposed vectors were removed, this many times as many are proposed."""

_ID_BYTES, _SCALE_BYTES, _ALIVE_BYTES = 8, 4, 1


class QuantizedVectors:
    """Vectors of unit length by ascending passage id, with one byte and one bit per component.

    A search compares signs, then the rounded components of the vectors that have the most signs in common, and finally
    the stored vectors of the best. Every step reads what is stored at that moment, so every search sees additions and
    removals at once.

    A thread moves the signs into lists of similar vectors, of which a search reads the nearest. The signs of vectors
    that are not in a list yet are all compared.

    One thread adds, removes and closes; any number of threads search.
    """

    def __init__(
        self,
        dimension: int,
        score: ScoreStored,
        *,
        origin: Vector | None = None,
        bytes_max: float = inf,
        block_rows: int = BLOCK_ROWS,
        lists_min: int = LISTS_MIN,
    ) -> None:
        """Creates it empty. `score` reads the stored vectors. Beyond `bytes_max`, the rounded components of
        the oldest blocks are dropped; their signs stay.

        Without `origin`, the first vectors determine it.
        """
        self._dimension = dimension
        self._bytes_max = bytes_max
        self._block_rows = block_rows
        self._score = score
        self._origin: Vector = np.zeros(dimension, np.float32) if origin is None else origin
        self._has_origin = origin is not None
        self._changing = threading.Lock()
        self._blocks = [self._new_block()]
        self._views: tuple[View, ...] = ()
        self._signs = SignSearch(dimension, lambda: self._views, self._drop_signs, lists_min=lists_min)

    @staticmethod
    def bytes_per_vector(dimension: int, *, with_codes: bool = True) -> int:
        """The memory that a vector of `dimension` components takes."""
        listed = 8 * words_per_vector(dimension) + _ID_BYTES
        return listed + _ID_BYTES + _ALIVE_BYTES + (dimension + _SCALE_BYTES if with_codes else 0)

    def __len__(self) -> int:
        """The number of vectors."""
        return sum(block.live_count for block in self._blocks)

    @property
    def listed_count(self) -> int:
        """The number of vectors that are in lists, with those that were removed since."""
        return self._signs.listed_count

    def start(self) -> None:
        """Starts the thread. Call it once all stored vectors have been added: a sample of them determines the lists."""
        self._signs.start()

    @property
    def origin(self) -> Vector:
        """The point from which the signs of components are counted."""
        return self._origin

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension). The ids ascend, and are larger than all ids added before."""
        if not (self._views or self._has_origin) and len(vectors) >= ORIGIN_ROWS_MIN:
            # The middle of the vectors. If they all share a direction, its signs would tell nothing.
            self._origin = vectors[:ORIGIN_ROWS_MAX].mean(axis=0)
        self.add_rounded(passage_ids, round_vectors(vectors, self._origin))

    def add_rounded(self, passage_ids: PassageIds, vectors: RoundedVectors) -> None:
        """Adds vectors that were rounded with the same origin. The ids ascend, and are larger than all before."""
        done = 0
        with self._changing:
            while done < len(passage_ids):
                block = self._last_with_room()
                end = min(done + block.room, len(passage_ids))
                self._make_room(end - done)
                block.add(passage_ids[done:end], vectors.part(done, end))
                done = end
            self._publish()
        self._signs.changed()

    def remove(self, passage_ids: Sequence[int]) -> None:
        """Removes vectors. Unknown ids are ignored. The memory is released once enough rows are dead."""
        wanted = np.sort(np.fromiter(passage_ids, np.int64))
        with self._changing:
            for block in self._blocks:
                block.remove(wanted)
            self._publish()
            rows = sum(len(view.ids) for view in self._views)
            if rows - len(self) > DEAD_SHARE_MAX * rows:
                self._compact()
        self._signs.changed()

    def scan(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """Cosine similarity of every vector, or of those in `among`; unknown ids are left out.

        The best `exact` are exact. Rounding changes the others, usually by less than 0.001.
        """
        views = self._views
        wanted = None if among is None else distinct(among)
        rows = [np.flatnonzero(view.alive) if wanted is None else view.rows_of(wanted) for view in views]
        ids = _ids(views, rows)
        if 0 < len(ids) <= exact:
            return self._score(query, ids)
        found = self._compared(views, rows, query)
        if not exact or not found.rounded:
            return found
        others = np.ones(len(found.scores), np.bool_)
        others[_best_rows(found.scores, exact + SPARE)] = False
        return Scores.joined([self._score(query, found.passage_ids[~others]), found.those(others)])

    def nearest(self, query: Vector, limit: int, *, exact: bool = True) -> Scores:
        """Up to `limit` vectors nearest to the query, best first. Scores are exact, or rounded if that is enough."""
        views = self._views
        with_codes = all(view.has_codes for view in views)
        wanted = max(PROPOSED_MIN if with_codes else PROPOSED_BY_SIGNS, OVERFETCH * limit)
        found = self._compared(views, self._propose(views, query, wanted), query)
        found = found.those(_best_rows(found.scores, limit + SPARE))
        if exact and found.rounded:
            found = self._score(query, found.passage_ids)
        order = np.argsort(-found.scores, kind="stable")[:limit]
        return Scores(found.passage_ids[order], found.scores[order], found.rounded)

    def usage(self) -> VectorUsage:
        """How the vectors are held."""
        held = sum(_view_bytes(view) for view in self._views) + self._signs.nbytes
        return VectorUsage(len(self), 0, 0, held)

    def close(self, *, save: bool = True) -> None:
        """Stops the thread. Further calls have no effect."""
        self._signs.close()

    # Proposals

    def _propose(self, views: Sequence[View], query: Vector, wanted: int) -> list[Rows]:
        """The rows of each view that are probably nearest to the query: at least half of `wanted`, if there are."""
        enough, proposed = wanted // 2, wanted
        while True:
            ids = self._signs.nearest(views, query, self._origin, proposed)
            rows = [view.rows_of(ids) for view in views]
            if sum(map(len, rows)) >= enough or len(ids) < proposed:
                return rows
            # The lists still have what was removed.
            proposed *= WIDENING

    def _compared(self, views: Sequence[View], rows: Sequence[Rows], query: Vector) -> Scores:
        """The cosine of rows of the views: approximate, or exact where the rounded components were dropped."""
        chosen = [*zip(views, rows, strict=True)]
        parts = [
            Scores(view.ids[found], view.similarities(query, found), rounded=True)
            for view, found in chosen
            if view.has_codes and len(found)
        ]
        unheld = [view.ids[found] for view, found in chosen if not view.has_codes and len(found)]
        if unheld:
            parts.append(self._score(query, np.concatenate(unheld)))
        return Scores.joined(parts)

    # Blocks

    def _drop_signs(self, newest: int) -> None:
        """Releases the signs of full blocks without a passage id larger than `newest`."""
        with self._changing:
            for block in self._blocks:
                if not block.room and block.view.has_signs and block.view.ids[-1] <= newest:
                    block.drop_signs()
            self._publish()

    def _make_room(self, added: int) -> None:
        """Drops rounded components, oldest first, until so many more vectors fit."""
        with_codes, without = (self.bytes_per_vector(self._dimension, with_codes=each) for each in (True, False))
        coded = deque(block for block in self._blocks if block.has_codes)
        rows = added + sum(len(block.view.ids) for block in self._blocks)
        of_coded = added + sum(len(block.view.ids) for block in coded)
        while coded and without * rows + (with_codes - without) * of_coded > self._bytes_max:
            block = coded.popleft()
            of_coded -= len(block.view.ids)
            block.drop_codes()

    def _new_block(self) -> Block:
        return Block(self._dimension, self._block_rows)

    def _last_with_room(self) -> Block:
        if not self._blocks[-1].room:
            self._blocks.append(self._new_block())
        return self._blocks[-1]

    def _compact(self) -> None:
        """Moves the live rows into new blocks, one old block at a time, so that both are not in memory as a whole."""
        old, self._blocks = deque(self._views), [self._new_block()]
        while old:
            view = old.popleft()
            rows = np.flatnonzero(view.alive)
            while len(rows):
                block = self._last_with_room()
                rows, moved = rows[block.room :], rows[: block.room]
                block.take(view, moved)
            self._publish(old)

    def _publish(self, old: Iterable[View] = ()) -> None:
        """Shows the blocks, and old views, to readers, all at once."""
        self._views = (*(block.view for block in self._blocks), *old)


def _ids(views: Sequence[View], rows: Sequence[Rows]) -> PassageIds:
    parts = (view.ids[chosen] for view, chosen in zip(views, rows, strict=True))
    return np.concatenate([np.empty(0, np.int64), *parts])


def _view_bytes(view: View) -> int:
    arrays = (view.ids, view.signs, view.codes, view.scales, view.alive)
    return sum(array.nbytes for array in arrays)


def _best_rows(scores: NDArray[np.float64], count: int) -> Rows:
    return np.argpartition(-scores, count)[:count] if count < len(scores) else np.arange(len(scores))
