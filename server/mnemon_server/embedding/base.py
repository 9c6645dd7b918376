"""The contract of an embedder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """The model that makes the vectors. Stores record it and refuse to open with a different one."""

    name: str
    revision: str
    precision: str
    dimension: int
    tokens_max: int
    """Maximum number of tokens that the model reads of one text, without special tokens and the prefix of a passage."""
    query_prefix: str = ""
    """The prefix of a query, such as `query: `; not part of the identity."""
    passage_prefix: str = ""
    """The prefix of a stored text. `embed` adds neither; see `as_query` and `as_passages`."""
    endpoint: str = ""
    """The URL to which texts are sent; empty if the model runs in this process. Not part of the identity."""

    @property
    def identity(self) -> str:
        """Vectors are comparable only if this value is equal for both."""
        return f"{self.name}@{self.revision}/{self.precision}/{self.dimension}"

    def as_query(self, text: str) -> str:
        """A query as `Embedder.embed` expects it."""
        return self.query_prefix + text

    def as_passages(self, texts: Sequence[str]) -> Sequence[str]:
        """Texts to be stored, as `Embedder.embed` expects them."""
        return [self.passage_prefix + text for text in texts] if self.passage_prefix else texts


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The operator's settings of a model that is not built in. None leaves it to the model's own configuration."""

    dimension: int | None = None
    """Number of leading numbers that are kept of each vector."""
    query_prefix: str | None = None
    passage_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text, in code points. `end` is exclusive."""

    start: int
    end: int


class Embedder(Protocol):
    """Turns texts into vectors. All methods block, and may be called from any thread."""

    @property
    def model(self) -> EmbeddingModel:
        """The model that makes the vectors."""

    @property
    def parallelism(self) -> int:
        """How many concurrent small calls of `embed` keep the cores busy; at least 1."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order, as an array of shape (len(texts), dimension).

        Text beyond the model's token limit is ignored, and an empty text is valid. A text gets the same vector whatever
        other texts are in the call, up to rounding (cosine 0.9999 in fp32).

        Raises:
            EmbeddingError: the model failed.
        """

    def split(self, text: str) -> list[Span]:
        """Splits a text into overlapping spans that cover it and fit the model's token limit; one span for a short
        text.
        """

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens that the model reads of each text, which determines the cost of a batch."""

    def coverage(self, text: str) -> float:
        """How well the model's vocabulary covers a text, 0 to 1; see `embedding/coverage.py`."""

    def forget(self) -> None:
        """Drops what it keeps of earlier texts."""

    def close(self) -> None:
        """Releases the model's memory. Later calls raise EmbeddingError."""
