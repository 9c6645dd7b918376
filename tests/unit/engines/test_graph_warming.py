"""While a graph is loaded or built at opening, the store reports it and the progress, and it always ends."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.engines.hnsw import LocalVectors, SnapshotFolder, SnapshotIdentity
from mnemon_server.engines.hnsw.graph import Graph
from mnemon_server.engines.hnsw.maintenance import restore_graph
from mnemon_server.engines.promises.values import VectorUsage
from mnemon_server.engines.vector_cache import VectorCache

from tests.support.local_vectors import EAGER, TIME, Model, clustered_vectors, has_graph_of, local_vectors, opened
from tests.support.server import wait_until

DIMENSION = 128
COUNT = 1_500


def _model(count: int = COUNT) -> Model:
    model = Model(DIMENSION)
    model.add(clustered_vectors(count, DIMENSION, 1))
    return model


def _loaded(folder: Path, model: Model) -> LocalVectors:
    """The vectors of a store that has been read: everything but the graph."""
    vectors = local_vectors(folder, DIMENSION)
    model.load(vectors)
    return vectors


def _saved(folder: Path, model: Model) -> None:
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, len(model.vectors)), 60)
    vectors.close()


def _until_warm(vectors: LocalVectors) -> Iterator[VectorUsage]:
    """All its reports up to and including the first that says warm."""
    usage = vectors.usage()
    while not usage.warm:
        yield usage
        usage = vectors.usage()
    yield usage


@pytest.mark.parametrize("how", ["built", "loaded"])
def test_it_becomes_warm_only_when_the_graph_is_loaded(tmp_path: Path, how: str) -> None:
    model = _model()
    if how == "loaded":
        _saved(tmp_path, model)
    vectors = _loaded(tmp_path, model)
    vectors.start()
    *_, warm = _until_warm(vectors)
    vectors.close()
    # Loading may be quick, but it is never warm without the graph.
    assert (warm.graph_count, warm.flat_count) == (COUNT, 0)
    assert len(list((tmp_path / "index").iterdir())) == 1, "the loaded graph must not be rebuilt"


@pytest.mark.parametrize(("how", "steps_min"), [("built", 5), ("loaded", 0)])
def test_progress_grows_to_the_total_and_ends(
    tmp_path: Path, how: str, steps_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model()
    if how == "loaded":
        _saved(tmp_path, model)
    vectors, progress, add = _loaded(tmp_path, model), list[int](), Graph.add

    def add_once_seen(graph: Graph, *part: Any) -> None:
        """Adds a part once the progress so far was seen."""
        wait_until(lambda: progress and progress[-1] >= graph.count)
        add(graph, *part)

    monkeypatch.setattr(Graph, "add", add_once_seen)
    vectors.start()
    for usage in _until_warm(vectors):
        progress.append(max(usage.building_count, usage.graph_count))
    wait_until(lambda: vectors.usage().building_count == 0)
    vectors.close()
    assert progress == sorted(progress) and progress[-1] == COUNT
    assert len({count for count in progress if 0 < count < COUNT}) >= steps_min


def test_loading_reports_its_progress(tmp_path: Path) -> None:
    model, told = _model(), list[int]()
    _saved(tmp_path, model)
    identity = SnapshotIdentity.of("store", "model/1", DIMENSION, EAGER)
    snapshots = SnapshotFolder(tmp_path / "index", tmp_path / "quarantine", identity, lambda: TIME)
    links, _ = snapshots.read(tmp_path / "index/00000001.graph")
    cache = VectorCache(DIMENSION)
    cache.add(np.array(sorted(model.vectors)), np.stack([model.vectors[i] for i in sorted(model.vectors)]))
    assert restore_graph(links, cache, EAGER, told.append).count == COUNT
    assert told == sorted(set(told)) and len(told) > 1 and told[-1] == COUNT


def test_a_graph_that_lacks_many_vectors_is_not_warm_before_it_has_them(tmp_path: Path) -> None:
    model = _model(EAGER.graph_min)
    _saved(tmp_path, model)
    model.add(clustered_vectors(COUNT, DIMENSION, 2))
    vectors = _loaded(tmp_path, model)
    vectors.start()
    *_, warm = _until_warm(vectors)
    vectors.close()
    assert warm.graph_count == COUNT + EAGER.graph_min


@pytest.mark.parametrize("count", [0, 1, EAGER.graph_min // 2 - 1, EAGER.graph_min // 2, EAGER.graph_min - 1])
def test_it_is_warm_at_once_if_no_graph_is_needed(tmp_path: Path, count: int) -> None:
    vectors = _loaded(tmp_path, _model(count))
    vectors.start()
    assert vectors.usage().warm
    vectors.close()


def test_it_waits_for_a_snapshot_even_with_too_few_vectors_to_start_a_graph(tmp_path: Path) -> None:
    model = _model(EAGER.graph_min)
    _saved(tmp_path, model)
    model.remove(list(range(1, 20)))
    vectors = _loaded(tmp_path, model)
    vectors.start()
    *_, warm = _until_warm(vectors)
    vectors.close()
    assert warm.graph_count == EAGER.graph_min and warm.dead_count == 19


def test_it_waits_for_an_unusable_snapshot_only_until_it_is_rejected(tmp_path: Path) -> None:
    model = _model(EAGER.graph_min - 1)
    (tmp_path / "index").mkdir()
    (tmp_path / "index/00000001.graph").write_bytes(b"no graph")
    vectors = _loaded(tmp_path, model)
    vectors.start()
    wait_until(lambda: vectors.usage().warm)
    assert vectors.usage().graph_count == 0
    vectors.close()


def test_it_does_not_wait_for_a_graph_that_cannot_be_built(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = _model()
    # hnswlib refuses it.
    vectors = local_vectors(tmp_path, DIMENSION, settings=replace(EAGER, ef_construction=-1))
    model.load(vectors)
    vectors.start()
    wait_until(lambda: vectors.usage().warm)
    assert "the graph failed" in caplog.text
    assert (vectors.usage().graph_count, vectors.usage().building_count) == (0, 0)
    assert vectors.nearest(model.vectors[7], 5) is None
    scores = vectors.scan(model.vectors[7])
    assert scores.passage_ids[scores.scores.argmax()] == 7
    vectors.close()


def test_once_warm_it_stays_warm_while_it_grows_shrinks_and_is_rebuilt(tmp_path: Path) -> None:
    vectors = _loaded(tmp_path, Model(DIMENSION))
    model = Model(DIMENSION)
    vectors.start()
    assert vectors.usage().warm
    matrix = clustered_vectors(COUNT, DIMENSION, 1)
    vectors.add(model.add(matrix), matrix)
    while vectors.usage().graph_count == 0:
        assert vectors.usage().warm
    vectors.remove(list(range(1, COUNT // 2)))
    while vectors.usage().dead_count:
        assert vectors.usage().warm
    vectors.remove(list(range(COUNT // 2, COUNT)))
    while vectors.usage().graph_count:
        assert vectors.usage().warm
    vectors.close()
    assert vectors.usage().warm


def test_a_reopened_store_stays_warm(tmp_path: Path) -> None:
    vectors = _loaded(tmp_path, _model())
    vectors.start(warm=True)
    while vectors.usage().graph_count < COUNT:
        assert vectors.usage().warm
    vectors.close()
