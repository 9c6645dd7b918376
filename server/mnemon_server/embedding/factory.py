"""Opens the embedder for a model name."""

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import Embedder, EmbeddingModel, ModelOptions, Span, Vectors
from mnemon_server.embedding.built_in import BuiltInModel, built_in_model
from mnemon_server.embedding.graph_cache import GraphCache, Precision
from mnemon_server.embedding.passages import Token, cut_passages
from mnemon_server.embedding.weights import find_model, graph_package_folder

# An embedder without a model, for tests and trials: texts with common words get similar vectors.


_WORD = re.compile(r"\w+")
_PASSAGE_OVERLAP = 8


class HashingEmbedder:
    """An `Embedder` that hashes the words of a text into a bag of words. It is deterministic everywhere, and cheap."""

    parallelism = 1
    """The work is pure Python."""

    def __init__(self, dimension: int = 64, passage_words: int = 200) -> None:
        self.model = EmbeddingModel("hashing", "1", "fp32", dimension, passage_words)
        self._closed = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text, in order; see `Embedder.embed`."""
        self._check_open()
        vectors = np.zeros((len(texts), self.model.dimension), np.float32)
        for row, text in enumerate(texts):
            self._add_words(vectors[row], text)
        return vectors

    def split(self, text: str) -> list[Span]:
        """Overlapping spans that cover the text, each of at most `passage_words` words."""
        self._check_open()
        tokens = [Token(match.start(), match.end()) for match in _WORD.finditer(text)]
        overlap = min(_PASSAGE_OVERLAP, self.model.tokens_max // 4)
        return cut_passages(text, tokens, self.model.tokens_max, overlap)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of words in each text."""
        self._check_open()
        return [min(len(_WORD.findall(text)), self.model.tokens_max) for text in texts]

    def coverage(self, text: str) -> float:
        """Always 1: words of every language are hashed alike."""
        self._check_open()
        return 1.0

    def forget(self) -> None:
        """Does nothing, since no texts are cached."""

    def close(self) -> None:
        """Closes the embedder. Later calls raise EmbeddingError."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EmbeddingError("The model hashing has been closed.")

    def _add_words(self, vector: Vectors, text: str) -> None:
        for word in _WORD.findall(text.lower())[: self.model.tokens_max]:
            digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
            position = int.from_bytes(digest[:7], "big") % len(vector)
            vector[position] += 1.0 if digest[7] & 1 else -1.0
        if not vector.any():
            vector[0] = 1.0
        vector /= np.linalg.norm(vector)


HASHING_MODEL = "hashing"
PRECISIONS: tuple[Precision, ...] = ("int8", "fp32")
_REVISION_LENGTH = 16
_NO_OPTIONS = ModelOptions()


def open_embedder(
    model: str,
    *,
    precision: Precision,
    model_dir: Path | None,
    cache_dir: Path | None,
    threads: int = 0,
    allow_download: bool = False,
    progress: Callable[[str], None] | None = None,
    options: ModelOptions = _NO_OPTIONS,
) -> Embedder:
    """Opens the embedder for a model's name. The caller must close it.

    `sentence-transformers/all-MiniLM-L6-v2`, with or without its first part, `multilingual` and
    `universal-sentence-encoder-multilingual` are built in and run on ONNX Runtime. `hashing` has no notion of meaning
    and is only for tests and trials. A path, absolute or beginning with `./`, `../` or `~`, is a folder with any
    model's ONNX graph; see `folder.py`. Any other name is a sentence-transformers model, which needs the extra
    `mnemon-server[sentence-transformers]`.

    The precision is for built-in models: all others compute in fp32, and their `model` says so. Without `model_dir`,
    files are looked for in the cache and the installed packages. `cache_dir` keeps built graphs. `threads` is the
    maximum number of concurrent runs of the model; 0 uses all cores. `progress` is called with a short text before each
    slow step.

    Raises:
        ConfigurationError: the precision is unknown, the extra is missing, or the model has no such options.
        EmbeddingError: the model's files are missing, wrong or unusable. The message says how to get them.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(f"the embedding precision {precision!r} is unknown; it must be int8 or fp32")
    if is_folder_name(model):
        # Imported here, because the default model needs no onnx to start.
        from mnemon_server.embedding.folder import open_folder

        return open_folder(model, options, threads=threads)
    if options != _NO_OPTIONS:
        raise ConfigurationError(
            f"embedding_dimensions, embedding_query_prefix and embedding_passage_prefix must not be set for the model "
            f"{model}; they are for models in a folder or behind an endpoint"
        )
    if model == HASHING_MODEL:
        return HashingEmbedder()
    if (built_in := built_in_model(model)) is not None:
        return _open_built_in(
            built_in, precision, model_dir, cache_dir, threads, allow_download=allow_download, progress=progress
        )
    # Imported here, because the default model must not load torch.
    from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(model, model_dir=model_dir, allow_download=allow_download, threads=threads)


def is_folder_name(model: str) -> bool:
    """Whether the name of a model is a path: absolute, or beginning with `./`, `../` or `~`."""
    return model.startswith(("/", "./", "../", "~"))


def _open_built_in(
    model: BuiltInModel,
    precision: Precision,
    model_dir: Path | None,
    cache_dir: Path | None,
    threads: int,
    *,
    allow_download: bool,
    progress: Callable[[str], None] | None,
) -> Embedder:
    from mnemon_server.embedding.onnx import open_built_graph

    files = None if model_dir is None else find_model(model, model_dir, cache_dir)
    digest = files.digest if files else model.weights.sha256
    kept = _kept_graph(model, digest, precision, cache_dir)
    if kept is None:
        files = files or find_model(model, None, cache_dir, allow_download=allow_download, progress=progress)
        if cache_dir is None:
            raise EmbeddingError("There is no cache folder for the model's graph: set model_cache_dir, or HOME.")
        cache = GraphCache(cache_dir, model)
        kept = cache.build(files, precision, progress), cache.tokenizer
    return open_built_graph(
        *kept, built_in=model, revision=digest[:_REVISION_LENGTH], precision=precision, threads=threads
    )


def _kept_graph(
    model: BuiltInModel, digest: str, precision: Precision, cache_dir: Path | None
) -> tuple[Path, Path] | None:
    """The graph that an earlier start built or that is installed, and its tokenizer. They make weights unnecessary."""
    for folder in (cache_dir, graph_package_folder(model)):
        with suppress(PermissionError):  # The cache may be in the home of the user who started this one's process.
            if folder is None or not (cache := GraphCache(folder, model)).has_tokenizer():
                continue
            if (graph := cache.find(digest, precision)) is not None:
                return graph, cache.tokenizer
    return None
