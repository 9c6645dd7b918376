"""The vectors of a timeline's events: the newest are in memory, the others are read from the file.

Reading 10,000 vectors takes most of the time of a search, and most searches compare the newest.
"""

from dataclasses import dataclass, field, replace

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.events.text_words import Floats
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.values import NO_SCORES, Scores, Vector
from mnemon_server.engines.sqlite.query import fetch_chunks, id_array
from mnemon_server.engines.vector_cache import VectorCache, cosine

HELD_MAX = 10_000
"""How many vectors are read into memory; half as many again may be added before the oldest are dropped."""
STORED_TYPE = np.dtype("<f2")
"""Half the size of 32-bit floats; the error in the similarity of two vectors is below 0.001."""
_VECTORS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class _Held:
    """The vectors in memory: of all events that have one, from a sequence on."""

    first: int = INT64_MAX
    cache: VectorCache = field(default_factory=lambda: VectorCache(0))


class EventVectors:
    """Compares vectors. One thread changes what is in memory; any thread may compare."""

    def __init__(self, held_max: int = HELD_MAX) -> None:
        """Nothing is in memory yet."""
        self._held_max = held_max
        self._held = _Held()

    @property
    def is_held(self) -> bool:
        """Whether the newest vectors are in memory."""
        return self._held.first < INT64_MAX

    def hold(self, connection: apsw.Connection) -> None:
        """Reads the newest vectors of the file into memory."""
        statement = (
            "SELECT sequence, vector FROM vector WHERE vector <> x'' AND sequence >= ifnull("
            "(SELECT sequence FROM vector WHERE vector <> x'' ORDER BY sequence DESC LIMIT 1 OFFSET ?), 0)"
            " ORDER BY sequence"
        )
        held = _Held(0)
        for rows in fetch_chunks(connection, statement, (self._held_max - 1,), rows_max=_VECTORS_AT_ONCE):
            held = _with(held, np.array([sequence for sequence, _ in rows], np.int64), _matrix(rows))
        if len(held.cache) >= self._held_max:
            held = _Held(int(held.cache.passage_ids[0]), held.cache)
        self._held = held

    def add(self, sequences: Sequences, vectors: NDArray[np.floating]) -> bool:
        """Adds vectors that are about to be stored, of shape (n, dimension). Returns False if they are not the newest:
        then call `hold` once they are stored.
        """
        held = self._held
        if not len(sequences) or not self.is_held:
            return True
        if int(sequences[0]) <= held.cache.newest:
            return False
        held = _with(held, sequences, vectors)
        if len(held.cache) > self._held_max * 3 // 2:
            first = int(held.cache.passage_ids[-self._held_max])
            newest = held.cache.after(first - 1, self._held_max)
            held = _with(_Held(first), *newest)
        self._held = held
        return True

    def remove(self, sequences: Sequences) -> None:
        """Drops vectors that were removed from the file."""
        self._held.cache.remove(sequences.tolist())

    def similarities(self, connection: apsw.Connection, query: Vector, among: Sequences) -> Scores:
        """The cosines, from 0 to 1 and by ascending sequence, of the events that have a vector. `among` must ascend."""
        held = self._held
        place = among.searchsorted(held.first)
        found = _stored(connection, query, among[:place]) if place else NO_SCORES
        if place == len(among) or not len(held.cache):
            return found
        newest = held.cache.scan(query, among[place:])
        return Scores.joined([found, replace(newest, scores=newest.scores.clip(0.0, 1.0))])


def cosines(vectors: NDArray[np.floating], query: Vector) -> Floats:
    """The cosines of vectors as they are stored, from 0 to 1."""
    return cosine(vectors.astype(STORED_TYPE, copy=False).astype(np.float32), query).clip(0.0, 1.0)


def _stored(connection: apsw.Connection, query: Vector, among: Sequences) -> Scores:
    statement = (
        "SELECT sequence, vector FROM vector WHERE sequence IN (SELECT value FROM carray(?)) AND vector <> x''"
        " ORDER BY sequence"
    )
    chunks = fetch_chunks(connection, statement, (id_array(among),), rows_max=_VECTORS_AT_ONCE)
    return Scores.joined(
        [Scores(np.array([row[0] for row in rows], np.int64), cosines(_matrix(rows), query)) for rows in chunks]
    )


def _matrix(rows: list[tuple[int, bytes]]) -> NDArray[np.float16]:
    """The vectors of rows, of shape (rows, dimension)."""
    stored: NDArray[np.float16] = np.frombuffer(b"".join([vector for _, vector in rows]), STORED_TYPE)
    return stored.reshape(len(rows), -1)


def _with(held: _Held, sequences: Sequences, vectors: NDArray[np.floating]) -> _Held:
    """The vectors with newer ones, as they are stored."""
    cache = held.cache if len(held.cache) else VectorCache(vectors.shape[1])
    cache.add(sequences, vectors.astype(STORED_TYPE, copy=False).astype(np.float32))
    return _Held(held.first, cache)
