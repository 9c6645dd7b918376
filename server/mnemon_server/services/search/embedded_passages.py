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


def whole_passage(content: str, embedding: Sequence[float]) -> list[PassageInput]:
    """The whole text as one passage, with the vector that the caller gave, which need not have unit length."""
    return [PassageInput(0, len(content), unit_vector(embedding))]


def unit_vector(vector: Sequence[float]) -> Vector:
    """The vector scaled to length 1, as the records store vectors. It must be finite and not zero."""
    exact = np.array(vector, np.float64)
    # Divide by the greatest number first, so that no square underflows or overflows.
    exact /= np.abs(exact).max()
    return (exact / np.linalg.norm(exact)).astype(np.float32)
