"""A graph can be loaded from a snapshot that is newer than the records, as after restoring a backup."""

from pathlib import Path

import pytest

from tests.support.local_vectors import EAGER, Model, clustered_vectors, has_graph_of, opened, recall
from tests.support.server import wait_until

DIMENSION = 32
COUNT, LATER = 300, 60


def _saved(folder: Path) -> None:
    """A snapshot of COUNT vectors and LATER more."""
    model = _backup()
    model.add(clustered_vectors(LATER, DIMENSION, 2))
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, COUNT + LATER))
    vectors.close()


def _backup() -> Model:
    """The first COUNT vectors. Vectors added now get ids that the later ones had."""
    model = Model(DIMENSION)
    model.add(clustered_vectors(COUNT, DIMENSION, 1))
    return model


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_vectors_added_under_reused_ids_are_found(tmp_path: Path, starts: int) -> None:
    _saved(tmp_path)
    model = _backup()
    for number in range(starts):
        vectors = opened(tmp_path, model)
        wait_until(has_graph_of(vectors, COUNT))
        assert vectors.usage().dead_count == LATER, "the graph was rebuilt"
        matrix = clustered_vectors(EAGER.tail_max // 2, DIMENSION, 10 + number)
        for i in range(len(matrix)):
            [added] = model.add(matrix[i : i + 1])
            vectors.add(added[None], matrix[i : i + 1])
            nearest = vectors.nearest(matrix[i], 1)
            assert nearest is not None and nearest.passage_ids.tolist() == [added]
        assert recall(vectors, model, clustered_vectors(20, DIMENSION, 3)) >= 0.98
        vectors.close()
    again = opened(tmp_path, model)
    wait_until(has_graph_of(again, COUNT))
    assert recall(again, model, clustered_vectors(20, DIMENSION, 3)) >= 0.98
    again.close()
    assert not (tmp_path / "quarantine").exists()


def test_the_graph_accepts_vectors_under_reused_ids(tmp_path: Path) -> None:
    _saved(tmp_path)
    model = _backup()
    vectors = opened(tmp_path, model)
    wait_until(has_graph_of(vectors, COUNT))
    matrix = clustered_vectors(LATER + 20, DIMENSION, 4)
    vectors.add(model.add(matrix), matrix)
    wait_until(has_graph_of(vectors, COUNT + LATER + len(matrix)))
    vectors.remove(model.remove([COUNT + 1, COUNT + LATER + 1]))
    assert recall(vectors, model, matrix) >= 0.98
    vectors.close()
    again = opened(tmp_path, model)
    wait_until(has_graph_of(again, COUNT + len(matrix)))
    assert again.usage().dead_count == LATER + 2
    assert recall(again, model, matrix) >= 0.98
    again.close()
    assert not (tmp_path / "quarantine").exists()
