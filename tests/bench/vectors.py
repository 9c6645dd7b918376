"""Vectors distributed like those of texts: many topics, each of few dimensions, and some noise."""

import numpy as np
from numpy.typing import NDArray

TOPICS, TOPIC_DIMENSIONS, NOISE = 200, 24, 0.15

Vectors = NDArray[np.float32]


class TopicalVectors:
    """Topics that a seed fixes, around which any number of vectors can be drawn. A graph index can navigate them as it
    can navigate embeddings.

    Vectors drawn uniformly from all directions would be equally far apart, unlike embeddings of texts.
    """

    def __init__(self, dimension: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._centres = rng.normal(size=(TOPICS, dimension)).astype(np.float32)
        self._bases = rng.normal(size=(TOPICS, TOPIC_DIMENSIONS, dimension)).astype(np.float32)
        self.rng = rng
        """Continues behind the topics."""

    def draw(self, count: int, rng: np.random.Generator) -> Vectors:
        """Unit vectors of shape (count, dimension)."""
        dimension = self._centres.shape[1]
        topics = rng.integers(TOPICS, size=count)
        places = rng.normal(size=(count, TOPIC_DIMENSIONS)).astype(np.float32)
        vectors = self._centres[topics] + NOISE * rng.normal(size=(count, dimension)).astype(np.float32)
        for topic in range(TOPICS):
            members = topics == topic
            vectors[members] += places[members] @ self._bases[topic] / np.sqrt(TOPIC_DIMENSIONS)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit.astype(np.float32)


def topical_vectors(count: int, dimension: int, seed: int) -> Vectors:
    """Unit vectors of shape (count, dimension), with topics of their own."""
    topics = TopicalVectors(dimension, seed)
    return topics.draw(count, topics.rng)
