"""The embedder without a model, which tests and trials use."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.factory import HashingEmbedder


@given(texts=st.lists(st.text(max_size=50), max_size=5))
def test_every_text_has_a_vector_of_unit_length(texts: list[str]) -> None:
    vectors = HashingEmbedder(dimension=16).embed(texts)
    assert vectors.shape == (len(texts), 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(vectors, HashingEmbedder(dimension=16).embed(texts))


def test_vectors_are_the_same_on_every_machine() -> None:
    (vector,) = HashingEmbedder(dimension=8).embed(["one two three"])
    np.testing.assert_allclose(vector, [0, 0, 0, -0.5773503, 0, 0.5773503, 0, 0.5773503], atol=1e-6)


def test_texts_that_share_words_are_similar() -> None:
    cat, feline, stars = HashingEmbedder().embed(
        ["The cat sleeps on the warm sofa", "a cat on a sofa", "Distant stars shine brightly tonight"]
    )
    assert cat @ feline > 0.3 > cat @ stars


@given(text=st.text(alphabet="ab .\n", max_size=300), words=st.integers(1, 12))
def test_passages_cover_the_text_and_stay_within_the_word_limit(text: str, words: int) -> None:
    spans = HashingEmbedder(passage_words=words).split(text)
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    assert all(before.start < after.start <= before.end for before, after in itertools.pairwise(spans))
    counter = HashingEmbedder(passage_words=1000)
    assert max(counter.token_counts([text[span.start : span.end] for span in spans])) <= words


def test_a_closed_embedder_says_so() -> None:
    embedder = HashingEmbedder()
    embedder.close()
    with pytest.raises(EmbeddingError, match="closed"):
        embedder.embed(["text"])
