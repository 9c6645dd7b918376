"""The vectors of a collection in memory: exact scans, and a graph once there are enough vectors."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.hnsw.graph import bytes_per_vector
from mnemon_server.engines.hnsw.maintenance import GraphMaintenance
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotFolder
from mnemon_server.engines.promises.values import PassageIds, Scores, Vector, VectorUsage
from mnemon_server.engines.vector_cache import VectorCache


class LocalVectors:
    """Vectors of unit length by ascending passage id, in one array from which all scores are computed.

    The graph only proposes candidates. They are looked up and scored in the array, and removed ones are left out.
    Vectors that the graph lacks are compared one by one. So every search sees additions and removals at once, however
    far behind the graph is. The graph holds the vectors a second time with a third of their components, projected onto
    the directions in which they differ most. That is enough for proposals, of which there are more than needed. (If
    only the graph held the vectors, reading each from hnswlib would take 30 µs: 300 ms for a scan of 10,000
    candidates.)

    One thread adds, removes and closes; any number of threads search.
    """

    def __init__(self, dimension: int, settings: GraphSettings, snapshots: SnapshotFolder) -> None:
        """Creates it empty."""
        self.snapshots = snapshots
        """The folder of graph snapshots, including older ones."""
        self._cache = VectorCache(dimension)
        self._maintenance = GraphMaintenance(self._cache, dimension, settings, snapshots)

    @staticmethod
    def bytes_per_vector(dimension: int, settings: GraphSettings) -> int:
        """The memory that a vector of `dimension` components takes in array and graph."""
        return 4 * dimension + bytes_per_vector(dimension, settings)

    def __len__(self) -> int:
        """The number of vectors."""
        return len(self._cache)

    def start(self, *, warm: bool = False) -> None:
        """Loads or builds the graph in the background. Call it once all stored vectors have been added.

        Until the graph is ready, `usage` reports that it is not warm, unless `warm` is set.
        """
        self._maintenance.start(warm=warm)

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension). The ids ascend, and are larger than all ids added before."""
        self._cache.add(passage_ids, vectors)
        self._maintenance.added()

    def remove(self, passage_ids: Sequence[int]) -> None:
        """Removes vectors. Unknown ids are ignored."""
        self._cache.remove(passage_ids)
        self._maintenance.removed(passage_ids)

    def scan(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """Exact cosine similarity of every vector, or of those in `among`; unknown ids are left out."""
        return self._cache.scan(query, among)

    def nearest(self, query: Vector, limit: int) -> Scores | None:
        """Up to `limit` vectors nearest to the query, best first; None if a full scan is cheaper."""
        graph = self._maintenance.graph
        if graph is None:
            return None
        newest = graph.newest
        total, newer = len(self._cache), self._cache.count_after(newest)
        if 2 * newer > total:
            return None
        dead_unmarked = max(0, graph.count - graph.dead - (total - newer))
        proposed = graph.nearest(query, limit + min(dead_unmarked, limit))
        # Proposals above `newest` are scanned anyway, because they were added to the graph in the meantime.
        scores = self._cache.scan_with_newer(query, proposed[proposed <= newest], newest)
        if len(scores.passage_ids) < min(limit, total):
            scores = self._cache.scan(query)
        return scores.best(limit)

    def chunks(self, rows_max: int, *, after: int = 0) -> Iterator[tuple[PassageIds, NDArray[np.float32]]]:
        """The vectors with larger ids than `after`, ascending, up to `rows_max` at once: ids, and vectors of shape
        (n, dimension).
        """
        ids, vectors = self._cache.after(after, rows_max)
        while len(ids):
            yield ids, vectors
            ids, vectors = self._cache.after(int(ids[-1]), rows_max)

    def usage(self) -> VectorUsage:
        """How the vectors are held. The total is flat plus graph minus dead vectors."""
        # Read in this order: after "warm" the graph must be visible, and a graph that was just finished must not be
        # missed.
        warm, building = self._maintenance.is_warm, self._maintenance.building_count
        graph = self._maintenance.graph
        total, loading = len(self._cache), self._maintenance.unfinished_bytes
        if graph is None:
            return VectorUsage(total, 0, 0, self._cache.nbytes + loading, building_count=building, warm=warm)
        flat = self._cache.count_after(graph.newest)
        return VectorUsage(
            flat_count=flat,
            graph_count=graph.count,
            dead_count=max(0, graph.count - (total - flat)),
            bytes=self._cache.nbytes + graph.nbytes + loading,
            snapshot_time=self._maintenance.snapshot_time,
            building_count=building,
            warm=warm,
        )

    def save_snapshot(self) -> datetime | None:
        """Writes a snapshot of the graph now; see RecordEngine."""
        return self._maintenance.save_snapshot()

    def close(self, *, save: bool = True) -> None:
        """Stops the background work. Writes a last snapshot if `save` is set and something changed. Can be repeated."""
        self._maintenance.close(save=save)
