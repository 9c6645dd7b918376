"""Requesting a snapshot: it is on disk when the request is answered, and a request never harms."""

import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.hnsw import LocalVectors
from mnemon_server.engines.hnsw.graph import Graph

from tests.support.forks import run_python
from tests.support.local_vectors import EAGER, TIME, Model, clustered_vectors, has_graph_of, opened, recall
from tests.support.server import wait_until

DIMENSION = 32
COUNT = 300

_SAVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tests.unit.engines.test_graph_saving import remove_some, save_again
save_again(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""
_FULL_DISK = """
import resource, sys
from pathlib import Path
from mnemon_server.domain.errors import StorageFullError
from tests.unit.engines.test_graph_saving import COUNT, a_model, with_graph
vectors = with_graph(Path(sys.argv[1]), a_model())
resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
try:
    vectors.save_snapshot()
except StorageFullError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert vectors.usage().graph_count == COUNT
assert vectors.save_snapshot() is not None
vectors.close()
"""


def a_model(count: int = COUNT) -> Model:
    model = Model(DIMENSION)
    model.add(clustered_vectors(count, DIMENSION, 1))
    return model


def with_graph(folder: Path, model: Model, **options: object) -> LocalVectors:
    """Vectors with a whole graph, and its first snapshot."""
    vectors = opened(folder, model, **options)
    wait_until(has_graph_of(vectors, len(model.vectors)), 60)
    wait_until(lambda: snapshots(folder) != [])
    return vectors


def snapshots(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "index").glob("*"))


def remove_some(vectors: LocalVectors, model: Model) -> None:
    vectors.remove(model.remove([3, 4, 5]))


def save_again(folder: Path) -> None:
    """Removes some vectors of a graph and requests a snapshot. Nothing is closed."""
    model = a_model()
    vectors = with_graph(folder, model)
    remove_some(vectors, model)
    assert vectors.save_snapshot() == TIME


def test_a_requested_snapshot_is_loaded_by_the_next_start_after_kill_9(tmp_path: Path) -> None:
    killed = run_python(_SAVE_AND_DIE, tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert snapshots(tmp_path) == ["00000001.graph", "00000002.graph"]
    (tmp_path / "index/00000001.graph").unlink()
    model = a_model()
    model.remove([3, 4, 5])
    vectors = opened(tmp_path, model)
    wait_until(has_graph_of(vectors, COUNT))
    # A rebuilt graph would not hold the rows of the removed vectors.
    assert (vectors.usage().graph_count, vectors.usage().dead_count) == (COUNT, 3)
    assert vectors.usage().snapshot_time == TIME
    assert recall(vectors, model, clustered_vectors(10, DIMENSION, 2)) >= 0.98
    vectors.close()
    assert snapshots(tmp_path) == ["00000002.graph"], "the loaded graph should have had nothing to add"


def test_without_a_graph_there_is_no_snapshot(tmp_path: Path) -> None:
    vectors = opened(tmp_path, a_model(EAGER.graph_min - 1))
    assert vectors.save_snapshot() is None
    vectors.close()
    assert vectors.save_snapshot() is None
    assert not (tmp_path / "index").exists()


def test_two_generations_of_requested_snapshots_are_kept(tmp_path: Path) -> None:
    vectors = with_graph(tmp_path, a_model())
    for _ in range(4):
        assert vectors.save_snapshot() == TIME
    assert snapshots(tmp_path) == ["00000004.graph", "00000005.graph"]
    vectors.close()
    assert len(snapshots(tmp_path)) == 2


def test_many_concurrent_requests_are_answered_during_writes_and_searches(tmp_path: Path) -> None:
    model = a_model()
    vectors = with_graph(tmp_path, model)
    queries = clustered_vectors(20, DIMENSION, 2)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(vectors.save_snapshot) for _ in range(40)]
        recalls = []
        for seed in range(20):
            matrix = clustered_vectors(EAGER.tail_max, DIMENSION, 100 + seed)
            vectors.add(model.add(matrix), matrix)
            # On a busy machine, half of the vectors may have to be added to the graph first.
            wait_until(lambda: vectors.nearest(queries[0], 1) is not None)
            recalls.append(recall(vectors, model, queries[seed : seed + 1]))
        assert sum(recalls) / len(recalls) >= 0.9, recalls
        assert {answer.result(60) for answer in answers} == {TIME}
    assert len(snapshots(tmp_path)) == 2
    vectors.close()


