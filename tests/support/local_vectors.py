"""Vectors distributed like embeddings, a model of the right answers, and a small index for tests."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from mnemon_server.engines.hnsw import GraphSettings, LocalVectors, SnapshotFolder, SnapshotIdentity
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

EAGER = GraphSettings(
    graph_min=200, tail_max=16, snapshot_changes_min=1_000_000, snapshot_idle_s=1_000.0, snapshot_retry_s=1_000.0
)
"""A graph early, and snapshots only after building and when closing."""
TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)


def clustered_vectors(count: int, dimension: int, seed: int) -> Matrix:
    """Unit vectors around common centres in a space of fewer dimensions, as embeddings of texts are."""
    world = np.random.default_rng(11)
    rank = max(2, dimension // 8)
    centres, basis = world.standard_normal((40, rank)), world.standard_normal((rank, dimension))
    rng = np.random.default_rng(seed)
    inner = centres[rng.integers(0, len(centres), count)] + 0.6 * rng.standard_normal((count, rank))
    vectors = inner @ basis + 0.3 * rng.standard_normal((count, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Model:
    """All stored vectors, with the simplest way to compare them."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.vectors: dict[int, Matrix] = {}
        self.last = 0

    def add(self, vectors: Matrix) -> NDArray[np.int64]:
        ids = np.arange(self.last + 1, self.last + 1 + len(vectors))
        self.last += len(vectors)
        self.vectors.update(zip(ids.tolist(), vectors, strict=True))
        return ids

    def remove(self, ids: list[int]) -> list[int]:
        for passage_id in ids:
            del self.vectors[passage_id]
        return ids

    def scores(self, query: Matrix) -> dict[int, float]:
        return {passage_id: float(np.dot(vector, query)) for passage_id, vector in self.vectors.items()}

    def best(self, query: Matrix, limit: int) -> list[int]:
        scores = self.scores(query)
        return sorted(scores, key=lambda passage_id: -scores[passage_id])[:limit]

    def load(self, vectors: LocalVectors) -> None:
        """Loads everything into an empty index, as opening a store does."""
        if self.vectors:
            vectors.add(
                np.array(sorted(self.vectors), np.int64), np.stack([v for _, v in sorted(self.vectors.items())])
            )


def local_vectors(
    folder: Path, dimension: int, *, settings: GraphSettings = EAGER, store: str = "store"
) -> LocalVectors:
    """An index whose snapshots lie in `folder`/index; not started."""
    identity = SnapshotIdentity.of(store, "model/1", dimension, settings)
    snapshots = SnapshotFolder(folder / "index", folder / "quarantine", identity, lambda: TIME)
    return LocalVectors(dimension, settings, snapshots)


def opened(folder: Path, model: Model, **options: Any) -> LocalVectors:
    """A running index of everything in the model."""
    vectors = local_vectors(folder, model.dimension, **options)
    model.load(vectors)
    vectors.start()
    return vectors


def recall(vectors: LocalVectors, model: Model, queries: Matrix, limit: int = 10) -> float:
    """The fraction of the nearest `limit` that the graph found. All scores must be right, and in descending order."""
    found = 0
    for query in queries:
        scores = vectors.nearest(query, limit)
        assert scores is not None
        expected = model.scores(query)
        ids = scores.passage_ids.tolist()
        assert len(set(ids)) == min(limit, len(expected))
        assert np.allclose(scores.scores, [expected[passage_id] for passage_id in ids], atol=1e-5)
        assert (np.diff(scores.scores) <= 0).all()
        found += len(set(ids) & set(model.best(query, limit)))
    return found / (len(queries) * min(limit, len(model.vectors)))


def has_graph_of(vectors: LocalVectors, count: int) -> Callable[[], bool]:
    """A condition: the graph holds at least this many vectors, and none is waiting."""

    def condition() -> bool:
        usage = vectors.usage()
        return usage.graph_count >= count and usage.flat_count < EAGER.tail_max

    return condition
