"""The default model on ONNX Runtime: needs no torch, and no network once its files are installed."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import EmbeddingModel, Span, Vectors
from mnemon_server.embedding.coverage import coverage
from mnemon_server.embedding.graph_cache import Precision
from mnemon_server.embedding.onnx_session import open_session
from mnemon_server.embedding.passages import Token, cut_passages
from mnemon_server.embedding.token_cache import TokenCache, Tokens

SEQUENCE_MAX = 256
"""Number of tokens that the model was trained to read, including its two special tokens."""

SPECIAL_TOKENS = 2
BATCH_TOKENS_MAX = 256
"""Maximum tokens, padding included, in one run of the model, so that its values fit a core's cache (1024 is a third
slower).
"""

UNKNOWN_TOKENS = ("[UNK]", "<unk>")
"""Names of the token for characters outside the vocabulary, of both kinds of vocabularies."""

TOKENIZED_TEXTS_KEPT = 4096
"""Maximum number of texts whose tokens are cached until they are embedded. At 256 tokens of 4 bytes each: 4 MiB."""


class OnnxEmbedder:
    """An `Embedder` for an ONNX graph that maps token ids to sentence embeddings.

    Args:
        graph: the graph, from `input_ids` and `attention_mask` to `embedding`.
        tokenizer: the model's `tokenizer.json`.
        name, revision, precision: what the stores record about the model.
        threads: maximum number of concurrent runs of the model; 0 means one for each core that the process may use.

    Raises:
        EmbeddingError: the graph or the tokenizer cannot be loaded.
    """

    def __init__(
        self, graph: Path, tokenizer: Path, *, name: str, revision: str, precision: Precision, threads: int = 0
    ) -> None:
        try:
            self._tokenizer = _open_tokenizer(tokenizer)
            self._session: ort.InferenceSession | None = open_session(graph)
        except Exception as error:  # both libraries raise plain exceptions of their own
            raise EmbeddingError(f"The model {name} cannot be loaded from {graph}: {error}") from error
        self._unknown = {self._tokenizer.token_to_id(name) for name in UNKNOWN_TOKENS}
        self._inputs = {value.name for value in self._session.get_inputs()}
        dimension = int(self._session.get_outputs()[0].shape[-1])
        self._model = EmbeddingModel(name, revision, precision, dimension, SEQUENCE_MAX - SPECIAL_TOKENS)
        self._parallelism = threads or len(os.sched_getaffinity(0))
        self._tokens = TokenCache(TOKENIZED_TEXTS_KEPT)
        self._runners = ThreadPoolExecutor(self._parallelism, thread_name_prefix="embedding-run")

    @property
    def model(self) -> EmbeddingModel:
        """The model that makes the vectors."""
        return self._model

    @property
    def parallelism(self) -> int:
        """Maximum number of concurrent runs of the model for one call of `embed`."""
        return self._parallelism

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`."""
        session = self._open()
        vectors = np.empty((len(texts), self._model.dimension), np.float32)
        tokens = self._tokenize(texts, self._tokens.take)
        batches = list(_batches([len(ids) for ids in tokens]))
        feeds = [[tokens[row] for row in rows] for rows in batches]
        for rows, result in zip(batches, self._run_all(session, feeds), strict=True):
            vectors[rows] = result
        return vectors

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each within the model's token limit."""
        self._open()
        (encoding,) = self._encode([text], offsets=True)
        if len(encoding.ids) <= SEQUENCE_MAX:
            self._tokens.put(text, _cut(encoding))
            return [Span(0, len(text))]
        tokens = [
            Token(start, end, word)
            for (start, end), word in zip(encoding.offsets, encoding.word_ids, strict=True)
            if word is not None
        ]
        return cut_passages(text, tokens, self._model.tokens_max)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens that the model reads of each text, without special tokens."""
        self._open()
        tokens = self._tokenize(texts, self._tokens.get)
        for text, ids in zip(texts, tokens, strict=True):
            self._tokens.put(text, ids)
        return [len(ids) - SPECIAL_TOKENS for ids in tokens]

    def coverage(self, text: str) -> float:
        """How well the vocabulary covers a text, 0 to 1."""
        self._open()
        (encoding,) = self._encode([text], offsets=True)
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return coverage(text, (offsets for token, offsets in tokens if token not in self._unknown))

    def close(self) -> None:
        """Waits for the runs in progress, and releases the model's memory."""
        self._session = None
        self._runners.shutdown(cancel_futures=True)

    def _open(self) -> ort.InferenceSession:
        session = self._session
        if session is None:
            raise self._closed_error()
        return session

    def _closed_error(self) -> EmbeddingError:
        return EmbeddingError(f"The model {self._model.name} has been closed.")

    def _tokenize(self, texts: Sequence[str], find: Callable[[str], Tokens | None]) -> list[Tokens]:
        """The tokens of each text: from `find`, or from the tokenizer."""
        found = [find(text) for text in texts]
        made = iter(self._encode([text for text, ids in zip(texts, found, strict=True) if ids is None]))
        return [_cut(next(made)) if ids is None else ids for ids in found]

    def _encode(self, texts: Sequence[str], *, offsets: bool = False) -> list[Encoding]:
        encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            return encode([_valid(text) for text in texts])
        except Exception as error:
            raise EmbeddingError(f"The tokenizer failed: {error}") from error

    def _run_all(self, session: ort.InferenceSession, batches: Sequence[Sequence[Tokens]]) -> list[Vectors]:
        """The vectors of each batch, in order. A single batch runs in the calling thread."""
        if len(batches) <= 1 or self._parallelism == 1:
            return [self._run(session, batch) for batch in batches]
        try:
            return list(self._runners.map(lambda batch: self._run(session, batch), batches))
        except (CancelledError, RuntimeError) as error:
            # Not an error of the model: after their shutdown, the runners refuse new runs and cancel waiting ones.
            raise self._closed_error() from error

    def _run(self, session: ort.InferenceSession, batch: Sequence[Tokens]) -> Vectors:
        try:
            (vectors,) = session.run(["embedding"], self._feed(batch))
        except Exception as error:  # ONNX Runtime's errors have no common class
            raise EmbeddingError(f"The model {self._model.name} failed: {error}") from error
        return np.asarray(vectors, np.float32)

    def _feed(self, batch: Sequence[Tokens]) -> dict[str, NDArray[np.int64]]:
        ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feed = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = np.zeros_like(ids)
        return feed


def _open_tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _valid(text: str) -> str:
    # The tokenizer refuses unpaired surrogates.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _cut(encoding: Encoding) -> Tokens:
    """The ids that the model reads. A long text is truncated before its closing special token."""
    ids: list[int] = encoding.ids
    return np.array(ids if len(ids) <= SEQUENCE_MAX else [*ids[: SEQUENCE_MAX - 1], ids[-1]], np.int32)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Groups indices by length, longest first, to keep padding small and the size of a batch bounded."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while order:
        count = max(1, BATCH_TOKENS_MAX // lengths[order[0]])
        yield order[:count]
        order = order[count:]
