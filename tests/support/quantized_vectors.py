"""Quantized vectors over a model of what is stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mnemon_server.engines.promises.values import PassageIds, Scores, Vector
from mnemon_server.engines.quantized import QuantizedVectors
from mnemon_server.engines.quantized.sign_search import TAIL_MAX

from tests.support.local_vectors import Matrix, Model
from tests.support.server import wait_until


def quantized(model: Model, **options: Any) -> QuantizedVectors:
    """Quantized vectors of everything in the model, whose exact scores the model computes."""

    def score(query: Vector, passage_ids: PassageIds) -> Scores:
        ids = np.array([i for i in passage_ids.tolist() if i in model.vectors], np.int64)
        return Scores(ids, np.array([np.dot(model.vectors[i], query) for i in ids.tolist()], np.float64))

    vectors = QuantizedVectors(model.dimension, score, **options)
    if model.vectors:
        ids = sorted(model.vectors)
        vectors.add(np.array(ids, np.int64), np.stack([model.vectors[i] for i in ids]))
    return vectors


@contextmanager
def listed(vectors: QuantizedVectors) -> Iterator[QuantizedVectors]:
    """The vectors, once they are in lists except for the newest ones. They are closed at the end."""
    vectors.start()
    try:
        wait_until(lambda: vectors.listed_count >= len(vectors) - TAIL_MAX)
        yield vectors
    finally:
        vectors.close()


def recall_of(vectors: QuantizedVectors, model: Model, queries: Matrix, limit: int = 10) -> float:
    """The fraction of the nearest `limit` that were found. All scores must be right, and in descending order."""
    ids = np.array(sorted(model.vectors), np.int64)
    matrix = np.stack([model.vectors[i] for i in ids.tolist()])
    found = 0
    for query in queries:
        nearest, exact = vectors.nearest(query, limit), matrix @ query
        assert len(nearest.passage_ids) == limit
        rows = np.searchsorted(ids, nearest.passage_ids)
        assert np.array_equal(ids[rows], nearest.passage_ids)
        assert np.allclose(nearest.scores, exact[rows], atol=1e-5)
        assert (np.diff(nearest.scores) <= 0).all()
        found += len(set(nearest.passage_ids.tolist()) & set(ids[np.argsort(-exact)[:limit]].tolist()))
    return found / (len(queries) * limit)
