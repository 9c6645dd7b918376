"""A graph on ONNX Runtime, from tokens to vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import Vectors
from mnemon_server.embedding.token_cache import Tokens

Mask = NDArray[np.int64]
Pool = Callable[[Vectors, Mask], Vectors]
"""Makes one vector of those of a text's tokens: shapes (batch, sequence, n) and (batch, sequence) become (batch, n)."""

INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
"""The types of a graph's inputs, in ONNX Runtime's words."""

INPUTS: dict[str, Callable[[NDArray[Any], Mask], NDArray[Any]]] = {
    "input_ids": lambda ids, _: ids,
    "attention_mask": lambda _, mask: mask,
    "token_type_ids": lambda ids, _: np.zeros_like(ids),
    "position_ids": lambda ids, _: np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
}
"""How each input that a graph may have is computed from token ids and their mask."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Runs a graph."""

    session: ort.InferenceSession
    output: str
    """Name of the output with the vectors."""
    padding_id: int = 0
    pool: Pool | None = None
    """None if the output has one vector for each text."""
    dimension: int | None = None
    """Number of leading numbers that are kept of each vector; None keeps all."""
    is_normal: bool = False
    """Whether the graph gives vectors of unit length itself."""

    def run(self, batch: Sequence[Tokens]) -> Vectors:
        """The vectors of unit length of texts, given as tokens. Raises exceptions of ONNX Runtime, and EmbeddingError.

        All texts are computed together, so the longest one determines the cost of each.
        """
        ids, mask = self._padded(batch)
        feed = {
            value.name: np.asarray(INPUTS[value.name](ids, mask), INTEGERS[value.type])
            for value in self.session.get_inputs()
        }
        (result,) = self.session.run([self.output], feed)
        vectors = np.asarray(result, np.float32)
        if self.is_normal:
            return vectors
        return _normalised((self.pool(vectors, mask) if self.pool else vectors)[:, : self.dimension])

    def _padded(self, batch: Sequence[Tokens]) -> tuple[NDArray[np.int64], Mask]:
        ids = np.full((len(batch), max(map(len, batch))), self.padding_id, np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        return ids, mask


def first_token(vectors: Vectors, mask: Mask) -> Vectors:
    """The vector of the first token, which such models call CLS."""
    del mask
    first: Vectors = vectors[:, 0]
    return first


def mean_of_tokens(vectors: Vectors, mask: Mask) -> Vectors:
    """The mean over a text's tokens, special ones included."""
    weights = mask.astype(np.float32)
    mean: Vectors = np.einsum("bsh,bs->bh", vectors, weights) / weights.sum(axis=1, keepdims=True)
    return mean


def last_token(vectors: Vectors, mask: Mask) -> Vectors:
    """The vector of a text's last token."""
    last: Vectors = vectors[np.arange(len(vectors)), mask.sum(axis=1) - 1]
    return last


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise EmbeddingError("The model computed a vector that is zero or not finite.")
    unit: Vectors = (vectors / lengths).astype(np.float32)
    return unit
