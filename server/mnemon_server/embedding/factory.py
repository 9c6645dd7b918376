"""Opening the embedder that a name stands for."""

from collections.abc import Callable
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.graph_cache import GraphCache, Precision
from mnemon_server.embedding.hashing import HashingEmbedder
from mnemon_server.embedding.weights import MODEL_NAME, WEIGHTS_SHA256, ModelFiles, find_model

HASHING_MODEL = "hashing"
PRECISIONS: tuple[Precision, ...] = ("int8", "fp32")
DEFAULT_NAMES = frozenset({MODEL_NAME, MODEL_NAME.rpartition("/")[2]})
_REVISION_LENGTH = 16


def open_embedder(
    model: str,
    *,
    precision: Precision,
    model_dir: Path | None,
    cache_dir: Path,
    threads: int = 0,
    allow_download: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Embedder:
    """Opens the embedder for a model's name; the caller closes it.

    Args:
        model: `sentence-transformers/all-MiniLM-L6-v2`, also without its first part, runs on ONNX Runtime. `hashing`
            knows no meaning, and is for tests and trials only. Any other name is a sentence-transformers model, which
            needs the extra `mnemon[sentence-transformers]`.
        precision: of the default model; every other one computes in fp32, and says so in its `model`.
        model_dir: a folder with the model's files, or None to look in the cache and the installed package.
        cache_dir: a folder of our own, where built graphs are kept.
        threads: runs of the model at the same time; 0 takes all cores.
        allow_download: whether the hub may be asked for what is missing.
        progress: told, in a few words, what takes long.

    Raises:
        ConfigurationError: the precision is unknown, or the extra is missing.
        EmbeddingError: the model's files are missing, wrong or unusable; the message says the ways to get them.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(f"the embedding precision {precision!r} is unknown; choose int8 or fp32")
    if model == HASHING_MODEL:
        return HashingEmbedder()
    if model in DEFAULT_NAMES:
        return _open_default(precision, model_dir, cache_dir, threads, allow_download=allow_download, progress=progress)
    # Imported where it is needed: nothing of torch is touched for the default model.
    from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(model, model_dir=model_dir, allow_download=allow_download, threads=threads)


def prepare_model(
    model: str,
    *,
    precision: Precision,
    model_dir: Path | None,
    cache_dir: Path,
    allow_download: bool = True,
    progress: Callable[[str], None] | None = None,
) -> str:
    """Does beforehand what the first start would do, tries the model once, and returns its identity.

    Raises:
        ConfigurationError, EmbeddingError: as `open_embedder`.
    """
    embedder = open_embedder(
        model,
        precision=precision,
        model_dir=model_dir,
        cache_dir=cache_dir,
        allow_download=allow_download,
        progress=progress,
    )
    try:
        embedder.embed(["ready"])
        return embedder.model.identity
    finally:
        embedder.close()


def _open_default(
    precision: Precision,
    model_dir: Path | None,
    cache_dir: Path,
    threads: int,
    *,
    allow_download: bool,
    progress: Callable[[str], None] | None,
) -> Embedder:
    from mnemon_server.embedding.onnx import OnnxEmbedder

    cache = GraphCache(cache_dir)
    files = None if model_dir is None else find_model(model_dir, cache_dir)
    kept = _kept_graph(cache, files, precision)
    if kept is None:
        files = files or find_model(None, cache_dir, allow_download=allow_download, progress=progress)
        kept = cache.build(files, precision, progress)
    digest = files.digest if files else WEIGHTS_SHA256
    return OnnxEmbedder(
        kept,
        cache.tokenizer,
        name=MODEL_NAME,
        revision=digest[:_REVISION_LENGTH],
        precision=precision,
        threads=threads,
    )


def _kept_graph(cache: GraphCache, files: ModelFiles | None, precision: Precision) -> Path | None:
    """The graph of an earlier start: with it, and the tokenizer beside it, the weights are not needed."""
    if not cache.has_tokenizer():
        return None
    return cache.find(files.digest if files else WEIGHTS_SHA256, precision)
