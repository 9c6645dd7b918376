"""The vectors of a collection in memory: exact scans, and a graph beside them once there are enough."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.hnsw.graph import bytes_per_vector
from mnemon_server.engines.hnsw.keeper import GraphKeeper
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotFolder
from mnemon_server.engines.promises.values import PassageIds, Scores, Vector, VectorUsage
from mnemon_server.engines.vector_cache import VectorCache


class LocalVectors:
    """Vectors of unit length by ascending passage id, in one array that every score comes from.

    The graph only proposes: what it proposes is looked up in the array, scored there, and left out where it is gone;
    what it has yet to take is compared one by one. So an addition or a removal is seen at once by every search, however
    far the graph is behind. The graph holds the vectors a second time, with a third of their numbers: projected onto
    the directions in which they differ most, they are enough to propose by, and more are proposed than are wanted.
    (Held once, they would have to be read out of hnswlib, at 30 µs each: 300 ms for a scan of 10,000 candidates.)

    One thread adds, removes and closes; any number search.
    """

    def __init__(
        self, dimension: int, settings: GraphSettings, snapshots: SnapshotFolder, *, bytes_max: int = 256 << 20
    ) -> None:
        """Holds nothing yet; beyond `bytes_max` for array and graph together, there is no graph."""
        rows_max = bytes_max // (4 * dimension + bytes_per_vector(dimension, settings))
        self._cache = VectorCache(dimension)
        self._keeper = GraphKeeper(self._cache, dimension, settings, snapshots, rows_max=rows_max)

    def __len__(self) -> int:
        """How many vectors are held."""
        return len(self._cache)

    def start(self, *, warm: bool = False) -> None:
        """Lets the graph be loaded or built, in the background: to be called when all that is stored was added.

        Until it is there, `usage` says that it is not warm, except where `warm` says that nobody has to wait.
        """
        self._keeper.start(warm=warm)

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension); the ids ascend, and are larger than all that were added before."""
        self._cache.add(passage_ids, vectors)
        self._keeper.added()

    def remove(self, passage_ids: Sequence[int]) -> None:
        """Removes vectors; ids that are not there are ignored."""
        self._cache.remove(passage_ids)
        self._keeper.removed(passage_ids)

    def scan(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """Cosine similarity of every vector, or of those of `among` that are held: exact."""
        return self._cache.scan(query, among)

    def nearest(self, query: Vector, limit: int) -> Scores | None:
        """Up to `limit` vectors nearest to the query, best first; None where comparing everything is cheaper."""
        graph = self._keeper.graph
        if graph is None:
            return None
        newest = graph.newest
        total, newer = len(self._cache), self._cache.count_after(newest)
        if 2 * newer > total:
            return None
        dead_unmarked = max(0, graph.count - graph.dead - (total - newer))
        proposed = graph.nearest(query, limit + min(dead_unmarked, limit))
        # What the graph took since is among the newer ones already.
        scores = self._cache.scan_with_newer(query, proposed[proposed <= newest], newest)
        if len(scores.passage_ids) < min(limit, total):
            scores = self._cache.scan(query)
        return _best(scores, limit)

    def usage(self) -> VectorUsage:
        """How the vectors are kept; what is flat, and in the graph, less what is dead there, is all of them."""
        # In this order: whoever reads that it is warm must find the graph, and one that is finished must not be missed.
        warm, building = self._keeper.is_warm, self._keeper.building_count
        graph = self._keeper.graph
        total, loading = len(self._cache), self._keeper.unfinished_bytes
        if graph is None:
            return VectorUsage(total, 0, 0, self._cache.nbytes + loading, building_count=building, warm=warm)
        flat = self._cache.count_after(graph.newest)
        return VectorUsage(
            flat_count=flat,
            graph_count=graph.count,
            dead_count=max(0, graph.count - (total - flat)),
            bytes=self._cache.nbytes + graph.nbytes + loading,
            snapshot_time=self._keeper.snapshot_time,
            building_count=building,
            warm=warm,
        )

    def save_snapshot(self) -> datetime | None:
        """Writes a snapshot of the graph now; see RecordEngine."""
        return self._keeper.save_snapshot()

    def close(self, *, save: bool = True) -> None:
        """Ends the background work, with a last snapshot where `save` and something changed. Twice does nothing."""
        self._keeper.close(save=save)


def _best(scores: Scores, limit: int) -> Scores:
    order = np.argsort(-scores.scores, kind="stable")[:limit]
    return Scores(scores.passage_ids[order], scores.scores[order])
