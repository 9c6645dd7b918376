"""The vectors of the newest events in memory, beside those in the file."""

import apsw
import numpy as np
import pytest
from mnemon_server.engines.events.text_vectors import STORED_TYPE, EventVectors
from mnemon_server.engines.promises.events import Sequences
from numpy.typing import NDArray

DIMENSION, HELD = 16, 8


class Stored:
    """A file of vectors, and what is in memory of it."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        self.connection.execute("CREATE TABLE vector (sequence INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
        self.vectors = EventVectors(HELD)
        self._rng = np.random.default_rng(3)
        self._known: dict[int, NDArray[np.float32]] = {}

    def add(self, *sequences: int) -> None:
        """Stores vectors, as the text index does."""
        made = self._rng.standard_normal((len(sequences), DIMENSION)).astype(np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        are_newest = self.vectors.add(np.array(sequences, np.int64), made)
        for sequence, vector in zip(sequences, made, strict=True):
            blob = vector.astype(STORED_TYPE).tobytes()
            self.connection.execute("INSERT OR REPLACE INTO vector VALUES (?, ?)", (sequence, blob))
            self._known[sequence] = vector
        if not are_newest:
            self.vectors.hold(self.connection)

    def remove(self, *sequences: int) -> None:
        """Removes vectors from the file and from memory."""
        for sequence in sequences:
            self.connection.execute("DELETE FROM vector WHERE sequence = ?", (sequence,))
            del self._known[sequence]
        self.vectors.remove(np.array(sequences, np.int64))

    def check(self, among: Sequences) -> None:
        """Compares a query with some events, as many as are known."""
        query = self._rng.standard_normal(DIMENSION).astype(np.float32)
        query /= np.linalg.norm(query)
        found = self.vectors.similarities(self.connection, query, among)
        known = [each for each in among.tolist() if each in self._known]
        assert found.passage_ids.tolist() == known
        expected = [max(float(self._known[each] @ query), 0.0) for each in known]
        assert found.scores.tolist() == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("held", [0, 1])
def test_events_are_compared_whether_or_not_their_vectors_are_in_memory(held: int) -> None:
    stored = Stored()
    stored.add(*range(1, 30, 2))
    if held:
        stored.vectors.hold(stored.connection)
    stored.connection.execute("INSERT INTO vector VALUES (30, x'')")
    for step in range(31, 61, 3):
        stored.add(step, step + 1)
        stored.remove(step)
        for among in ([], [1], [2, 3, 60], range(70), range(step, step + 3), range(40, 50)):
            stored.check(np.array(among, np.int64))


def test_vectors_that_are_stored_again_replace_those_in_memory() -> None:
    stored = Stored()
    stored.vectors.hold(stored.connection)
    stored.add(1, 2, 3)
    stored.add(2, 3, 4)
    stored.check(np.arange(6))


def test_the_newest_vectors_are_not_read_from_the_file() -> None:
    stored = Stored()
    stored.add(*range(20))
    stored.vectors.hold(stored.connection)
    stored.connection.execute("DELETE FROM vector")
    stored.check(np.arange(20 - HELD, 20))
