"""The passages of texts, with their vectors, ready to be stored."""

from collections.abc import Sequence

import numpy as np

from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput, Vector


async def embed_passages(embedder: EmbeddingBatcher, contents: Sequence[str]) -> list[list[PassageInput]]:
    """The passages of each text, all embedded together. Raises the errors of EmbeddingBatcher."""
    spans = await embedder.split(contents)
    texts = [content[span.start : span.end] for content, parts in zip(contents, spans, strict=True) for span in parts]
    vectors = iter(await embedder.embed(texts))
    return [[PassageInput(span.start, span.end, next(vectors)) for span in parts] for parts in spans]


def whole_passages(given: Sequence[tuple[str, Sequence[float]]]) -> list[list[PassageInput]]:
    """Each whole text as one passage, with the vector that the caller gave, which need not have unit length."""
    vectors = unit_vectors([embedding for _, embedding in given])
    return [[PassageInput(0, len(content), vector)] for (content, _), vector in zip(given, vectors, strict=True)]


def unit_vector(vector: Sequence[float]) -> Vector:
    """The vector scaled to length 1, as the records store vectors. It must be finite and not zero."""
    [unit] = unit_vectors([vector])
    return unit


def unit_vectors(vectors: Sequence[Sequence[float]]) -> Sequence[Vector]:
    """The same for several vectors of the same length."""
    if not vectors:
        return ()
    exact = np.array(vectors, np.float64)
    # Divide by the greatest number first, so that no square underflows or overflows.
    exact /= np.abs(exact).max(axis=1, keepdims=True)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    return list(exact.astype(np.float32))