def test_a_request_does_not_wait_for_a_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(4_000)
    vectors = with_graph(tmp_path, model)
    add, begun, answered = Graph.add, threading.Event(), threading.Event()

    def add_later(*part: Any) -> None:
        """The first part is added once there is a request, and the others once it was answered."""
        if begun.is_set():
            assert answered.wait(60)
        else:
            begun.set()
            wait_until(lambda: vectors._maintenance._requests)
        add(*part)

    monkeypatch.setattr(Graph, "add", add_later)
    vectors.remove(model.remove(list(range(1, 1_500))))
    assert begun.wait(60)
    assert vectors.save_snapshot() == TIME
    assert vectors.usage().dead_count > 0
    answered.set()
    wait_until(lambda: vectors.usage().dead_count == 0, 60)
    vectors.close()


def test_a_full_disk_is_reported_and_the_graph_continues(tmp_path: Path) -> None:
    result = run_python(_FULL_DISK, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "no space is left" in result.stdout and str(tmp_path) not in result.stdout


def test_a_failing_disk_is_reported_and_the_graph_continues(tmp_path: Path) -> None:
    model = a_model()
    vectors = with_graph(tmp_path, model)
    (tmp_path / "index").rename(tmp_path / "away")
    (tmp_path / "index").write_text("in the way")
    with pytest.raises(StorageFailedError, match="could not write the snapshot") as raised:
        vectors.save_snapshot()
    assert str(tmp_path) not in str(raised.value)
    assert recall(vectors, model, clustered_vectors(5, DIMENSION, 2)) >= 0.98
    (tmp_path / "index").unlink()
    assert vectors.save_snapshot() == TIME
    vectors.close()


def test_closing_ends_every_waiting_request(tmp_path: Path) -> None:
    for number in range(10):
        vectors = with_graph(tmp_path / str(number), a_model())
        barrier = threading.Barrier(9)

        def ask(vectors: LocalVectors = vectors, barrier: threading.Barrier = barrier) -> object:
            barrier.wait(60)
            try:
                return vectors.save_snapshot()
            except StorageFailedError as error:
                return str(error)

        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(ask) for _ in range(8)]
            barrier.wait(60)
            vectors.close()
            told = {answer.result(60) for answer in answers}
        assert told <= {TIME, None, "the records are being closed; no snapshot was written"}


def block_next_snapshot(folder: Path) -> Path:
    """Makes the second snapshot block until the pipe is read, like a disk that does not respond."""
    pipe = folder / "index/00000002.tmp"
    os.mkfifo(pipe)
    return pipe


def test_a_wait_times_out(tmp_path: Path) -> None:
    vectors = with_graph(tmp_path, a_model(), settings=replace(EAGER, snapshot_wait_s=0.05))
    pipe = block_next_snapshot(tmp_path)
    with pytest.raises(StorageFailedError, match=r"not written within 0\.05 s"):
        vectors.save_snapshot()
    pipe.read_bytes()
    vectors.close()


def test_a_request_returns_nothing_if_the_graph_is_given_up_meanwhile(tmp_path: Path) -> None:
    model = a_model(2 * COUNT)
    vectors = with_graph(tmp_path, model)
    pipe = os.fdopen(os.open(block_next_snapshot(tmp_path), os.O_RDONLY | os.O_NONBLOCK), "rb")
    with ThreadPoolExecutor(2) as pool, pipe:
        first = pool.submit(vectors.save_snapshot)
        # Begun, and larger than what a pipe holds.
        assert select.select([pipe], [], [], 60)[0]
        vectors.remove(model.remove(list(range(1, 2 * COUNT - EAGER.graph_min // 2 + 2))))
        second = pool.submit(vectors.save_snapshot)
        wait_until(lambda: len(vectors._maintenance._requests) == 2)
        os.set_blocking(pipe.fileno(), True)
        pipe.read()
        with pytest.raises(StorageFailedError):
            first.result(60)
        assert second.result(60) is None
    vectors.close()
