"""The passages of texts, with their vectors, ready to be stored."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput, Vector

SQUARE_MIN = 1e-280
"""Squared lengths below this may have lost digits, since the smallest numbers have fewer."""


async def embed_passages(embedder: EmbeddingBatcher, contents: Sequence[str]) -> list[list[PassageInput]]:
    """The passages of each text, all embedded together. Raises the errors of EmbeddingBatcher."""
    spans = await embedder.split(contents)
    texts = [content[span.start : span.end] for content, parts in zip(contents, spans, strict=True) for span in parts]
    vectors = iter(await embedder.embed(texts))
    return [[PassageInput(span.start, span.end, next(vectors)) for span in parts] for parts in spans]


def whole_passage(content: str, given: Sequence[float]) -> list[PassageInput]:
    """The text as its only passage, with the vector that the caller gave, which need not have unit length."""
    return [PassageInput(0, len(content), unit_vector(given))]


def unit_vector(vector: Sequence[float]) -> Vector:
    """The vector scaled to length 1, as the records store vectors. It must be finite and not zero."""
    exact = np.array(vector, np.float64)
    square = squared_length(exact)
    if not SQUARE_MIN < square < math.inf:
        # Too small or too large for its square: first make the greatest number 1.
        exact /= np.abs(exact).max()
        square = squared_length(exact)
    return (exact / math.sqrt(square)).astype(np.float32)


def squared_length(vector: NDArray[np.float64]) -> float:
    """The sum of the squares: infinite if it overflows, and without a warning.

    Unlike `dot` and `vdot`, this does not release the interpreter lock, which would wake up threads that wait for it.
    """
    return float(np.einsum("i,i", vector, vector))
