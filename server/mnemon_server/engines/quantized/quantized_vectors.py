"""The vectors of a collection that are too many to be held in full."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Scores, Vector, VectorUsage
from mnemon_server.engines.quantized.block import Block, View, bytes_per_vector
from mnemon_server.engines.quantized.proposals import propose

ScoreStored = Callable[[Vector, PassageIds], Scores]
"""Returns the exact cosine of those passages that are stored, in any order."""

BLOCK_ROWS = 131_072
"""Maximum number of vectors in a block."""

DEAD_SHARE_MAX = 0.25
"""Maximum share of removed rows before their memory is released."""

EXACT_BEST = 256
"""The number of best candidates whose cosine is computed from the stored vectors."""

SPARE = 32
"""How many more vectors than requested are compared exactly, because rounding may have changed their order."""

PROPOSED_MIN, OVERFETCH = 1_024, 4
"""The minimum number of vectors whose rounded components are compared, and how many for each one requested."""

ORIGIN_ROWS_MIN, ORIGIN_ROWS_MAX = 256, 4_096
"""How many of the first vectors determine the origin."""


class QuantizedVectors:
    """Vectors of unit length by ascending passage id, with one byte and one bit per component, and nothing on disk.

    A search compares signs, then the rounded components of the vectors that have the most signs in common, and finally
    the stored vectors of the best. Every step reads what is stored at that moment, so every search sees additions and
    removals at once. There is nothing to build and nothing to save.

    One thread adds and removes; any number of threads search.
    """

    def __init__(self, dimension: int, score: ScoreStored, *, block_rows: int = BLOCK_ROWS) -> None:
        """Creates it empty. `score` reads the stored vectors."""
        self._dimension = dimension
        self._block_rows = block_rows
        self._score = score
        self._origin: Vector = np.zeros(dimension, np.float32)
        self._blocks = [Block(dimension, block_rows)]
        self._views: tuple[View, ...] = ()

    @staticmethod
    def bytes_per_vector(dimension: int) -> int:
        """The memory that a vector of `dimension` components takes."""
        return bytes_per_vector(dimension)

    def __len__(self) -> int:
        """The number of vectors."""
        return sum(block.live_count for block in self._blocks)

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension). The ids ascend, and are larger than all ids added before."""
        if not self._views and len(vectors) >= ORIGIN_ROWS_MIN:
            # The middle of the vectors. If they all share a direction, its signs would tell nothing.
            self._origin = vectors[:ORIGIN_ROWS_MAX].mean(axis=0)
        done = 0
        while done < len(passage_ids):
            block = self._last_with_room()
            part = slice(done, done + block.room)
            block.add(passage_ids[part], vectors[part], self._origin)
            done = part.stop
        self._publish()

    def remove(self, passage_ids: Sequence[int]) -> None:
        """Removes vectors. Unknown ids are ignored. The memory is released once enough rows are dead."""
        wanted = np.sort(np.fromiter(passage_ids, np.int64))
        for block in self._blocks:
            block.remove(wanted)
        self._publish()
        rows = sum(len(view.ids) for view in self._views)
        if rows - len(self) > DEAD_SHARE_MAX * rows:
            self._compact()

    def scan(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """Cosine similarity of every vector, or of those in `among`; unknown ids are left out.

        The best EXACT_BEST are exact. Rounding changes the others, usually by less than 0.001.
        """
        views = self._views
        wanted = None if among is None else np.unique(among)
        rows = [np.flatnonzero(view.alive) if wanted is None else view.rows_of(wanted) for view in views]
        return self._with_best_exact(views, rows, query)

    def nearest(self, query: Vector, limit: int) -> Scores:
        """Up to `limit` vectors nearest to the query, best first; exact as in `scan`."""
        views = self._views
        rows = propose(views, query, self._origin, max(PROPOSED_MIN, OVERFETCH * limit))
        return _best(self._with_best_exact(views, rows, query, min(EXACT_BEST, limit + SPARE)), limit)

    def usage(self) -> VectorUsage:
        """How the vectors are held."""
        rows = sum(len(view.ids) for view in self._views)
        return VectorUsage(len(self), 0, 0, rows * bytes_per_vector(self._dimension))

    def save_snapshot(self) -> datetime | None:
        """None: there is no graph."""
        return None

    def close(self, *, save: bool = True) -> None:
        """Does nothing: there is no background work."""

    def _last_with_room(self) -> Block:
        if not self._blocks[-1].room:
            self._blocks.append(Block(self._dimension, self._block_rows))
        return self._blocks[-1]

    def _compact(self) -> None:
        """Moves the live rows into new blocks, one old block at a time, so that both are not in memory as a whole."""
        old, self._blocks = deque(self._views), [Block(self._dimension, self._block_rows)]
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

    def _with_best_exact(
        self, views: Sequence[View], rows: Sequence[NDArray[np.intp]], query: Vector, count: int = EXACT_BEST
    ) -> Scores:
        """Approximate scores of rows of the views; those of the best `count` are replaced by exact ones."""
        parts = list(zip(views, rows, strict=True))
        ids = np.concatenate([np.empty(0, np.int64), *(view.ids[chosen] for view, chosen in parts)])
        scores = np.concatenate([np.empty(0), *(view.similarities(query, chosen) for view, chosen in parts)])
        best = np.argpartition(-scores, count)[:count] if count < len(ids) else np.arange(len(ids))
        exact = self._score(query, ids[best])
        others = np.ones(len(ids), np.bool_)
        others[best] = False
        return Scores(np.concatenate([exact.passage_ids, ids[others]]), np.concatenate([exact.scores, scores[others]]))


def _best(scores: Scores, limit: int) -> Scores:
    order = np.argsort(-scores.scores, kind="stable")[:limit]
    return Scores(scores.passage_ids[order], scores.scores[order])
