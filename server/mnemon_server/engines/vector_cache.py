"""All vectors of a store in one array, for exact scans."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Scores, Vector

COMPACT_DEAD_SHARE = 0.25
CAPACITY_MIN = 1024
COPIED_SHARE = 0.3
"""To compare all vectors takes less time than to copy more of them than this share."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A reader's view of the array. A writer only appends behind it."""

    ids: PassageIds
    matrix: NDArray[np.float32]
    alive: NDArray[np.bool_]


class VectorCache:
    """Vectors of unit length by ascending passage id, in float32.

    One thread adds and removes. Any number of threads scan at the same time without a lock: each works on the snapshot
    that it took, and rows are written before the snapshot that includes them is published.
    """

    _ids: PassageIds
    _matrix: NDArray[np.float32]
    _alive: NDArray[np.bool_]
    _dead: int

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._write_lock = threading.Lock()
        self._fill(np.empty(0, np.int64), np.empty((0, dimension), np.float32), CAPACITY_MIN)

    def __len__(self) -> int:
        """The number of vectors."""
        return len(self._snapshot.ids) - self._dead

    @property
    def nbytes(self) -> int:
        """Bytes allocated for vectors and their administrative data."""
        return self._matrix.nbytes + self._ids.nbytes + self._alive.nbytes

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension). The ids ascend, and are larger than all ids added before."""
        with self._write_lock:
            count = len(self._snapshot.ids)
            end = count + len(passage_ids)
            if end > len(self._ids):
                self._grow(end)
                count = len(self._snapshot.ids)
                end = count + len(passage_ids)
            self._ids[count:end] = passage_ids
            self._matrix[count:end] = vectors
            self._alive[count:end] = True
            self._publish(end)

    def remove(self, passage_ids: Iterable[int]) -> None:
        """Removes vectors. Unknown ids are ignored. The memory is released once enough rows are dead."""
        with self._write_lock:
            snapshot = self._snapshot
            wanted = np.fromiter(passage_ids, np.int64)
            rows = _rows(snapshot, wanted)
            self._dead += int(np.count_nonzero(snapshot.alive[rows]))
            # A copy, because numpy miscounts flags that change while it counts them.
            self._alive = self._alive.copy()
            self._alive[rows] = False
            self._publish(len(snapshot.ids))
            if self._dead > CAPACITY_MIN and self._dead > COMPACT_DEAD_SHARE * len(snapshot.ids):
                self._grow(len(snapshot.ids) - self._dead)

    @property
    def passage_ids(self) -> PassageIds:
        """The ids of all vectors, ascending."""
        snapshot = self._snapshot
        return snapshot.ids[snapshot.alive]

    @property
    def newest(self) -> int:
        """The largest id that was added and not yet compacted away; 0 if the cache is empty."""
        ids = self._snapshot.ids
        return int(ids[-1]) if len(ids) else 0

    def select(self, passage_ids: PassageIds) -> tuple[PassageIds, NDArray[np.float32]]:
        """The given ids that exist, in the given order, and their vectors, of shape (n, dimension)."""
        snapshot = self._snapshot
        rows = _held(snapshot, passage_ids)
        return snapshot.ids[rows], snapshot.matrix[rows]

    def after(self, passage_id: int, limit: int) -> tuple[PassageIds, NDArray[np.float32]]:
        """Up to `limit` ids larger than the given one, ascending, and their vectors, of shape (n, dimension)."""
        snapshot = self._snapshot
        newer = _after(snapshot, passage_id)
        rows = np.flatnonzero(newer.alive)[:limit]
        return newer.ids[rows], newer.matrix[rows]

    def sample(self, limit: int) -> NDArray[np.float32]:
        """Up to `limit` vectors of shape (n, dimension), selected at random with a fixed seed."""
        snapshot = self._snapshot
        rows = np.flatnonzero(snapshot.alive)
        if len(rows) > limit:
            rows = np.sort(np.random.default_rng(0).choice(rows, limit, replace=False))
        return snapshot.matrix[rows]

    def count_after(self, passage_id: int) -> int:
        """The number of ids larger than the given one."""
        return int(np.count_nonzero(_after(self._snapshot, passage_id).alive))

    def scan(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """Cosine similarity of every vector, or of those in `among`; unknown ids are left out."""
        snapshot = self._snapshot
        return _all_scores(snapshot, query) if among is None else _scores(snapshot, _held(snapshot, among), query)

    def scan_with_newer(self, query: Vector, among: PassageIds, newest: int) -> Scores:
        """Cosine similarity of the vectors in `among`, and of all vectors with an id larger than `newest`.

        No id in `among` may exceed `newest`. Both parts come from one snapshot.
        """
        snapshot = self._snapshot
        # While many vectors are added, the newer ones are so many that to copy them would take most of the time.
        return Scores.joined(
            [_scores(snapshot, _held(snapshot, among), query), _all_scores(_after(snapshot, newest), query)]
        )

    def _grow(self, needed: int) -> None:
        """Copies the live rows into new arrays with room for `needed` rows and half as many again."""
        old = self._snapshot
        self._fill(old.ids[old.alive], old.matrix[old.alive], max(CAPACITY_MIN, needed * 3 // 2))

    def _fill(self, ids: PassageIds, matrix: NDArray[np.float32], capacity: int) -> None:
        self._ids = np.empty(capacity, np.int64)
        self._matrix = np.empty((capacity, self._dimension), np.float32)
        self._alive = np.empty(capacity, np.bool_)
        self._ids[: len(ids)], self._matrix[: len(ids)], self._alive[: len(ids)] = ids, matrix, True
        self._dead = 0
        self._publish(len(ids))

    def _publish(self, count: int) -> None:
        self._snapshot = _Snapshot(self._ids[:count], self._matrix[:count], self._alive[:count])


def _rows(snapshot: _Snapshot, wanted: PassageIds) -> NDArray[np.intp]:
    """The rows of the ids that exist."""
    rows = np.searchsorted(snapshot.ids, wanted)
    inside = rows < len(snapshot.ids)
    rows, wanted = rows[inside], wanted[inside]
    found: NDArray[np.intp] = rows[snapshot.ids[rows] == wanted]
    return found


def _held(snapshot: _Snapshot, wanted: PassageIds) -> NDArray[np.intp]:
    """The rows of the ids that exist and are alive."""
    rows = _rows(snapshot, wanted)
    return rows[snapshot.alive[rows]]


def _after(snapshot: _Snapshot, passage_id: int) -> _Snapshot:
    """The rows whose ids are larger than the given one, without copying them."""
    start = np.searchsorted(snapshot.ids, passage_id, side="right")
    return _Snapshot(snapshot.ids[start:], snapshot.matrix[start:], snapshot.alive[start:])


def _all_scores(snapshot: _Snapshot, query: Vector) -> Scores:
    similarities = cosine(snapshot.matrix, query)
    rows = np.flatnonzero(snapshot.alive)
    if len(rows) == len(similarities):
        return Scores(snapshot.ids, similarities)
    return Scores(snapshot.ids[rows], similarities[rows])


def _scores(snapshot: _Snapshot, rows: NDArray[np.intp], query: Vector) -> Scores:
    if len(rows) > len(snapshot.ids) * COPIED_SHARE:
        return Scores(snapshot.ids[rows], cosine(snapshot.matrix, query)[rows])
    return Scores(snapshot.ids[rows], cosine(snapshot.matrix[rows], query))


def cosine(vectors: NDArray[np.float32], query: Vector) -> NDArray[np.float64]:
    """The cosine, -1 to 1, between vectors of unit length, of shape (n, dimension), and a query."""
    # Not `vectors @ query`: BLAS threads wait for each other in busy loops, which costs ten times what they save when
    # the cores are busy. Rounding may put a vector's product with itself slightly above 1.
    similarities: NDArray[np.float64] = np.vecdot(vectors, query).astype(np.float64)
    return np.clip(similarities, -1.0, 1.0)
