"""The passages of texts, with their vectors, ready to be stored."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.embedding.base import Embedder, Span
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput, Vector
from mnemon_server.ranking.heads import Heads

Made = TypeVar("Made")

TOGETHER_MAX = 2_048
"""How many passages are handed to the model at once: it limits how many texts may wait."""
SQUARE_MIN = 1e-280
"""Squared lengths below this may have lost digits, since the smallest numbers have fewer."""


class TextMovedError(MnemonError):
    """The text or the head of a record changed after its passages were made. A MnemonError is not logged."""


class _Passage(NamedTuple):
    """A passage without its vector: a part of a content, and the text that is embedded for it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class PlacedText:
    """A text, its start in the content of its record in code points, and the head that is embedded before it."""

    text: str
    start: int = 0
    head: str = ""

    @property
    def whole(self) -> str:
        """The text with its head."""
        return self.head + self.text

    def cut(self, spans: Sequence[Span]) -> list[_Passage]:
        """The passages, given the spans of `whole`."""
        shift = self.start - len(self.head)
        return [
            _Passage(max(self.start, shift + start), shift + end, self.whole[start:end])
            for start, end in ((span.start, span.end) for span in spans)
            # A model may read so little at once that a passage holds only a part of the head.
            if end > len(self.head) or not self.text
        ]


def placed(document: Document, heads: Heads) -> list[PlacedText]:
    """The text of a document with its head."""
    return [PlacedText(document.content, head=heads.of(normalised_metadata(document.metadata), document.content))]


async def embed_passages(
    embedder: EmbeddingBatcher, records: Sequence[Sequence[PlacedText]]
) -> list[list[PassageInput]]:
    """The passages of the texts of each record, all embedded together. Raises the errors of EmbeddingBatcher."""
    cut = _cut(records, await embedder.split([each.whole for texts in records for each in texts]))
    wanted = [passage.text for passages in cut for passage in passages]
    vectors: list[Vector] = []
    for first in range(0, len(wanted), TOGETHER_MAX):
        vectors += list(await embedder.embed(wanted[first : first + TOGETHER_MAX]))
    return _with_vectors(cut, vectors)


def embed_blocking(embedder: Embedder, records: Sequence[Sequence[PlacedText]]) -> list[list[PassageInput]]:
    """The same on this thread and without a queue."""
    cut = _cut(records, [embedder.split(each.whole) for texts in records for each in texts])
    wanted = [passage.text for passages in cut for passage in passages]
    return _with_vectors(cut, list(embedder.embed(embedder.model.as_passages(wanted))))


def _cut(records: Sequence[Sequence[PlacedText]], spans: Iterable[Sequence[Span]]) -> list[list[_Passage]]:
    of_texts = iter(spans)
    return [[passage for each in texts for passage in each.cut(next(of_texts))] for texts in records]


def _with_vectors(cut: Sequence[Sequence[_Passage]], vectors: Sequence[Vector]) -> list[list[PassageInput]]:
    of_passages = iter(vectors)
    return [[PassageInput(start, end, next(of_passages)) for start, end, _ in passages] for passages in cut]


async def given_or_made(
    given: Sequence[Made | None], make: Callable[[], Awaitable[Sequence[Made]]]
) -> list[Made | MnemonError]:
    """The given values, with each None replaced, in order, by a value that `make` returns. All of these are made, or
    fail, together.
    """
    made: Sequence[Made | MnemonError]
    try:
        made = await make() if any(each is None for each in given) else ()
    except MnemonError as error:
        made = [error] * len(given)
    of_missing = iter(made)
    return [next(of_missing) if each is None else each for each in given]


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
