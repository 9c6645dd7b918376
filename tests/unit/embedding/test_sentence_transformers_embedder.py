"""Any other model through the extra: local files are used, and a missing extra is named."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.factory import open_embedder

from tests.support.embedding_references import reference_texts, references

pytestmark = [
    # When torch is imported for the first time, Python compiles its thousands of files.
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

NAME = "someone/some-model"


@pytest.fixture(scope="module")
def embedder(weights_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        embedder = open_embedder(
            NAME, precision="int8", model_dir=weights_folder, cache_dir=tmp_path_factory.mktemp("unused")
        )
        yield embedder
        embedder.close()


@pytest.mark.reference
def test_a_local_folder_is_loaded_and_its_identity_recorded(embedder: Embedder) -> None:
    model = embedder.model
    assert (model.name, model.precision, model.dimension, model.tokens_max) == (NAME, "fp32", 384, 254)
    assert len(model.revision) == 16


@pytest.mark.reference
def test_vectors_agree_with_the_default_embedder(embedder: Embedder, int8_embedder: Embedder) -> None:
    texts = ["", "a river", "word " * 1000, "broken \ud800 text"]
    vectors = embedder.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert (vectors * int8_embedder.embed(texts)).sum(axis=1).min() > 0.98
    assert embedder.embed([]).shape == (0, 384)


@pytest.mark.reference
def test_the_stored_reference_vectors_are_those_of_torch(embedder: Embedder) -> None:
    vectors = embedder.embed(reference_texts()[::4])
    assert (vectors * references()[::4]).sum(axis=1).min() > 0.9999


@pytest.mark.reference
def test_passages_and_counts_are_those_of_the_same_tokenizer(embedder: Embedder, int8_embedder: Embedder) -> None:
    text = "Some words of a sentence, 猫 and antidisestablishmentarianism. " * 100
    assert embedder.split(text) == int8_embedder.split(text)
    assert embedder.token_counts(["", text, "three words here"]) == [0, 254, 3]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigurationError, match=r"mnemon-server\[sentence-transformers\]"):
        open_embedder(NAME, precision="fp32", model_dir=None, cache_dir=tmp_path)


@pytest.mark.reference
def test_missing_files_are_an_error_that_names_the_ways_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EmbeddingError, match="MNEMON_EMBEDDING_MODEL_DIR"):
        open_embedder(NAME, precision="fp32", model_dir=tmp_path / "nowhere", cache_dir=tmp_path)


@pytest.mark.reference
def test_a_closed_embedder_says_so(weights_folder: Path, tmp_path: Path) -> None:
    embedder = open_embedder(NAME, precision="fp32", model_dir=weights_folder, cache_dir=tmp_path)
    embedder.close()
    with pytest.raises(EmbeddingError, match="closed"):
        embedder.embed(["text"])
