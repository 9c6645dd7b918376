"""The vectors of statements: one for each, however long it is."""

from collections.abc import Sequence

import numpy as np

from mnemon_server.domain.errors import MnemonError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import Vector
from mnemon_server.services.search.embedded_passages import PlacedText, embed_passages, given_or_made, unit_vector

NOWHERE = 1e-6
_READ_MIN, _READ_CHARACTERS = 0.25, 1_000
"""The share of a statement's letters that the vocabulary must cover, and how much of the statement tells it. In
languages that the default model half reads, such as German or Polish, that is above 0.4, in scripts that it does not
read 0.
"""


async def embed_statements(embedder: EmbeddingBatcher, contents: Sequence[str]) -> list[Vector]:
    """One vector of unit length per text, all embedded together; for a long text, the mean of its passages.

    Raises the errors of EmbeddingBatcher.
    """
    passages = await embed_passages(embedder, [[PlacedText(content)] for content in contents])
    return [mean_vector([part.vector for part in parts]) for parts in passages]


def embed_whole(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    """The same for stored texts, on this thread and without a queue."""
    spans = [embedder.split(text) for text in texts]
    parts = [text[span.start : span.end] for text, own in zip(texts, spans, strict=True) for span in own]
    vectors = iter(embedder.embed(embedder.model.as_passages(parts)))
    return [mean_vector([next(vectors) for _ in own]) for own in spans]


def mean_vector(vectors: Sequence[Vector]) -> Vector:
    """The mean direction of vectors of unit length, with unit length; the first vector if they cancel out."""
    if len(vectors) == 1:
        return vectors[0]
    mean = np.stack(vectors).astype(np.float64).mean(axis=0)
    # The sum of opposite vectors is a rounding error without a meaningful direction.
    return unit_vector(mean.tolist()) if np.linalg.norm(mean) > NOWHERE else vectors[0]


def is_read(embedder: EmbeddingBatcher, content: str) -> bool:
    """Whether the model reads the language of a statement. Otherwise all such statements look alike to it.

    Raises EmbeddingError if the model is closed.
    """
    return embedder.coverage(content[:_READ_CHARACTERS]) >= _READ_MIN


async def vectors_of(
    embedder: EmbeddingBatcher, contents: Sequence[str], given: Sequence[Sequence[float] | None]
) -> list[Vector | MnemonError]:
    """The vector of each text: the given one, or else an embedding. All texts are embedded, or fail, together."""
    texts = [content for content, vector in zip(contents, given, strict=True) if vector is None]
    units = [None if vector is None else unit_vector(vector) for vector in given]
    return await given_or_made(units, lambda: embed_statements(embedder, texts))
