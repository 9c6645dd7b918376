"""Models behind an OpenAI-compatible endpoint: OpenAI, Ollama, vLLM, Text Embeddings Inference."""

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from mnemon_server.domain.errors import ConfigurationError, EmbeddingError, EmbeddingUnavailableError
from mnemon_server.embedding.base import EmbeddingModel, ModelOptions, Span, Vectors
from mnemon_server.embedding.passages import Token, cut_passages
from mnemon_server.endpoints.client import EndpointClient, EndpointError, EndpointSettings

# Estimates the tokens of a text for a model whose tokenizer is not known.


_WORD = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile("[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff]|[!-~]{1,4}|.{1,2}", re.DOTALL)
"""A CJK, Thai or Lao character, four characters of ASCII, or two others: rather too many tokens than too few."""


def estimated_tokens(text: str) -> list[Token]:
    """Tokens such as common vocabularies have them, rather too many than too few."""
    return [
        Token(piece.start(), piece.end(), number)
        for number, word in enumerate(_WORD.finditer(text))
        for piece in _PIECE.finditer(text, word.start(), word.end())
    ]


_log = structlog.get_logger()

NAME = "the embedding endpoint"
REQUESTS_MAX = 4
"""Number of concurrent requests unless another one is set."""

_PATH = "embeddings"
_REVISION_LENGTH = 16
_BLANK = "."
"""Sent instead of a blank text, which some endpoints refuse."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request."""

    texts_max: int = 32
    tokens_max: int = 8192
    passage_tokens: int = 256
    """Tokens of a passage. All tokens are estimated."""


class EndpointEmbedder:
    """An `Embedder` that sends texts to an endpoint, in up to `threads` concurrent requests; 0 means REQUESTS_MAX.

    The identity of its model consists of the model's name, the passage prefix and the dimension: the endpoint does not
    say which weights it runs, and may move to another URL. If the options do not set the number of leading numbers kept
    of each vector, the endpoint is asked for a vector, so it must be there at the start.

    Raises:
        ConfigurationError: the URL or the key file is invalid.
        EmbeddingError: the dimension is not set, and the endpoint does not tell it.
    """

    def __init__(
        self, name: str, settings: EndpointSettings, options: ModelOptions, limits: RequestLimits, *, threads: int = 0
    ) -> None:
        self._name, self._limits = name, limits
        self.parallelism = threads or REQUESTS_MAX
        """Maximum number of concurrent requests."""
        self._client = EndpointClient(settings)
        self._closed = threading.Event()
        self._numbers: int | None = None
        """How many numbers the endpoint's vectors have, once it has answered."""
        self._dimension = options.dimension
        prefix = options.passage_prefix or ""
        self.model = EmbeddingModel(
            name,
            hashlib.sha256(prefix.encode()).hexdigest()[:_REVISION_LENGTH] if prefix else "endpoint",
            "endpoint",
            options.dimension or self._told_dimension(),
            limits.passage_tokens,
            options.query_prefix or "",
            prefix,
            self._client.place,
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`.

        Raises:
            EmbeddingUnavailableError: the endpoint failed. The message says how.
        """
        vectors = np.empty((len(texts), self.model.dimension), np.float32)
        cut = [self._cut(text) for text in texts]
        for first, last in self._requests(cut):
            vectors[first:last] = self._ask(cut[first:last])
        return vectors

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each within the limit of a passage."""
        return cut_passages(text, estimated_tokens(text), self._limits.passage_tokens)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The estimated number of tokens of each text."""
        return [min(len(estimated_tokens(text)), self._limits.passage_tokens) for text in texts]

    def coverage(self, text: str) -> float:
        """Always 1: which languages the model reads is not known."""
        del text
        return 1.0

    def forget(self) -> None:
        """Does nothing, since no texts are cached."""

    def close(self) -> None:
        """Closes connections; waits between attempts end."""
        self._closed.set()
        self._client.close()

    def _told_dimension(self) -> int:
        try:
            return int(self._ask([_BLANK]).shape[1])
        except EmbeddingError as error:
            self.close()
            raise EmbeddingError(
                f"{error}. It ({self._client.place}) must be there at the start, to tell the dimension of the model "
                f"{self._name}. With embedding_dimensions, the server starts without it."
            ) from error

    def _cut(self, text: str) -> str:
        """The part of a text that is sent. The prefix of a passage counts as text."""
        tokens_max = 2 * self._limits.passage_tokens
        if not text.strip():
            return _BLANK
        if len(text) <= tokens_max:
            return text
        tokens = estimated_tokens(text)
        return text if len(tokens) <= tokens_max else text[: tokens[tokens_max].start]

    def _requests(self, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The range of texts of each request."""
        first = tokens = 0
        for last, text in enumerate(texts):
            count = len(estimated_tokens(text))
            if last > first and (last - first >= self._limits.texts_max or tokens + count > self._limits.tokens_max):
                yield first, last
                first, tokens = last, 0
            tokens += count
        if first < len(texts):
            yield first, len(texts)

    def _ask(self, texts: Sequence[str]) -> Vectors:
        if self._closed.is_set():
            raise EmbeddingError(f"The model {self._name} has been closed.")
        try:
            answer = self._client.post(_PATH, {"model": self._name, "input": list(texts)})
            return self._vectors(answer, len(texts))
        except EndpointError as error:
            raise EmbeddingUnavailableError(str(error)) from error
        except ConfigurationError as error:
            # It names a path, which is not for clients.
            _log.error("the key of the embedding endpoint cannot be used", reason=str(error))
            raise EmbeddingUnavailableError(f"the key of {NAME} cannot be used; the server's log says why") from error

    def _vectors(self, answer: Any, count: int) -> Vectors:
        """The vectors of an answer, in the order of the texts, shortened and of unit length."""
        rows = _numbers(_in_order(answer, count))
        if rows.shape[1] != (self._numbers or rows.shape[1]) or rows.shape[1] < (self._dimension or 1):
            expected = self._numbers or f"at least {self._dimension or 1}"
            raise EndpointError(f"{NAME} answered vectors of {rows.shape[1]} numbers instead of {expected}")
        vectors = rows[:, : self._dimension]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EndpointError(f"{NAME} answered a vector that is zero or not finite")
        self._numbers = rows.shape[1]
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit


def _in_order(answer: Any, count: int) -> list[Any]:
    """The vectors of an answer, by their `index`, which some endpoints leave out."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise EndpointError(f"{NAME} did not answer as OpenAI's API does: there is no list data of objects")
    if len(data) != count:
        raise EndpointError(f"{NAME} answered {len(data)} vectors for {count} texts")
    places = [item.get("index", number) for number, item in enumerate(data)]
    if not all(type(place) is int for place in places) or sorted(places) != list(range(count)):
        raise EndpointError(f"{NAME} answered vectors whose index is not that of a text each")
    vectors: list[Any] = [None] * count
    for place, item in zip(places, data, strict=True):
        vectors[place] = item.get("embedding")
    return vectors


def _numbers(vectors: Sequence[Any]) -> NDArray[np.float64]:
    # NumPy would also read texts and truth values as numbers.
    if all(isinstance(vector, list) and {*map(type, vector)} <= {int, float} for vector in vectors):
        with suppress(ValueError, OverflowError):  # lists of different lengths, integers of hundreds of digits
            return np.array(vectors, np.float64)
    raise EndpointError(f"{NAME} answered vectors that are not lists of numbers, or of different lengths")
