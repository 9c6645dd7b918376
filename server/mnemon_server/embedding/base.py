"""What an embedder promises."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """Which model makes the vectors. Stores record it, and refuse to be opened with another."""

    name: str
    revision: str
    precision: str
    dimension: int
    tokens_max: int
    """Tokens that the model reads of one text, its two special tokens not counted."""

    @property
    def identity(self) -> str:
        """What must be equal for two vectors to be comparable."""
        return f"{self.name}@{self.revision}/{self.precision}/{self.dimension}"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text, in code points; `end` is one past the last."""

    start: int
    end: int


class Embedder(Protocol):
    """Turns texts into vectors. All methods block, and may be called from any thread."""

    @property
    def model(self) -> EmbeddingModel:
        """The model that makes the vectors."""

    @property
    def parallelism(self) -> int:
        """How many small calls of `embed` at the same time keep the cores busy; at least 1."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order, as an array of shape (len(texts), dimension).

        A text longer than the model reads is cut, an empty text is as good as any other. The same text gets the same
        vector whatever it is embedded together with, up to rounding (cosine 0.9999 in fp32).

        Raises:
            EmbeddingError: the model failed.
        """

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the whole text, each short enough to be read whole; one for a short text."""

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens the model reads of each text: what a batch costs."""

    def close(self) -> None:
        """Gives the model's memory back. Calls after it raise EmbeddingError."""
