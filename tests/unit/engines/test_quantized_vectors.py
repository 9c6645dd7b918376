"""Quantized vectors answer like a comparison of everything, though they hold a quarter of each vector."""

import random
import threading

import numpy as np
import pytest
from mnemon_server.engines.promises.values import Scores
from mnemon_server.engines.quantized import QuantizedVectors

from tests.support.local_vectors import Matrix, Model, clustered_vectors
from tests.support.quantized_vectors import listed, quantized, recall_of
from tests.support.server import wait_until

DIMENSION = 384
COUNT = 20_000


@pytest.fixture(scope="module")
def many() -> Model:
    model = Model(DIMENSION)
    model.add(clustered_vectors(COUNT, DIMENSION, 1))
    return model


def test_it_finds_the_nearest_of_many(many: Model) -> None:
    assert recall_of(quantized(many), many, clustered_vectors(50, DIMENSION, 2)) >= 0.99


def test_it_finds_the_nearest_of_many_that_share_a_direction() -> None:
    direction = clustered_vectors(1, DIMENSION, 7)[0]
    model = Model(DIMENSION)
    model.add(_turned(clustered_vectors(COUNT, DIMENSION, 1), direction))
    assert recall_of(quantized(model), model, _turned(clustered_vectors(50, DIMENSION, 2), direction)) >= 0.99


def test_it_finds_the_nearest_among_many_equal_ones() -> None:
    model = Model(DIMENSION)
    model.add(np.repeat(clustered_vectors(1, DIMENSION, 1), COUNT, axis=0))
    near = clustered_vectors(1, DIMENSION, 1)[0] + 0.3 * clustered_vectors(1, DIMENSION, 5)[0]
    [new] = model.add((near / np.linalg.norm(near))[None, :].astype(np.float32)).tolist()
    nearest = quantized(model).nearest(model.vectors[new], 5)
    assert nearest.passage_ids[0] == new
    assert len(nearest.passage_ids) == 5


