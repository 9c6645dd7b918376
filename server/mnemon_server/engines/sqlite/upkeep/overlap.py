"""Compares the neighbours that two embedding models find for the same texts."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.engines.sqlite.documents import VECTOR_TYPE
from mnemon_server.engines.sqlite.query import fetch, fetch_chunks, id_array
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

NEIGHBOURS = 10
SAMPLES = 100
ROWS_AT_ONCE = 2_048

Matrix = NDArray[np.float32]


class Nearest:
    """The documents nearest to each query vector, among all vectors passed to `show`."""

    def __init__(self, queries: Matrix, own: NDArray[np.int64]) -> None:
        """`queries` has the shape (n, dimension), of unit length; `own` contains the document of each query."""
        self._queries, self._own = queries, own
        self._best = [dict[int, float]() for _ in own]

    def show(self, documents: NDArray[np.int64], vectors: Matrix) -> None:
        """Adds vectors to compare with, each with the position of its document."""
        scores = self._queries @ vectors.T
        count = min(2 * NEIGHBOURS, len(documents))
        for row, best in enumerate(self._best):
            near = np.argpartition(-scores[row], count - 1)[:count]
            for document, score in zip(documents[near].tolist(), scores[row][near].tolist(), strict=True):
                if document != self._own[row]:
                    best[document] = max(score, best.get(document, -2.0))
            self._best[row] = dict(sorted(best.items(), key=itemgetter(1), reverse=True)[:NEIGHBOURS])

    def __iter__(self) -> Iterator[set[int]]:
        return (set(best) for best in self._best)


def overlap(connection: apsw.Connection) -> float | None:
    """The share of the ten documents nearest to a stored text that both models agree on.

    The mean over up to 100 passages of each collection, evenly chosen from those that have vectors of both models; None
    if there are fewer than twelve documents to choose from.
    """
    shares = [share for collection in COLLECTIONS for share in _shares(connection, Tables(collection))]
    return float(np.mean(shares)) if shares else None


def _shares(connection: apsw.Connection, tables: Tables) -> list[float]:
    both = f"{tables.passages}_shadow AS s CROSS JOIN {tables.passages} AS p ON p.id = s.id"
    ids = [row[0] for row in fetch(connection, f"SELECT id FROM {tables.passages}_shadow ORDER BY id")]
    columns = f"SELECT p.position, p.vector, s.vector FROM {both}"
    sample = id_array(
        sorted({ids[index] for index in np.linspace(0, len(ids) - 1, SAMPLES).astype(int)} if ids else ())
    )
    chosen = fetch(connection, f"{columns} WHERE s.id IN (SELECT value FROM carray(?))", (sample,))
    documents = connection.execute(f"SELECT count(DISTINCT position) FROM {tables.passages}_shadow").get
    if documents < NEIGHBOURS + 2:
        return []
    own, *vectors = _columns(chosen)
    sides = [Nearest(side, own) for side in vectors]
    for rows in fetch_chunks(connection, columns, (), rows_max=ROWS_AT_ONCE):
        positions, *vectors = _columns(rows)
        for side, shown in zip(sides, vectors, strict=True):
            side.show(positions, shown)
    return [len(one & other) / NEIGHBOURS for one, other in zip(*sides, strict=True)]


def _columns(rows: Sequence[tuple[int, bytes, bytes]]) -> tuple[NDArray[np.int64], Matrix, Matrix]:
    positions = np.array([row[0] for row in rows], np.int64)
    return positions, _matrix([row[1] for row in rows]), _matrix([row[2] for row in rows])


def _matrix(vectors: Sequence[bytes]) -> Matrix:
    return np.frombuffer(b"".join(vectors), VECTOR_TYPE).reshape(len(vectors), -1).astype(np.float32, copy=False)
