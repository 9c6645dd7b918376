"""The models in process, without a server: the baseline for the server."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from mnemon import EmbeddingModel
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.weights import package_folder


@contextmanager
def bare_embedder(model: EmbeddingModel) -> Iterator[Embedder]:
    """The model that a server runs, with the server's default settings."""
    precision = cast("Literal['int8', 'fp32']", model.precision)
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-model-") as folder,
        closing(open_embedder(model.name, precision=precision, model_dir=None, cache_dir=Path(folder))) as embedder,
    ):
        if embedder.model.identity != f"{model.name}@{model.revision}/{model.precision}/{model.dimension}":
            raise ValueError(f"the server runs {model}, here is {embedder.model.identity}")
        yield embedder


@contextmanager
def sentence_transformers_embedder() -> Iterator[Embedder | None]:
    """The default model on torch. None if the extra or the package of its weights is not installed."""
    folder = package_folder(MINILM)
    if folder is None or find_spec("sentence_transformers") is None:
        yield None
        return
    # Imported here because torch takes seconds to load and may be missing.
    from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder

    with closing(SentenceTransformersEmbedder(MINILM.name, model_dir=folder)) as embedder:
        yield embedder
