"""One hnswlib index behind one lock, because searching it during a change is not safe."""

import threading
import time
import zlib
from array import array
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.hnsw.links import (
    FREE_IDS_FROM,
    Links,
    element_type,
    links_of,
    load_index,
    new_index,
    take_state,
)
from mnemon_server.engines.hnsw.projection import Projection
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.promises.values import PassageIds, Vector

if TYPE_CHECKING:
    import hnswlib


# A lock that serves its waiters in order.


class FairLock:
    """A mutual exclusion lock, first come, first served; not reentrant.

    With `threading.Lock`, a thread that releases the lock and requests it again at once usually gets it, and can starve
    the waiting threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                # The lock stays held: ownership passes to the next waiter.
                self._waiting.popleft().release()
            else:
                self._held = False


SLICE_S = 0.005
"""Approximate time for which a change holds the lock. Searches alternate with changes."""
MARKS_PER_SLICE = 512
CAPACITY_MIN = 1_024

# Memory of hnswlib per vector besides its components and its lowest links: mutex, pointers, id map entry, upper links.
_OVERHEAD_BYTES = 112
_FINGERPRINT_BYTES = 4


def bytes_per_vector(dimension: int, settings: GraphSettings) -> int:
    """The memory that a graph needs for one vector of `dimension` components."""
    element = element_type(settings.graph_dimension(dimension), settings.m)
    return element.itemsize + _OVERHEAD_BYTES + _FINGERPRINT_BYTES


class Graph:
    """Proposes the neighbours of a vector, based on fewer components than it has. One thread changes it; any may
    search.
    """

    def __init__(
        self, projection: Projection, settings: GraphSettings, loaded: "tuple[hnswlib.Index, Links] | None" = None
    ) -> None:
        """Creates an empty graph, or wraps a loaded index whose vectors were projected in the same way."""
        self.projection = projection
        """The projection from given vectors to the graph's vectors."""
        self._settings = settings
        self._lock = FairLock()
        self._capacity = CAPACITY_MIN
        self._fingerprints = array("I")
        self.newest = 0
        """The largest passage id that was added."""
        self.count = 0
        """The number of vectors, including those marked as deleted."""
        self.dead = 0
        """The number of vectors marked as deleted."""
        if loaded is None:
            self._index = new_index(projection.width, settings, self._capacity)
        else:
            self._index, links = loaded
            self._capacity = self._index.get_max_elements()
            taken = links.passage_ids[links.passage_ids < FREE_IDS_FROM]
            self.newest, self.count = int(taken.max(initial=0)), len(links)
            self.dead = int(np.count_nonzero(links.deleted))
            self._fingerprints.frombytes(links.fingerprints.tobytes())

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        directions = self.projection.directions
        return directions.nbytes + self._capacity * bytes_per_vector(directions.shape[1], self._settings)

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32]) -> None:
        """Adds vectors of shape (n, dimension), a few per locking of the graph."""
        projected, checksums = self.projection.apply(vectors), fingerprints(vectors).tolist()
        done = 0
        while done < len(passage_ids):
            with self._lock:
                end = time.monotonic() + SLICE_S
                self._make_room()
                while done < len(passage_ids) and self.count < self._capacity:
                    self._index.add_items(projected[done], passage_ids[done])
                    self._fingerprints.append(checksums[done])
                    self.newest = max(self.newest, int(passage_ids[done]))
                    self.count += 1
                    done += 1
                    if time.monotonic() >= end:
                        break

    def remove(self, passage_ids: list[int]) -> int:
        """Marks vectors as deleted; returns how many were in the graph."""
        before = self.dead
        for start in range(0, len(passage_ids), MARKS_PER_SLICE):
            with self._lock:
                for passage_id in passage_ids[start : start + MARKS_PER_SLICE]:
                    self._mark(passage_id)
        return self.dead - before

    def nearest(self, query: Vector, limit: int) -> PassageIds:
        """Ids near the query, in any order: usually at least `limit`, sometimes fewer."""
        projected, wanted = self.projection.apply(query), self._wanted(limit)
        with self._lock:
            wanted = min(wanted, self.count - self.dead)
            if wanted == 0:
                return np.empty(0, np.int64)
            self._index.set_ef(max(self._settings.ef_search, wanted))
            try:
                labels, _ = self._index.knn_query(projected, k=wanted)
            except RuntimeError:
                # Deleted vectors can cut parts off. hnswlib then raises instead of returning fewer ids than requested.
                return np.empty(0, np.int64)
        found: PassageIds = labels[0].astype(np.int64)
        return found

    def links(self) -> Links:
        """The graph without its vectors. Copies all of it while holding the lock."""
        with self._lock:
            state, checksums = take_state(self._index), np.array(self._fingerprints, np.uint32)
        elements = state["data_level0"].view(element_type(self.projection.width, self._settings.m))
        return links_of(state, elements, checksums, self.projection)

    def _wanted(self, limit: int) -> int:
        """How many ids to request so that the nearest `limit` are among them."""
        width, dimension = self.projection.directions.shape
        return limit if width == dimension else max(self._settings.proposed_min, self._settings.overfetch * limit)

    def _make_room(self) -> None:
        if self.count == self._capacity:
            self._capacity = self._capacity * 5 // 4
            self._index.resize_index(self._capacity)

    def _mark(self, passage_id: int) -> None:
        try:
            self._index.mark_deleted(passage_id)
        except RuntimeError:
            return  # never added, or already marked
        self.dead += 1


def load_graph(settings: GraphSettings, links: Links, elements: NDArray[Any]) -> Graph:
    """Creates a graph from validated links and the elements with its projected vectors."""
    capacity = max(CAPACITY_MIN, len(links) * 9 // 8)
    return Graph(Projection(links.directions), settings, (load_index(links, elements, settings, capacity), links))


def fingerprints(vectors: NDArray[np.float32]) -> NDArray[np.uint32]:
    """A checksum for each row of vectors of shape (n, dimension)."""
    return np.fromiter((zlib.crc32(vector) for vector in vectors), np.uint32, len(vectors))
