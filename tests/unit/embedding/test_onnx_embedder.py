"""The default model as an embedder: vectors, token counts, passages and closing."""

import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import Embedder, Span
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.onnx import Tokens
from mnemon_server.embedding.text_cache import TextCache

PLAIN = ("the", "a", "of", "river", "stone", "Anna's", "don't", "3.14", "antidisestablishmentarianism")
OTHER = ("猫", "東京", "😀", "Ελλάδα", "naïve", "!?", "…", "한국어", "İstanbul", "x" * 150)

words = st.sampled_from(PLAIN + OTHER)
separators = st.sampled_from([" ", " ", " ", ". ", "\n", "\n\n", "", "，", "\t"])
long_texts = st.lists(st.tuples(words, separators), min_size=200, max_size=900).map(
    lambda pairs: "".join(word + separator for word, separator in pairs)
)
any_texts = st.text(max_size=3000)


def test_vectors_have_unit_length_and_come_in_order(int8_embedder: Embedder) -> None:
    texts = ["a river", "", "x " * 2000, "😀", "a river"]
    vectors = int8_embedder.embed(texts)
    assert vectors.shape == (5, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[4], atol=1e-6)
    assert int8_embedder.embed([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_other_texts_in_the_batch(int8_embedder: Embedder) -> None:
    texts = ["one short text", "?!" * 100, "", "a " * 300, "猫 " * 40, "ok"]
    together = int8_embedder.embed(texts)
    alone = np.concatenate([int8_embedder.embed([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.99999


def test_texts_of_similar_meaning_are_nearer_than_texts_of_similar_wording(int8_embedder: Embedder) -> None:
    question, answer, other = int8_embedder.embed(
        ["How do I make bread?", "Knead flour, water and yeast, then bake the loaf.", "How do I make money?"]
    )
    assert question @ answer > question @ other


def test_text_after_the_last_token_read_does_not_count(int8_embedder: Embedder) -> None:
    read = "word " * 254
    vectors = int8_embedder.embed([read, read + "and something else entirely", "word " * 253 + "else"])
    assert vectors[0] @ vectors[1] > 0.99999
    assert vectors[0] @ vectors[2] < 0.99999


def test_token_counts_are_those_that_the_model_reads(int8_embedder: Embedder) -> None:
    assert int8_embedder.token_counts(["", "one two three", "word " * 1000]) == [0, 3, 254]
    assert int8_embedder.token_counts([]) == []


def test_unpaired_surrogates_are_embedded_like_other_unknown_text(int8_embedder: Embedder) -> None:
    assert np.isfinite(int8_embedder.embed(["broken \ud800 text"])).all()
    assert int8_embedder.split("\ud800") == [*int8_embedder.split("x")]


def covered(embedder: Embedder, text: str) -> list[str]:
    """The passages of a text, after checking that they cover it in order."""
    spans = embedder.split(text)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    for before, after in itertools.pairwise(spans):
        assert before.start < after.start <= before.end < after.end
    return [text[span.start : span.end] for span in spans]


def tokens_of(embedder: Embedder, passage: str) -> int:
    """The token count of a passage, or 255 if it would be split further."""
    return 255 if len(embedder.split(passage)) > 1 else embedder.token_counts([passage])[0]


@settings(max_examples=15, deadline=None)
@given(text=long_texts)
def test_passages_cover_a_long_text_and_are_read_whole(int8_embedder: Embedder, text: str) -> None:
    passages = covered(int8_embedder, text)
    assert all(tokens_of(int8_embedder, passage) <= 254 for passage in passages)
    assert int8_embedder.split(text) == int8_embedder.split(text)


@settings(max_examples=25, deadline=None)
@given(text=any_texts)
def test_passages_cover_any_text(int8_embedder: Embedder, text: str) -> None:
    passages = covered(int8_embedder, text)
    assert all(tokens_of(int8_embedder, passage) <= 254 for passage in passages)


@pytest.mark.parametrize("text", ["!?" * 126, "x" * 253, "a " * 126])
def test_fewer_characters_than_tokens_are_one_passage(int8_embedder: Embedder, text: str) -> None:
    assert int8_embedder.split(text) == [Span(0, len(text))]


def test_neighbouring_passages_share_about_32_tokens(int8_embedder: Embedder) -> None:
    text = " ".join(random.Random(3).choices(["river", "stone", "water", "bridge"], k=2000))
    spans = int8_embedder.split(text)
    assert len(spans) > 8
    for before, after in itertools.pairwise(spans):
        assert int8_embedder.token_counts([text[after.start : before.end]])[0] == 32


def test_passages_end_where_sentences_end(int8_embedder: Embedder) -> None:
    text = "The bridge over the river was built of light stone in a single summer. " * 60
    passages = covered(int8_embedder, text)
    assert len(passages) > 3
    assert all(passage.rstrip().endswith(".") for passage in passages)


def test_words_are_not_cut(int8_embedder: Embedder) -> None:
    text = "antidisestablishmentarianism " * 300
    assert all(set(passage.split()) == {"antidisestablishmentarianism"} for passage in covered(int8_embedder, text))


def test_a_short_text_is_one_passage(int8_embedder: Embedder) -> None:
    for text in ("", " ", "short", "word " * 254):
        assert covered(int8_embedder, text) == [text]
    assert len(covered(int8_embedder, "word " * 255)) == 2


def test_splitting_takes_linear_time(int8_embedder: Embedder) -> None:
    def seconds(size: int) -> float:
        text = ("Some words of a sentence, and a few more. " * (size // 42 + 1))[:size]
        started = time.process_time()
        assert len(int8_embedder.split(text)) > size // 2000
        return time.process_time() - started

    small = min(seconds(1 << 16) for _ in range(3))
    assert seconds(1 << 20) < 16 * 3 * small + 0.5


def test_a_closed_embedder_says_so(model_cache: Path, int8_embedder: Embedder) -> None:
    embedder = open_embedder("all-MiniLM-L6-v2", precision="int8", model_dir=None, cache_dir=model_cache)
    embedder.close()
    embedder.close()
    for call in (embedder.embed, embedder.token_counts):
        with pytest.raises(EmbeddingError, match="closed"):
            call(["text"])
    with pytest.raises(EmbeddingError, match="closed"):
        embedder.split("text")


@pytest.fixture
def three_runs(model_cache: Path) -> Iterator[Embedder]:
    """The default model with three concurrent runs, whatever the number of cores."""
    embedder = open_embedder("all-MiniLM-L6-v2", precision="int8", model_dir=None, cache_dir=model_cache, threads=3)
    yield embedder
    embedder.close()


def test_concurrent_runs_give_each_caller_its_vectors_in_order(int8_embedder: Embedder, three_runs: Embedder) -> None:
    texts = [f"text {number} " + "river stone " * (number * 7 % 60) for number in range(60)]
    expected = np.concatenate([int8_embedder.embed([text]) for text in texts])
    assert three_runs.parallelism == 3
    orders = [slice(None), slice(None, None, -1), slice(1), slice(20, None)]
    with ThreadPoolExecutor(len(orders)) as callers:
        answers = list(callers.map(lambda order: three_runs.embed(texts[order]), orders))
    for order, vectors in zip(orders, answers, strict=True):
        assert len(vectors) == len(texts[order])
        assert (vectors * expected[order]).sum(axis=1).min() > 0.99


def test_embedding_during_closing_raises_a_clear_error(three_runs: Embedder) -> None:
    with ThreadPoolExecutor(1) as callers:
        answer = callers.submit(three_runs.embed, [f"text {number} " + "stone " * 100 for number in range(200)])
        three_runs.close()
        with pytest.raises(EmbeddingError, match="closed"):
            answer.result()


def test_counting_and_splitting_first_changes_no_vector(int8_embedder: Embedder, three_runs: Embedder) -> None:
    texts = ["a river", "", "stone " * 300, "broken \ud800 text", "a river", "猫 " * 40]
    for text in texts:
        three_runs.split(text)
    for _ in range(2):
        assert three_runs.token_counts(texts) == int8_embedder.token_counts(texts)
        np.testing.assert_allclose(three_runs.embed(texts), int8_embedder.embed(texts), atol=1e-6)


def test_tokens_are_kept_until_they_are_used_and_the_oldest_are_dropped_first() -> None:
    cache = TextCache[Tokens](2)
    for number, key in enumerate([b"one", b"two", b"three"]):
        cache.put(key, np.array([number], np.int32))
    assert cache.get(b"one") is None
    assert [cache.get(b"two"), cache.get(b"three")] == [1, 2]
    assert cache.take(b"two") == 1
    assert cache.take(b"two") is None
