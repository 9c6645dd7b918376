"""Models on ONNX Runtime: need no torch, and no network once their files are installed."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import EmbeddingModel, Span, Vectors
from mnemon_server.embedding.built_in import BuiltInModel
from mnemon_server.embedding.coverage import coverage, read_scripts
from mnemon_server.embedding.onnx_session import open_session
from mnemon_server.embedding.passages import Token, cut_passages
from mnemon_server.embedding.text_cache import TextCache, text_key

Tokens = NDArray[np.int32]
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
"""Names of the token for characters outside the vocabulary, of both kinds of vocabularies."""

_EMPTY = (0,)
"""The token for an empty text if the tokenizer adds no special tokens: a model cannot read nothing."""


class TextTokenizer:
    """A `tokenizer.json`, without its own truncation and padding. Plain exceptions are raised if it cannot be read.

    The model reads `sequence_max` tokens of one text, including special tokens.
    """

    def __init__(self, path: Path, sequence_max: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        padding = self._tokenizer.padding or {}
        self.padding_id: int = padding.get("pad_id", 0)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._unknown = {self._tokenizer.token_to_id(name) for name in UNKNOWN_TOKENS}
        self._sequence_max = sequence_max
        special = self._tokenizer.encode("a").special_tokens_mask
        self.special_tokens = sum(special)
        """Number of tokens that are added to each text."""
        self._closing = special[::-1].index(0) if 0 in special else 0
        """How many of these follow the text."""

    def encode(self, texts: Sequence[str], *, offsets: bool = False) -> list[Encoding]:
        """The encoding of each text. Without `offsets`, that is faster.

        Raises:
            EmbeddingError: the tokenizer failed.
        """
        encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            return encode([valid_text(text) for text in texts])
        except Exception as error:  # the library raises plain exceptions
            raise EmbeddingError(f"The tokenizer failed: {error}") from error

    def cut(self, encoding: Encoding) -> Tokens:
        """The ids that the model reads. A long text is truncated before its closing special tokens."""
        ids: Sequence[int] = encoding.ids or _EMPTY
        if len(ids) > self._sequence_max:
            kept = self._sequence_max - self._closing
            ids = [*ids[:kept], *ids[len(ids) - self._closing :]]
        return np.array(ids, np.int32)

    def id_of(self, token: str) -> int | None:
        """The id of a token, given as text."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def is_known(self, token: int) -> bool:
        """Whether a token is of the vocabulary, and does not stand for something that is not."""
        return token not in self._unknown

    @cached_property
    def read_scripts(self) -> frozenset[str]:
        """The scripts of which the vocabulary has more than single letters."""
        return read_scripts(self._tokenizer)


def valid_text(text: str) -> str:
    """The text without unpaired surrogates, which tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


Mask = NDArray[np.int64]
Pool = Callable[[Vectors, Mask], Vectors]
"""Pools the vectors of a text's tokens: shapes (batch, sequence, n) and (batch, sequence) become (batch, n)."""

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


SEQUENCE_MAX = 256
"""Number of tokens that the built-in models read, including special tokens."""

BATCH_TOKENS_MAX = 256
"""Maximum tokens, padding included, in one run of the model, so that its values fit a core's cache (1024 is a third
slower).
"""

TOKENIZED_TEXTS_KEPT = 4096
"""Maximum number of texts whose tokens are cached until they are embedded. At 256 tokens of 4 bytes each: 4 MiB."""


