"""An embedder without a model, for tests and trials: texts with common words get similar vectors."""

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import EmbeddingModel, Span, Vectors
from mnemon_server.embedding.passages import Token, cut_passages

_WORD = re.compile(r"\w+")
_PASSAGE_OVERLAP = 8


class HashingEmbedder:
    """An `Embedder` that hashes the words of a text into a bag of words. It is deterministic on every machine, and
    cheap.

    Args:
        dimension: length of a vector.
        passage_words: maximum number of words in a passage, at least 1.
    """

    def __init__(self, dimension: int = 64, passage_words: int = 200) -> None:
        self._model = EmbeddingModel("hashing", "1", "fp32", dimension, passage_words)
        self._closed = False

    @property
    def model(self) -> EmbeddingModel:
        """The model that makes the vectors."""
        return self._model

    @property
    def parallelism(self) -> int:
        """Always 1: the work is pure Python."""
        return 1

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`."""
        self._check_open()
        vectors = np.zeros((len(texts), self._model.dimension), np.float32)
        for row, text in enumerate(texts):
            self._add_words(vectors[row], text)
        return vectors

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each of at most `passage_words` words."""
        self._check_open()
        tokens = [Token(match.start(), match.end()) for match in _WORD.finditer(text)]
        overlap = min(_PASSAGE_OVERLAP, self._model.tokens_max // 4)
        return cut_passages(text, tokens, self._model.tokens_max, overlap)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of words in each text."""
        self._check_open()
        return [min(len(_WORD.findall(text)), self._model.tokens_max) for text in texts]

    def coverage(self, text: str) -> float:
        """Always 1: words of every language are hashed alike."""
        self._check_open()
        return 1.0

    def forget(self) -> None:
        """Does nothing: it keeps no texts."""

    def close(self) -> None:
        """Closes the embedder. Later calls raise EmbeddingError."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EmbeddingError("The model hashing has been closed.")

    def _add_words(self, vector: Vectors, text: str) -> None:
        for word in _WORD.findall(text.lower())[: self._model.tokens_max]:
            digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
            position = int.from_bytes(digest[:7], "big") % len(vector)
            vector[position] += 1.0 if digest[7] & 1 else -1.0
        if not vector.any():
            vector[0] = 1.0
        vector /= np.linalg.norm(vector)
