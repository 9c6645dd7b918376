"""Vectors that lie as those of texts do: many topics, each of few dimensions, and some noise."""

import numpy as np
from numpy.typing import NDArray

TOPICS, TOPIC_DIMENSIONS, NOISE = 200, 24, 0.15

Vectors = NDArray[np.float32]


def topical_vectors(count: int, dimension: int, seed: int) -> Vectors:
    """Unit vectors of shape (count, dimension): what a graph index finds its way in, as it does among embeddings.

    Vectors drawn evenly from all directions would all be equally far apart, which no embedding of texts is.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(TOPICS, dimension)).astype(np.float32)
    bases = rng.normal(size=(TOPICS, TOPIC_DIMENSIONS, dimension)).astype(np.float32)
    topics = rng.integers(TOPICS, size=count)
    places = rng.normal(size=(count, TOPIC_DIMENSIONS)).astype(np.float32)
    vectors = centres[topics] + NOISE * rng.normal(size=(count, dimension)).astype(np.float32)
    for topic in range(TOPICS):
        members = topics == topic
        vectors[members] += places[members] @ bases[topic] / np.sqrt(TOPIC_DIMENSIONS)
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)