class OnnxEmbedder:
    """An `Embedder` for a graph on ONNX Runtime.

    It runs up to `threads` times concurrently; 0 means one for each core that the process may use. With `one_by_one`,
    each text is run separately, since its vector would depend on the others of a batch.
    """

    def __init__(
        self,
        encoder: Encoder,
        tokenizer: TextTokenizer,
        model: EmbeddingModel,
        *,
        threads: int = 0,
        one_by_one: bool = False,
    ) -> None:
        self._encoder: Encoder | None = encoder
        self._tokenizer, self.model = tokenizer, model
        self._batch_tokens_max = 1 if one_by_one else BATCH_TOKENS_MAX
        self.parallelism = threads or len(os.sched_getaffinity(0))
        """Maximum number of concurrent runs of the model for one call of `embed`."""
        self._tokens = TextCache[Tokens](TOKENIZED_TEXTS_KEPT)
        self._runners = ThreadPoolExecutor(self.parallelism, thread_name_prefix="embedding-run")

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`."""
        encoder = self._open()
        vectors = np.empty((len(texts), self.model.dimension), np.float32)
        tokens = self._tokenize(texts, self._tokens.take)
        batches = list(_batches([len(ids) for ids in tokens], self._batch_tokens_max))
        feeds = [[tokens[row] for row in rows] for rows in batches]
        for rows, result in zip(batches, self._run_all(encoder, feeds), strict=True):
            vectors[rows] = result
        return vectors

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each within the model's token limit."""
        self._open()
        (encoding,) = self._tokenizer.encode([text], offsets=True)
        if len(encoding.ids) - self._tokenizer.special_tokens <= self.model.tokens_max:
            if not self.model.passage_prefix:
                self._tokens.put(text_key(text), self._tokenizer.cut(encoding))
            return [Span(0, len(text))]
        tokens = [
            Token(start, end, word)
            for (start, end), word in zip(encoding.offsets, encoding.word_ids, strict=True)
            if word is not None
        ]
        return cut_passages(text, tokens, self.model.tokens_max)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens that the model reads of each text, without special tokens."""
        self._open()
        tokens = self._tokenize(texts, self._tokens.get)
        for text, ids in zip(texts, tokens, strict=True):
            self._tokens.put(text_key(text), ids)
        return [max(len(ids) - self._tokenizer.special_tokens, 0) for ids in tokens]

    def coverage(self, text: str) -> float:
        """How well the vocabulary covers a text, 0 to 1."""
        self._open()
        (encoding,) = self._tokenizer.encode([text], offsets=True)
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        known = (offsets for token, offsets in tokens if self._tokenizer.is_known(token))
        return coverage(text, known, self._tokenizer.read_scripts)

    def forget(self) -> None:
        """See Embedder."""
        self._tokens.clear()

    def close(self) -> None:
        """Waits for the runs in progress, and releases the model's memory."""
        self._encoder = None
        self._runners.shutdown(cancel_futures=True)

    def _open(self) -> Encoder:
        encoder = self._encoder
        if encoder is None:
            raise self._closed_error()
        return encoder

    def _closed_error(self) -> EmbeddingError:
        return EmbeddingError(f"The model {self.model.name} has been closed.")

    def _tokenize(self, texts: Sequence[str], find: Callable[[bytes], Tokens | None]) -> list[Tokens]:
        """The tokens of each text: from `find`, or from the tokenizer."""
        found = [find(text_key(text)) for text in texts]
        made = iter(self._tokenizer.encode([text for text, ids in zip(texts, found, strict=True) if ids is None]))
        return [self._tokenizer.cut(next(made)) if ids is None else ids for ids in found]

    def _run_all(self, encoder: Encoder, batches: Sequence[Sequence[Tokens]]) -> list[Vectors]:
        """The vectors of each batch, in order. A single batch runs in the calling thread."""
        if len(batches) <= 1 or self.parallelism == 1:
            return [self._run(encoder, batch) for batch in batches]
        try:
            return list(self._runners.map(lambda batch: self._run(encoder, batch), batches))
        except (CancelledError, RuntimeError) as error:
            # Not an error of the model: after their shutdown, the runners refuse new runs and cancel waiting ones.
            raise self._closed_error() from error

    def _run(self, encoder: Encoder, batch: Sequence[Tokens]) -> Vectors:
        try:
            return encoder.run(batch)
        except Exception as error:  # ONNX Runtime's errors have no common class
            raise EmbeddingError(f"The model {self.model.name} failed: {error}") from error


def open_built_graph(
    graph: Path, tokenizer: Path, *, built_in: BuiltInModel, revision: str, precision: str, threads: int
) -> OnnxEmbedder:
    """The embedder for a built-in model's graph from `input_ids` and `attention_mask` to `embedding`, of unit length.

    Raises:
        EmbeddingError: the graph or the tokenizer cannot be loaded.
    """
    try:
        tokens, session = TextTokenizer(tokenizer, SEQUENCE_MAX), open_session(graph)
    except Exception as error:  # both libraries raise plain exceptions of their own
        raise EmbeddingError(f"The model {built_in.name} cannot be loaded from {graph}: {error}") from error
    dimension = int(session.get_outputs()[0].shape[-1])
    (prefix,) = tokens.encode([built_in.passage_prefix])
    model = EmbeddingModel(
        built_in.name,
        revision,
        precision,
        dimension,
        SEQUENCE_MAX - len(prefix.ids),
        built_in.query_prefix,
        built_in.passage_prefix,
    )
    return OnnxEmbedder(Encoder(session, "embedding", is_normal=True), tokens, model, threads=threads)


def _batches(lengths: Sequence[int], tokens_max: int) -> Iterator[list[int]]:
    """Groups indices by length, longest first, to keep padding small and the size of a batch bounded."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while order:
        count = max(1, tokens_max // lengths[order[0]])
        yield order[:count]
        order = order[count:]
