"""The vectors of a collection: in memory, in full or in less detail; if they do not fit, read from the file."""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import apsw
import numpy as np

from mnemon_server.engines.hnsw import LocalVectors
from mnemon_server.engines.promises.values import PassageIds, Scores, Vector, VectorUsage
from mnemon_server.engines.quantized import QuantizedVectors
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.query import fetch_chunks, id_array, stored_meta
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.engines.sqlite.vector_blocks import ROWS_AT_ONCE, VectorBlock, read_origin, read_parts, read_vectors
from mnemon_server.engines.vector_cache import cosine

# ruff: noqa: S608 - table and column names are constants; all input is bound

PARTS_AHEAD = 16
"""The number of parts that are read at once while those before are loaded."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How many vectors are held in memory at most."""

    full: int
    """As 32-bit numbers, with a graph."""
    signs: int
    """As signs, with rounded components as far as `bytes` allows."""
    bytes: int
    """The memory for signs and rounded components."""


class VectorScanner:
    """Follows the writer: changes of a transaction are staged, and published after its commit."""

    def __init__(
        self,
        tables: Tables,
        connections: Connections,
        connection: apsw.Connection,
        *,
        dimension: int,
        limits: MemoryLimits,
        new_vectors: Callable[[str], LocalVectors],
        rounder: Executor,
    ) -> None:
        """Loads the vectors that `connection` sees. If memory is too small, scans read them on other connections.

        `new_vectors` creates the empty container for vectors in full; its argument identifies the database.
        `rounder` rounds the vectors once they are too many to be held in full.
        """
        self._connections = connections
        shown = f"NOT IN (SELECT position FROM {tables.documents} WHERE hidden = 1)"
        self._all = f"SELECT id, vector FROM {tables.passages} WHERE position {shown} ORDER BY id"
        self._among = (
            f"SELECT p.id, p.vector FROM carray(?) AS wanted CROSS JOIN {tables.passages} AS p ON p.id = wanted.value"
            f" WHERE p.position {shown} ORDER BY p.id"
        )
        self._stored = (
            f"SELECT p.id, p.vector FROM carray(?) AS wanted CROSS JOIN {tables.passages} AS p ON p.id = wanted.value"
        )
        self._dimension = dimension
        self._tables = tables
        self._damaged: set[int] = set()
        self._limits = limits
        self._held: LocalVectors | QuantizedVectors | None = None
        self._rounder = rounder
        self._rounding = False
        self._changing = threading.Lock()
        """Held while changes are published, and while another form of the vectors takes over."""
        self._closed = False
        self._removed_meanwhile: list[int] = []
        self._added_ids: list[int] = []
        self._added: list[Vector] = []
        self._removed: list[int] = []
        count = f"SELECT count(*) FROM {tables.passages} WHERE position {shown}"
        self._count = int(connection.execute(count).get)
        full = new_vectors(_store_name(connection))
        self._snapshots = full.snapshots
        if self._count <= limits.full:
            self._held = full
        elif self._count <= limits.signs:
            self._held = self._new_quantized(read_origin(connection, tables, dimension))
        if self._held is not None:
            self._load(connection, self._held)
        if isinstance(self._held, QuantizedVectors):
            self._held.start()

    def start_graph(self, *, warm: bool) -> None:
        """Starts to build or load the graph, if there is to be one. With `warm`, callers do not wait for it."""
        if isinstance(self._held, LocalVectors):
            self._held.start(warm=warm)

    def scan(self, query: Vector, among: PassageIds | None = None, *, exact: int) -> Scores:
        """Cosine similarity of every stored vector, or of those in `among` that are stored; see RecordEngine."""
        held = self._held
        if isinstance(held, LocalVectors):
            return held.scan(query, among)
        if held is not None:
            return held.scan(query, among, exact=exact)
        statement, parameters = (self._all, ()) if among is None else (self._among, (id_array(among),))
        with self._connections.lend() as connection:
            return self._scan_file(connection, statement, parameters, query)

    def scan_stored(self, connection: apsw.Connection, query: Vector, ids: PassageIds) -> Scores:
        """Cosine similarity of passages that a connection sees, in any order, staged or not, in memory or not."""
        held = self._held
        if not isinstance(held, LocalVectors):
            return self._scan_file(connection, self._among, (id_array(ids),), query)
        scores = held.scan(query, ids)
        if len(scores.passage_ids) == len(ids):
            return scores
        unheld = id_array(np.setdiff1d(ids, scores.passage_ids))
        return Scores.joined([scores, self._scan_file(connection, self._among, (unheld,), query)])

    def nearest(self, query: Vector, limit: int, *, exact: bool = True) -> Scores | None:
        """See RecordEngine.nearest_vectors."""
        held = self._held
        if isinstance(held, QuantizedVectors):
            return held.nearest(query, limit, exact=exact)
        return None if held is None else held.nearest(query, limit)

    @property
    def origin(self) -> Vector | None:
        """The origin of the rounded vectors' signs; None if vectors are held in full, or not at all."""
        held = self._held
        return held.origin if isinstance(held, QuantizedVectors) else None

    def usage(self) -> VectorUsage:
        """How the vectors are held."""
        held = self._held
        return VectorUsage(self._count, 0, 0, 0) if held is None else held.usage()

    def save_snapshot(self) -> datetime | None:
        """See RecordEngine.save_snapshot."""
        held = self._held
        if isinstance(held, LocalVectors):
            return held.save_snapshot()
        # They have checksums of vectors that may have been erased since, and nothing renews them.
        self._snapshots.clear()
        return None

    def stage(self, added_ids: Sequence[int], vectors: Sequence[Vector], removed: Sequence[int]) -> None:
        """Stages a change of the running transaction. Call it once the change has succeeded."""
        self._added_ids += added_ids
        self._added += vectors
        self._removed += removed

    def publish(self) -> int:
        """Publishes the staged changes after the commit. Returns by how many the vectors have increased."""
        growth = len(self._added_ids) - len(self._removed)
        with self._changing:
            self._make_room(len(self._added_ids))
            if self._held is not None:
                self._apply(self._held)
            if self._rounding:
                self._removed_meanwhile += self._removed
        self._count += growth
        self.discard()
        return growth

    def discard(self) -> None:
        """Discards the staged changes."""
        self._added_ids, self._added, self._removed = [], [], []

    def close(self, *, save: bool) -> None:
        """Stops the background work. Writes a last snapshot if `save` is set. Scans continue to work."""
        with self._changing:
            self._closed = True
        if self._held is not None:
            self._held.close(save=save)

    def _scan_file(
        self, connection: apsw.Connection, statement: str, parameters: Sequence[Any], query: Vector
    ) -> Scores:
        chunks = []
        for rows in fetch_chunks(connection, statement, parameters, rows_max=ROWS_AT_ONCE):
            ids, matrix = self._matrix(rows)
            chunks.append(Scores(ids, cosine(matrix, query)))
        return Scores.joined(chunks)

    def _make_room(self, added: int) -> None:
        """Holds less of each vector if too many would be held, and nothing if that would still be too much."""
        held, limits = self._held, self._limits
        count = 0 if held is None else len(held) + added
        if isinstance(held, LocalVectors) and limits.full < count <= limits.signs:
            if not self._rounding:
                self._rounding = True
                self._rounder.submit(self._round, held, self._new_quantized())
        elif isinstance(held, LocalVectors | QuantizedVectors) and count > limits.signs:
            self._held = None
            held.close(save=False)

    def _round(self, full: LocalVectors, rounded: QuantizedVectors) -> None:
        """Rounds the vectors while they change and are searched in full, and then replaces them."""
        try:
            newest = self._add_rounded(full, rounded, 0)
            with self._changing:
                if self._closed or self._held is not full:
                    return
                # Few were added in the meantime.
                self._add_rounded(full, rounded, newest)
                rounded.remove(self._removed_meanwhile)
                self._held, self._rounding, self._removed_meanwhile = rounded, False, []
                rounded.start()
            full.close(save=False)
        except Exception:  # any error: the vectors stay as they are
            log.exception("the vectors of %s were not rounded; they take more memory", self._tables.passages)

    def _add_rounded(self, full: LocalVectors, rounded: QuantizedVectors, newest: int) -> int:
        """Adds the vectors with ids larger than `newest`; returns the newest id."""
        for ids, vectors in full.chunks(ROWS_AT_ONCE, after=newest):
            if self._closed:
                break
            rounded.add(ids, vectors)
            newest = int(ids[-1])
        return newest

    def _new_quantized(self, origin: Vector | None = None) -> QuantizedVectors:
        return QuantizedVectors(self._dimension, self._score_stored, origin=origin, bytes_max=self._limits.bytes)

    def _score_stored(self, query: Vector, ids: PassageIds) -> Scores:
        with self._connections.lend() as connection:
            return self._scan_file(connection, self._stored, (id_array(ids),), query)

    def _apply(self, held: LocalVectors | QuantizedVectors) -> None:
        if self._added:
            held.add(np.array(self._added_ids, np.int64), np.stack(self._added).astype(np.float32))
        if self._removed:
            # After the additions, because a passage may be added and removed within one transaction.
            held.remove(self._removed)

    def _load(self, connection: apsw.Connection, held: LocalVectors | QuantizedVectors) -> None:
        if isinstance(held, QuantizedVectors):
            for part in _ahead(read_parts(connection, self._tables, self._dimension, held.origin)):
                if isinstance(part, VectorBlock):
                    held.add_rounded(part.passage_ids, part.vectors)
                else:
                    held.add(*self._matrix(part))
        else:
            for rows in _ahead(fetch_chunks(connection, self._all, rows_max=ROWS_AT_ONCE)):
                held.add(*self._matrix(rows))

    def _matrix(self, rows: Sequence[tuple[int, bytes]]) -> "tuple[PassageIds, np.typing.NDArray[np.float32]]":
        ids, matrix = read_vectors(rows, self._dimension)
        if len(ids) < len(rows):
            self._log_damaged({row[0] for row in rows}.difference(ids.tolist()))
        return ids, matrix

    def _log_damaged(self, passage_ids: set[int]) -> None:
        """Logs each passage once."""
        for passage_id in sorted(passage_ids - self._damaged):
            log.error(
                "the vector of passage %d in %s is damaged; vector searches skip it", passage_id, self._tables.passages
            )
        self._damaged |= passage_ids


def _ahead(parts: Iterator[T]) -> Iterator[T]:
    """The parts, of which a thread reads the next ones meanwhile. It waits for the disk, or copies pages, half of the
    time. Many at once, because handing over takes as long as reading a small part.
    """

    def read() -> list[T]:
        return list(islice(parts, PARTS_AHEAD))

    yield from (found := read())
    if len(found) < PARTS_AHEAD:
        return  # A small collection is not worth a thread.
    with ThreadPoolExecutor(1, "vector-reader") as reader:
        following = reader.submit(read)
        while found := following.result():
            following = reader.submit(read)
            yield from found


def _store_name(connection: apsw.Connection) -> str:
    """A name that identifies the database. It is derived from the epoch, which is secret."""
    return hashlib.sha256(stored_meta(connection, "epoch")).hexdigest()[:32]
