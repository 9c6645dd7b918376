"""The zero of a model: the cosine of unrelated texts."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from mnemon_server.embedding.base import Vectors
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.embedding.onnx import OnnxEmbedder
from mnemon_server.embedding.unrelated import QUESTIONS, STATEMENTS, unrelated_cosine


class NarrowEmbedder(HashingEmbedder):
    """Hashed words beside a number that all vectors share: their cosines are `shared` or more."""

    def __init__(self, shared: float) -> None:
        super().__init__()
        self.model = replace(self.model, query_prefix="query: ", passage_prefix="passage: ")
        self._shared = shared
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts.extend(texts)
        hashed = super().embed([text.partition(": ")[2] for text in texts])
        shared = np.full((len(texts), 1), np.sqrt(self._shared), np.float32)
        return np.hstack([hashed * np.float32(np.sqrt(1 - self._shared)), shared])


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.75])
def test_it_is_the_mean_of_unrelated_questions_and_statements(shared: float) -> None:
    embedder = NarrowEmbedder(shared)
    assert unrelated_cosine(embedder) == pytest.approx(shared, abs=0.1)
    assert embedder.texts == [*("query: " + text for text in QUESTIONS), *("passage: " + text for text in STATEMENTS)]


def test_a_model_that_does_not_tell_the_texts_apart_counts_from_0() -> None:
    assert unrelated_cosine(NarrowEmbedder(0.999)) == 0.0


def test_the_default_models_zero_is_near_0(int8_embedder: OnnxEmbedder) -> None:
    assert unrelated_cosine(int8_embedder) == pytest.approx(0.05, abs=0.02)


async def test_it_is_measured_once() -> None:
    embedder = NarrowEmbedder(0.5)
    async with EmbeddingBatcher(embedder) as batcher:
        zeros = {view.unrelated_cosine() for view in (batcher, batcher.of("tenant"), batcher)}
    assert len(zeros) == 1
    assert len(embedder.texts) == len(QUESTIONS) + len(STATEMENTS)
