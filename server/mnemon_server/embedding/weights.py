"""Finds the files of a built-in model, and verifies them."""

import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.built_in import MODEL_SETTING, BuiltInModel
from mnemon_server.embedding.files import sha256_of

ONNX_FILES = ("onnx/model.onnx", "model.onnx")

Progress = Callable[[str], None]


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
    model: BuiltInModel,
    model_dir: Path | None,
    cache_dir: Path | None,
    *,
    allow_download: bool = False,
    progress: Progress | None = None,
) -> ModelFiles:
    """Finds the files of a built-in model in the configured folder, the cache, the installed package or the hub.

    If a folder is configured, only that folder is used. Otherwise the first place that has the files is used. A damaged
    file there is an error; the search does not continue with the next place.

    Raises:
        EmbeddingError: no place has the files, or they are not those of the model. The message says how to get them.
    """
    if model_dir is not None:
        return _open_configured(model, model_dir)
    for folder in (cache_dir, package_folder(model)):
        with suppress(PermissionError):
            if folder is not None and (folder / model.weights.name).is_file():
                return _open_weights(model, folder)
    if allow_download and model.hub_revision is not None and cache_dir is not None:
        return _open_weights(model, _download(model, cache_dir, progress))
    raise EmbeddingError(f"The weights of {model.name} are not on this machine. {model.ways}.")


def package_folder(model: BuiltInModel) -> Path | None:
    """The folder with the files of the installed weights package, found without importing the package."""
    try:
        files = metadata.files(model.package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).resolve().parent for file in files if file.name == model.weights.name), None)


def graph_package_folder(model: BuiltInModel) -> Path | None:
    """The folder of the installed package with the built graph, found without importing the package."""
    spec = importlib.util.find_spec(model.graph_package) if model.graph_package else None
    return Path(spec.origin).parent if spec and spec.origin else None


def _open_configured(model: BuiltInModel, folder: Path) -> ModelFiles:
    for name in ONNX_FILES:
        if (folder / name).is_file():
            return ModelFiles(model.verified(folder, model.tokenizer), folder / name, sha256_of(folder / name))
    if not (folder / model.weights.name).is_file():
        raise EmbeddingError(f"The folder {folder} ({MODEL_SETTING}) has no {model.weights.name}. {model.ways}.")
    return _open_weights(model, folder)


def _open_weights(model: BuiltInModel, folder: Path) -> ModelFiles:
    weights = model.verified(folder, model.weights)
    return ModelFiles(model.verified(folder, model.tokenizer), weights, model.weights.sha256)


def _download(model: BuiltInModel, cache_dir: Path, progress: Progress | None) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise EmbeddingError(
            f"The weights of {model.name} are not on this machine, and HF_HUB_OFFLINE forbids the download. "
            f"{model.ways}."
        )
    # Imported here, because a start that finds the weights does not need it.
    from huggingface_hub import hf_hub_download

    if progress is not None:
        progress(f"downloading {model.name} from the Hugging Face hub")
    try:
        for file in (model.tokenizer, model.weights):
            hf_hub_download(model.name, file.name, revision=model.hub_revision, local_dir=cache_dir)
    except Exception as error:  # the hub's client raises errors of several libraries
        raise EmbeddingError(
            f"The Hugging Face hub did not provide the weights of {model.name}: {error}. {model.ways}."
        ) from error
    return cache_dir
