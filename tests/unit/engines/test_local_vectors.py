"""The vectors in memory answer like a comparison of everything, whatever their graph is doing."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.engines.hnsw import LocalVectors
from mnemon_server.engines.hnsw.graph import FairLock

from tests.support.local_vectors import EAGER, Model, clustered_vectors, has_graph_of, local_vectors, opened, recall
from tests.support.server import wait_until

DIMENSION = 32


def check_exact(vectors: LocalVectors, model: Model, rng: random.Random) -> None:
    """Checks that a scan returns every vector, and a scan of candidates the existing ones among them."""
    query = clustered_vectors(1, model.dimension, rng.randrange(1_000))[0]
    expected = model.scores(query)
    scores = vectors.scan(query)
    assert sorted(scores.passage_ids.tolist()) == sorted(expected)
    assert np.allclose(scores.scores, [expected[i] for i in scores.passage_ids.tolist()], atol=1e-5)
    among = np.array(sorted(rng.sample(range(1, model.last + 2), k=min(50, model.last))), np.int64)
    some = vectors.scan(query, among)
    assert sorted(some.passage_ids.tolist()) == [i for i in among.tolist() if i in expected]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_adds_removes_and_rebuilds_it_answers_like_a_full_comparison(tmp_path: Path, seed: int) -> None:
    rng, model = random.Random(seed), Model(DIMENSION)
    vectors = opened(tmp_path, model)
    found, asked, rebuilt = 0.0, 0, False
    for step in range(150):
        vectors.add(*_more(model, rng.randrange(1, 30), seed * 1_000 + step))
        if rng.random() < 0.6:
            gone = rng.sample(sorted(model.vectors), k=min(len(model.vectors) // 2, rng.randrange(40)))
            vectors.remove(model.remove(gone))
        check_exact(vectors, model, rng)
        if step % 5 == 0 and len(model.vectors) >= EAGER.graph_min:
            wait_until(has_graph_of(vectors, 1))
            rebuilt |= vectors.usage().graph_count < model.last
            found += recall(vectors, model, clustered_vectors(5, DIMENSION, step))
            asked += 1
    vectors.close()
    assert rebuilt and asked > 10
    assert found / asked >= 0.99, f"seed {seed}"


def test_recall_stays_when_a_third_is_deleted_and_a_third_replaced(tmp_path: Path) -> None:
    rng, model = random.Random(5), Model(64)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, 1_500, 1))
    wait_until(has_graph_of(vectors, 1_500), 60)
    shuffled = rng.sample(sorted(model.vectors), k=1_500)
    vectors.remove(model.remove(shuffled[:500]))
    vectors.remove(model.remove(shuffled[500:1_000]))
    vectors.add(*_more(model, 500, 2))
    queries = clustered_vectors(100, 64, 3)
    at_once = recall(vectors, model, queries)
    wait_until(lambda: vectors.usage().graph_count < 1_500 and vectors.usage().flat_count < EAGER.tail_max, 60)
    rebuilt = recall(vectors, model, queries)
    vectors.close()
    assert at_once >= 0.99
    assert rebuilt >= 0.99


def test_a_new_vector_is_found_before_the_graph_has_it(tmp_path: Path) -> None:
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, 300, 1))
    wait_until(has_graph_of(vectors, 300))
    for seed in range(2, 40):
        added, matrix = _more(model, 3, seed)
        vectors.add(added, matrix)
        nearest = vectors.nearest(matrix[1], 1)
        assert nearest is not None and nearest.passage_ids.tolist() == [added[1]]
    vectors.close()


def test_a_removed_vector_is_not_found_even_if_nearly_all_are_removed(tmp_path: Path) -> None:
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, 1_000, 1))
    wait_until(has_graph_of(vectors, 1_000))
    query = clustered_vectors(1, DIMENSION, 9)[0]
    gone = model.best(query, 850)
    vectors.remove(model.remove(gone))
    nearest = vectors.nearest(query, 20)
    vectors.close()
    assert nearest is None or nearest.passage_ids.tolist() == model.best(query, 20)


def test_deleted_vectors_leave_the_graph_once_there_are_many(tmp_path: Path) -> None:
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, 1_000, 1))
    wait_until(has_graph_of(vectors, 1_000))
    vectors.remove(model.remove(list(range(1, 201))))
    assert vectors.usage().dead_count == 200
    vectors.remove(model.remove(list(range(201, 261))))
    wait_until(lambda: vectors.usage().dead_count == 0)
    assert vectors.usage().graph_count == 740
    vectors.close()


def test_there_is_no_graph_when_scanning_is_cheaper(tmp_path: Path) -> None:
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, EAGER.graph_min - 1, 1))
    assert vectors.nearest(clustered_vectors(1, DIMENSION, 9)[0], 5) is None
    vectors.add(*_more(model, 1, 2))
    wait_until(has_graph_of(vectors, EAGER.graph_min))
    wait_until((tmp_path / "index/00000001.graph").exists)
    vectors.remove(model.remove(list(range(1, EAGER.graph_min // 2 + 2))))
    wait_until(lambda: vectors.usage().graph_count == 0)
    assert vectors.nearest(clustered_vectors(1, DIMENSION, 9)[0], 5) is None
    wait_until(lambda: not list((tmp_path / "index").iterdir()))
    vectors.close()


def test_the_reported_memory_grows_with_the_graph(tmp_path: Path) -> None:
    model = Model(DIMENSION)
    vectors = local_vectors(tmp_path, DIMENSION)
    vectors.add(*_more(model, 2_000, 1))
    flat = vectors.usage()
    vectors.start()
    wait_until(has_graph_of(vectors, 2_000))
    with_graph = vectors.usage()
    vectors.close()
    assert (flat.flat_count, flat.graph_count) == (2_000, 0)
    assert flat.bytes >= 2_000 * 4 * DIMENSION
    assert with_graph.bytes - flat.bytes >= 2_000 * (4 * DIMENSION + 132 + 8)


@pytest.mark.parametrize("occupied", ["index", "quarantine"])
def test_an_unwritable_folder_costs_only_the_snapshot(tmp_path: Path, occupied: str) -> None:
    (tmp_path / occupied).write_text("in the way")
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(*_more(model, 300, 1))
    wait_until(has_graph_of(vectors, 300))
    assert recall(vectors, model, clustered_vectors(5, DIMENSION, 2)) >= 0.98
    vectors.close()
    assert (tmp_path / occupied).read_text() == "in the way"


def test_concurrent_operations_never_fail_and_never_return_deleted_vectors(tmp_path: Path) -> None:
    _everything_at_once(tmp_path, seconds=0.8)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_concurrent_operations_for_ten_minutes(tmp_path: Path) -> None:
    _everything_at_once(tmp_path, seconds=600)


def _everything_at_once(folder: Path, *, seconds: float) -> None:
    """Four readers search while one writer changes vectors, the graph is rebuilt and snapshots are written.

    It goes on until the graph was rebuilt and each reader has more than ten answers, however long that takes.
    """
    settings = replace(EAGER, snapshot_changes_min=50, snapshot_changes_share=0.0)
    model, rng, end = Model(DIMENSION), random.Random(3), time.monotonic() + seconds
    vectors = opened(folder, model, settings=settings)
    vectors.add(*_more(model, 600, 1))
    wait_until(has_graph_of(vectors, 1))
    gone_before: frozenset[int] = frozenset()
    errors: list[BaseException] = []
    answered = [0] * 4

    def read(reader: int) -> None:
        queries = clustered_vectors(50, DIMENSION, reader)
        while not over.is_set():
            gone = gone_before
            scores = vectors.nearest(queries[answered[reader] % 50], 10)
            scores = scores or vectors.scan(queries[answered[reader] % 50])
            assert not gone & set(scores.passage_ids.tolist())
            assert len(scores.passage_ids) >= 10
            answered[reader] += 1

    over = threading.Event()
    threads = [_thread(lambda reader=reader: read(reader), errors) for reader in range(4)]
    rebuilt, seed, gone_ever = 0, 10, set()
    while not errors and (time.monotonic() < end or not rebuilt or min(answered) <= 10):
        seed += 1
        before = vectors.usage().dead_count
        vectors.add(*_more(model, 20, seed))
        gone = rng.sample(sorted(model.vectors), k=20)
        vectors.remove(model.remove(gone))
        gone_ever.update(gone)
        gone_before = frozenset(gone_ever)
        rebuilt += vectors.usage().dead_count < before
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    check_exact(vectors, model, rng)
    wait_until(has_graph_of(vectors, 1))
    assert recall(vectors, model, clustered_vectors(20, DIMENSION, 99)) >= 0.95
    vectors.close()
    assert list((folder / "index").glob("*.graph"))
    again = opened(folder, model, settings=settings)
    wait_until(has_graph_of(again, 1))
    assert recall(again, model, clustered_vectors(20, DIMENSION, 99)) >= 0.95
    again.close()


def test_a_lock_goes_to_waiting_threads_before_its_last_holder() -> None:
    lock, order, waiting = FairLock(), [], 3

    def wait_for_it(number: int) -> None:
        with lock:
            order.append(number)

    lock.__enter__()
    threads = []
    for number in range(waiting):
        threads.append(_thread(lambda number=number: wait_for_it(number), []))
        wait_until(lambda count=number + 1: len(lock._waiting) == count)
    lock.__exit__(None, None, None)
    with lock:
        order.append("again")
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, "again"]


def _more(model: Model, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    matrix = clustered_vectors(count, model.dimension, seed)
    return model.add(matrix), matrix


def _thread(work: Callable[[], None], errors: list[BaseException]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
