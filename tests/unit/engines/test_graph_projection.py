"""A graph that uses only some dimensions finds what it would find with all, even when the subjects change."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.engines.hnsw import GraphSettings, SnapshotFolder, SnapshotIdentity
from mnemon_server.engines.hnsw.projection import ProjectionError, fit_projection
from mnemon_server.engines.hnsw.snapshots import SnapshotStaleError

from tests.support.local_vectors import (
    EAGER,
    TIME,
    Matrix,
    Model,
    clustered_vectors,
    has_graph_of,
    local_vectors,
    opened,
    recall,
)
from tests.support.server import wait_until

DIMENSION, WIDTH, COUNT = 128, 64, 400
DIRECTIONS_BYTES = 4 * DIMENSION * WIDTH


def _model(count: int = COUNT) -> Model:
    model = Model(DIMENSION)
    model.add(clustered_vectors(count, DIMENSION, 1))
    return model


def _saved(folder: Path, model: Model) -> bytes:
    """The snapshot of a graph of the model."""
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, len(model.vectors)))
    vectors.close()
    [path] = (folder / "index").iterdir()
    return path.read_bytes()


def _with_directions(snapshot: bytes, change: Callable[[Matrix], Matrix]) -> bytes:
    """The snapshot with other directions and a corrected checksum. The directions are the last of its arrays."""
    body = snapshot[:-32]
    directions = np.frombuffer(body[-DIRECTIONS_BYTES:], "<f4").reshape(WIDTH, DIMENSION)
    return _sealed(body[:-DIRECTIONS_BYTES] + change(directions.copy()).astype("<f4").tobytes())


def _with_header(snapshot: bytes, arrays: slice, change: Callable[[dict[str, object]], object]) -> bytes:
    end = 12 + int.from_bytes(snapshot[8:12], "little")
    header = json.loads(snapshot[12:end])
    change(header)
    content = json.dumps(header).encode()
    return _sealed(snapshot[:8] + len(content).to_bytes(4, "little") + content + snapshot[end:-32][arrays])


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _check_answers(folder: Path, model: Model) -> None:
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, len(model.vectors)))
    assert recall(vectors, model, clustered_vectors(20, DIMENSION, 3)) >= 0.99
    vectors.close()


def _quarantined(folder: Path) -> int:
    return len(list((folder / "quarantine").glob("*")))


@pytest.mark.parametrize(("dimension", "width"), [(8, 8), (64, 64), (100, 64), (384, 128), (1536, 512)])
def test_small_vectors_keep_all_dimensions_and_larger_ones_a_third(dimension: int, width: int) -> None:
    assert GraphSettings().graph_dimension(dimension) == width


def test_recall_stays_when_a_third_is_deleted_and_a_third_replaced_and_after_a_restart(tmp_path: Path) -> None:
    rng, model = random.Random(5), _model(1_500)
    vectors = opened(tmp_path, model)
    wait_until(has_graph_of(vectors, 1_500), 60)
    shuffled = rng.sample(sorted(model.vectors), k=1_500)
    vectors.remove(model.remove(shuffled[:500]))
    vectors.remove(model.remove(shuffled[500:1_000]))
    matrix = clustered_vectors(500, DIMENSION, 2)
    vectors.add(model.add(matrix), matrix)
    queries = clustered_vectors(100, DIMENSION, 3)
    at_once = recall(vectors, model, queries)
    wait_until(lambda: vectors.usage().graph_count < 1_500 and vectors.usage().flat_count < EAGER.tail_max, 60)
    rebuilt = recall(vectors, model, queries)
    vectors.close()
    again = opened(tmp_path, model)
    wait_until(has_graph_of(again, 1_000 - EAGER.tail_max), 60)
    restarted = recall(again, model, queries)
    again.close()
    assert min(at_once, rebuilt, restarted) >= 0.99


def test_the_vectors_of_a_graph_take_less_memory(tmp_path: Path) -> None:
    def graph_bytes(settings: GraphSettings) -> int:
        vectors = local_vectors(tmp_path / str(settings.dimension_share), DIMENSION, settings=settings)
        _model(1_000).load(vectors)
        flat = vectors.usage().bytes
        vectors.start()
        wait_until(has_graph_of(vectors, 1_000))
        taken = vectors.usage().bytes - flat
        vectors.close()
        return taken

    saved = graph_bytes(replace(EAGER, dimension_share=1.0)) - graph_bytes(EAGER)
    # Space for 1,024 vectors each, and the directions of both.
    assert saved == 1_024 * 4 * (DIMENSION - WIDTH) + 4 * DIMENSION * (DIMENSION - WIDTH)


def test_new_subjects_are_found_though_the_first_vectors_did_not_have_them(tmp_path: Path) -> None:
    first, second = np.zeros((COUNT, DIMENSION), np.float32), np.zeros((3 * COUNT, DIMENSION), np.float32)
    first[:, :WIDTH] = clustered_vectors(COUNT, WIDTH, 1)
    second[:, WIDTH:] = clustered_vectors(3 * COUNT, WIDTH, 2)
    model = Model(DIMENSION)
    vectors = opened(tmp_path, model)
    vectors.add(model.add(first), first)
    wait_until(has_graph_of(vectors, COUNT))
    for start in range(0, len(second), 100):
        part = second[start : start + 100]
        vectors.add(model.add(part), part)
    wait_until(has_graph_of(vectors, 4 * COUNT - EAGER.tail_max), 60)
    queries = np.zeros((50, DIMENSION), np.float32)
    queries[:, WIDTH:] = clustered_vectors(50, WIDTH, 3)
    # The last added vectors may still cause a rebuild.
    wait_until(lambda: recall(vectors, model, queries) >= 0.99, 60)
    vectors.close()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda directions: directions * np.nan, id="not a number"),
        pytest.param(lambda directions: np.full_like(directions, np.finfo(np.float32).max), id="huge"),
        pytest.param(lambda directions: directions * 0.5, id="too short"),
        pytest.param(lambda directions: directions[[0] * WIDTH], id="one direction only"),
        pytest.param(np.zeros_like, id="zeros"),
    ],
)
def test_a_damaged_projection_with_a_valid_checksum_is_quarantined(
    tmp_path: Path, change: Callable[[Matrix], Matrix]
) -> None:
    model = _model()
    (tmp_path / "index/00000001.graph").write_bytes(_with_directions(_saved(tmp_path, model), change))
    _check_answers(tmp_path, model)
    assert _quarantined(tmp_path) == 1


def test_a_missing_projection_is_damage(tmp_path: Path) -> None:
    model = _model()
    snapshot = _with_header(_saved(tmp_path, model), slice(-DIRECTIONS_BYTES), lambda header: None)
    (tmp_path / "index/00000001.graph").write_bytes(snapshot)
    _check_answers(tmp_path, model)
    assert _quarantined(tmp_path) == 1


def test_the_projection_of_another_graph_is_replaced_by_one_that_fits(tmp_path: Path) -> None:
    model = _model()
    world = np.random.default_rng(4).normal(size=(DIMENSION, DIMENSION))
    foreign = np.linalg.qr(world)[0][:WIDTH]
    (tmp_path / "index/00000001.graph").write_bytes(_with_directions(_saved(tmp_path, model), lambda _: foreign))
    vectors = opened(tmp_path, model)
    wait_until((tmp_path / "index/00000002.graph").exists)
    assert recall(vectors, model, clustered_vectors(20, DIMENSION, 3)) >= 0.99
    vectors.close()


def test_a_snapshot_of_the_previous_format_is_rebuilt_and_is_not_damage(tmp_path: Path) -> None:
    def make_older(header: dict[str, object]) -> None:
        identity = header["identity"]
        assert isinstance(identity, dict)
        del identity["graph_dimension"]
        header["format"] = 1

    model = _model()
    older = _with_header(_saved(tmp_path, model), slice(-DIRECTIONS_BYTES), make_older)
    (tmp_path / "index/00000001.graph").write_bytes(older)
    identity = SnapshotIdentity.of("store", "model/1", DIMENSION, EAGER)
    snapshots = SnapshotFolder(tmp_path / "index", tmp_path / "quarantine", identity, lambda: TIME)
    with pytest.raises(SnapshotStaleError, match="an older program"):
        snapshots.read(tmp_path / "index/00000001.graph")
    _check_answers(tmp_path, model)
    assert _quarantined(tmp_path) == 0
    assert (tmp_path / "index/00000002.graph").exists()


def test_a_projection_keeps_the_directions_in_which_the_vectors_differ() -> None:
    sample = clustered_vectors(500, DIMENSION, 1)
    projection = fit_projection(sample, 32)
    projection.check()
    singular = np.linalg.svd(sample, compute_uv=False)
    least = 1.0 - np.square(singular[:32]).sum() / np.square(singular).sum()
    assert projection.lost_share(sample) == pytest.approx(least, abs=1e-4)
    with pytest.raises(ProjectionError, match="orthonormal"):
        type(projection)(projection.directions[::-1] * np.float32(0.9)).check()