def test_a_scan_of_some_has_the_exact_scores_of_the_best_and_close_ones_of_the_rest(many: Model) -> None:
    vectors, query = quantized(many), clustered_vectors(1, DIMENSION, 3)[0]
    among = np.arange(1, COUNT + 100, 3)
    scores = vectors.scan(query, among)
    ids = scores.passage_ids.tolist()
    assert sorted(ids) == [i for i in among.tolist() if i <= COUNT]
    exact = np.array([np.dot(many.vectors[i], query) for i in ids])
    assert np.allclose(scores.scores, exact, atol=0.01)
    best = np.argsort(-exact)[:200]
    assert np.allclose(scores.scores[best], exact[best], atol=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_adds_and_removes_it_answers_like_a_full_comparison(seed: int) -> None:
    rng, model = random.Random(seed), Model(32)
    vectors = quantized(model, block_rows=200)
    found = []
    for step in range(60):
        matrix = clustered_vectors(rng.randrange(1, 90), 32, seed * 1_000 + step)
        vectors.add(model.add(matrix), matrix)
        if rng.random() < 0.6:
            gone = rng.sample(sorted(model.vectors), k=min(len(model.vectors) // 2, rng.randrange(250)))
            vectors.remove([*model.remove(gone), model.last + 1])
        query = clustered_vectors(1, 32, step)[0]
        expected = model.scores(query)
        assert len(vectors) == len(expected) == vectors.usage().flat_count
        assert sorted(vectors.scan(query).passage_ids.tolist()) == sorted(expected)
        if len(expected) >= 20:
            found.append(recall_of(vectors, model, query[None, :], 20))
        among = np.array(sorted(rng.sample(range(1, model.last + 2), k=min(400, model.last))), np.int64)
        some = vectors.scan(query, among)
        assert sorted(some.passage_ids.tolist()) == [i for i in among.tolist() if i in expected]
    assert len(found) > 40 and np.mean(found) >= 0.99


@pytest.mark.parametrize("options", [{}, {"bytes_max": 0}, {"bytes_max": 4_000_000}])
def test_it_finds_the_nearest_of_many_in_lists(many: Model, options: dict[str, float]) -> None:
    with listed(quantized(many, lists_min=5_000, block_rows=3_000, **options)) as vectors:
        assert recall_of(vectors, many, clustered_vectors(50, DIMENSION, 2)) >= 0.99


def test_vectors_in_lists_and_later_ones_are_found_until_they_are_removed() -> None:
    model = Model(DIMENSION)
    model.add(clustered_vectors(12_000, DIMENSION, 1))
    query = clustered_vectors(1, DIMENSION, 9)[0]
    with listed(quantized(model, lists_min=5_000, block_rows=1_000)) as vectors:
        for seed in (2, 3):
            matrix = clustered_vectors(500, DIMENSION, seed)
            vectors.add(model.add(matrix), matrix)
            vectors.remove(model.remove(model.best(query, 2_500)))
            # All that the nearest lists have was removed. What is left is nearly equally far.
            assert recall_of(vectors, model, query[None, :], 20) >= 0.5
            assert recall_of(vectors, model, clustered_vectors(20, DIMENSION, 4), 20) >= 0.95


def test_the_lists_release_what_was_removed() -> None:
    model = Model(DIMENSION)
    model.add(clustered_vectors(12_000, DIMENSION, 1))
    with listed(quantized(model, lists_min=5_000, block_rows=1_000)) as vectors:
        query, held = clustered_vectors(1, DIMENSION, 9)[0], vectors.usage().bytes
        vectors.remove(model.remove(model.best(query, 9_000)))
        wait_until(lambda: vectors.listed_count <= 3_000)
        assert vectors.usage().bytes < held / 2
        assert recall_of(vectors, model, clustered_vectors(20, DIMENSION, 2)) >= 0.99
        vectors.remove(model.remove(sorted(model.vectors)))
        wait_until(lambda: vectors.listed_count == 0)
        matrix = clustered_vectors(9_000, DIMENSION, 3)
        vectors.add(model.add(matrix), matrix)
        wait_until(lambda: vectors.listed_count > 4_000)
        assert recall_of(vectors, model, clustered_vectors(20, DIMENSION, 2)) >= 0.99


@pytest.mark.parametrize("coded", [0, 3_000, 15_000])
def test_if_memory_is_short_the_oldest_are_compared_exactly(many: Model, coded: int) -> None:
    with_codes, signs = (QuantizedVectors.bytes_per_vector(DIMENSION, with_codes=each) for each in (True, False))
    bytes_max = signs * COUNT + (with_codes - signs) * coded
    vectors, queries = quantized(many, block_rows=1_000, bytes_max=bytes_max), clustered_vectors(20, DIMENSION, 2)
    assert 0.85 * bytes_max < vectors.usage().bytes <= bytes_max
    scores = vectors.scan(queries[0], exact=0)
    exact = many.scores(queries[0])
    assert sorted(scores.passage_ids.tolist()) == sorted(exact)
    errors = {i: abs(score - exact[i]) for i, score in zip(scores.passage_ids.tolist(), scores.scores, strict=True)}
    assert max(error for i, error in errors.items() if i <= COUNT - coded) < 1e-6
    assert sum(error > 1e-6 for i, error in errors.items() if i > COUNT - coded) > 0.9 * coded - 1
    assert recall_of(vectors, many, queries) >= 0.99


def test_memory_stays_within_its_limit_while_vectors_are_added_and_removed() -> None:
    bytes_max, model = QuantizedVectors.bytes_per_vector(DIMENSION) * 3_000, Model(DIMENSION)
    vectors, queries = quantized(model, block_rows=500, bytes_max=bytes_max), clustered_vectors(5, DIMENSION, 2)
    for seed in range(10):
        matrix = clustered_vectors(900, DIMENSION, seed)
        vectors.add(model.add(matrix), matrix)
        vectors.remove(model.remove(sorted(model.vectors)[seed::6]))
        assert vectors.usage().bytes <= bytes_max
        assert recall_of(vectors, model, queries) >= 0.99
        among = np.array(sorted(model.vectors)[::3], np.int64)
        scores = vectors.scan(queries[0], among, exact=0)
        exact = model.scores(queries[0])
        found = np.argsort(scores.passage_ids)
        assert np.array_equal(scores.passage_ids[found], among)
        assert np.allclose(scores.scores[found], [exact[i] for i in among.tolist()], atol=0.01)


def test_a_removed_vector_is_not_found_even_if_it_is_still_stored() -> None:
    model = Model(DIMENSION)
    model.add(clustered_vectors(100, DIMENSION, 1))
    vectors = quantized(model)
    vectors.remove([7])
    assert 7 not in vectors.scan(model.vectors[7], np.array([7, 8])).passage_ids
    assert 7 not in vectors.nearest(model.vectors[7], 100).passage_ids


def test_removed_vectors_are_not_found_and_their_memory_is_released() -> None:
    model = Model(DIMENSION)
    model.add(clustered_vectors(5_000, DIMENSION, 1))
    vectors = quantized(model, block_rows=1_000)
    held = vectors.usage().bytes
    query = clustered_vectors(1, DIMENSION, 9)[0]
    vectors.remove(model.remove(model.best(query, 3_000)))
    # None of the removed ones, which are all nearer.
    assert recall_of(vectors, model, query[None, :], 20) >= 0.9
    assert vectors.usage().bytes == held * 2 // 5
    vectors.remove(model.remove(sorted(model.vectors)))
    assert len(vectors.nearest(query, 20).passage_ids) == len(vectors.scan(query).passage_ids) == 0


def test_readers_see_each_vector_once_while_others_are_added_and_removed() -> None:
    kept = clustered_vectors(1_000, DIMENSION, 1)
    everything = dict(enumerate(kept, start=1))
    stored = dict(everything)

    def score(query: Matrix, ids: "np.typing.NDArray[np.int64]") -> Scores:
        held = np.array([i for i in ids.tolist() if i in stored], np.int64)
        return Scores(held, np.array([np.dot(everything[i], query) for i in held.tolist()], np.float64))

    vectors = QuantizedVectors(DIMENSION, score, block_rows=300)
    vectors.add(np.arange(1, 1_001), kept)
    seen: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(vectors.scan(kept[0]).passage_ids.tolist())
            seen.append(vectors.scan(kept[0], np.arange(1, 1_001)).passage_ids.tolist())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for start in range(1_001, 31_001, 500):
            ids = np.arange(start, start + 500)
            added = dict(zip(ids.tolist(), clustered_vectors(500, DIMENSION, start), strict=True))
            everything.update(added)
            stored.update(added)
            vectors.add(ids, np.stack(list(added.values())))
            for number in added:
                del stored[number]
            vectors.remove(ids.tolist())
    finally:
        done.set()
        reader.join()
    assert seen
    for ids in seen:
        assert len(set(ids)) == len(ids)
        assert set(range(1, 1_001)) <= set(ids)


def _turned(vectors: Matrix, direction: Matrix) -> Matrix:
    turned = vectors + 3.0 * direction
    return (turned / np.linalg.norm(turned, axis=1, keepdims=True)).astype(np.float32)
