"""All other models of the sentence-transformers family, on torch."""

import copy
import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import EmbeddingModel, Span, Vectors
from mnemon_server.embedding.coverage import coverage, read_scripts
from mnemon_server.embedding.onnx import valid_text
from mnemon_server.embedding.passages import Token, cut_passages

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EXTRA = "mnemon-server[sentence-transformers]"
_SEQUENCE_MAX_DEFAULT = 512
_BATCH_TEXTS = 32


class SentenceTransformersEmbedder:
    """An `Embedder` for a sentence-transformers model, in fp32 on the CPU.

    `model_dir` is used instead of the hub's cache. `threads` is for torch in the whole process; 0 leaves its setting
    unchanged.

    Raises:
        ConfigurationError: the extra is not installed, or the model has no fast tokenizer.
        EmbeddingError: the model's files are missing or cannot be loaded.
    """

    parallelism = 1
    """Torch distributes each call over the cores."""

    def __init__(
        self, name: str, *, model_dir: Path | None = None, allow_download: bool = False, threads: int = 0
    ) -> None:
        encoder = _load(name, model_dir, allow_download=allow_download, threads=threads)
        tokenizer = encoder.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigurationError(f"the embedding model {name} has no fast tokenizer; choose a model that has one")
        self._encoder: SentenceTransformer | None = encoder
        # A copy, because the model changes its tokenizer's padding and truncation while other threads count or split.
        self._tokenizer: Any = copy.deepcopy(tokenizer)
        sequence_max = encoder.max_seq_length or _SEQUENCE_MAX_DEFAULT
        self.model = EmbeddingModel(
            name,
            _revision(encoder),
            "fp32",
            int(encoder.encode([""]).shape[1]),
            sequence_max - tokenizer.num_special_tokens_to_add(),
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`."""
        encoder = self._open()
        if not texts:
            return np.empty((0, self.model.dimension), np.float32)
        try:
            vectors = encoder.encode(
                [valid_text(text) for text in texts],
                batch_size=_BATCH_TEXTS,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
        except Exception as error:  # torch and the model's own code raise arbitrary exceptions
            raise EmbeddingError(f"The model {self.model.name} failed: {error}") from error
        return np.asarray(vectors, np.float32)

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each within the model's token limit."""
        self._open()
        encoding = self._tokenize([text])[0]
        tokens = [
            Token(start, end, word) for (start, end), word in zip(encoding.offsets, encoding.word_ids, strict=True)
        ]
        return cut_passages(text, tokens, self.model.tokens_max)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens that the model reads of each text, without special tokens."""
        self._open()
        return [min(len(encoding.ids), self.model.tokens_max) for encoding in self._tokenize(texts)]

    def coverage(self, text: str) -> float:
        """How well the vocabulary covers a text, 0 to 1."""
        self._open()
        (encoding,) = self._tokenize([text])
        unknown = self._tokenizer.unk_token_id
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return coverage(text, (offsets for token, offsets in tokens if token != unknown), self._read_scripts)

    @cached_property
    def _read_scripts(self) -> frozenset[str]:
        return read_scripts(self._tokenizer.backend_tokenizer)

    def forget(self) -> None:
        """Does nothing, since no texts are cached."""

    def close(self) -> None:
        """Releases the model's memory."""
        self._encoder = None

    def _open(self) -> "SentenceTransformer":
        if self._encoder is None:
            raise EmbeddingError(f"The model {self.model.name} has been closed.")
        return self._encoder

    def _tokenize(self, texts: Sequence[str]) -> list[Any]:
        valid = [valid_text(text) for text in texts]
        if not valid:
            return []
        encoded = self._tokenizer(valid, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return list(encoded.encodings)


def _load(name: str, model_dir: Path | None, *, allow_download: bool, threads: int) -> "SentenceTransformer":
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigurationError(
            f"the embedding model {name} needs the extra {EXTRA}: run `pip install '{EXTRA}'`, "
            "or choose sentence-transformers/all-MiniLM-L6-v2, which needs nothing more"
        ) from error
    if threads:
        torch.set_num_threads(threads)
    try:
        return SentenceTransformer(
            str(model_dir) if model_dir else name, device="cpu", local_files_only=not allow_download
        )
    except Exception as error:  # the hub's client and the loaders raise errors of several libraries
        raise EmbeddingError(
            f"The embedding model {name} cannot be loaded: {error}. Set MNEMON_EMBEDDING_MODEL_DIR to a folder with "
            "its files, or allow the download from the Hugging Face hub once."
        ) from error


def _revision(encoder: "SentenceTransformer") -> str:
    """A digest of the weights, so that equal weights have the same revision wherever they come from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
