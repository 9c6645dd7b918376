"""The thread that maintains a graph: it loads or builds the graph, adds vectors, rebuilds it, and saves snapshots."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.errors import MnemonError, StorageFailedError
from mnemon_server.engines.allocator import release_free_memory
from mnemon_server.engines.file_errors import storage_error
from mnemon_server.engines.hnsw.graph import Graph, fingerprints, load_graph
from mnemon_server.engines.hnsw.links import FREE_IDS_FROM, Links, LinksError, element_type
from mnemon_server.engines.hnsw.projection import SAMPLE_MAX, Projection, fit_projection
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotDamagedError, SnapshotFolder, SnapshotStaleError
from mnemon_server.engines.turns import next_turn
from mnemon_server.engines.vector_cache import VectorCache

# Restores a graph from the links of a snapshot and the vectors of the records.


_CHUNK_ROWS = 1_024


def restore_graph(links: Links, vectors: VectorCache, settings: GraphSettings, note: Callable[[int], None]) -> Graph:
    """Restores the snapshot's graph, and updates it for vectors that were removed or missed in between.

    Vectors newer than all of the snapshot's are not added here. `note` is called with the number of vectors so far.

    Raises:
        SnapshotStaleError: the snapshot was made of other vectors.
    """
    elements = np.empty(len(links), element_type(len(links.directions), settings.m))
    alive = _fill_alive(links, vectors, elements["vector"], note)
    if (alive & links.deleted).any():
        raise SnapshotStaleError("it marks vectors as deleted that exist")
    _fill_gone(links, elements["vector"], alive)
    links = _with_ids_freed(links, alive)
    elements["links"], elements["label"] = links.ground, links.passage_ids
    graph = load_graph(settings, links, elements)
    graph.remove(links.passage_ids[~alive].tolist())
    held = vectors.passage_ids
    missing = np.setdiff1d(held[held <= graph.newest], links.passage_ids[alive])
    graph.add(*vectors.select(missing))
    return graph


def _fill_alive(
    links: Links, vectors: VectorCache, target: NDArray[np.float32], note: Callable[[int], None]
) -> NDArray[np.bool_]:
    """Projects the vectors that still exist, and returns which rows they are."""
    projection, alive = Projection(links.directions), np.zeros(len(links), np.bool_)
    for start in range(0, len(links), _CHUNK_ROWS):
        wanted = links.passage_ids[start : start + _CHUNK_ROWS]
        ids, held = vectors.select(wanted)
        rows = start + np.flatnonzero(np.isin(wanted, ids))
        if (fingerprints(held) != links.fingerprints[rows]).any():
            raise SnapshotStaleError("it was made from other vectors")
        target[rows], alive[rows] = projection.apply(held), True
        note(start + len(wanted))
    return alive


def _with_ids_freed(links: Links, alive: NDArray[np.bool_]) -> Links:
    """The links with new ids for rows whose vectors no longer exist.

    If the records were restored from a backup but the snapshot was not, their ids are assigned again.
    """
    rows = np.arange(len(links))
    return replace(links, passage_ids=np.where(alive, links.passage_ids, FREE_IDS_FROM + rows))


def _fill_gone(links: Links, target: NDArray[np.float32], alive: NDArray[np.bool_]) -> None:
    """Supplies vectors for rows whose own vectors no longer exist, so that searches can pass through them.

    The mean of a row's neighbours, scaled to their length, is close enough to the lost vector.
    """
    for row in np.flatnonzero(~alive):
        rows = links.neighbours(int(row))
        near = target[rows[alive[rows]]]
        total = near.sum(axis=0)
        length = float(np.linalg.norm(near, axis=1).sum()) / max(len(near), 1)
        target[row] = total * (length / max(float(np.linalg.norm(total)), 1e-12))


# Requests for a snapshot that another thread writes.


class SnapshotRequests:
    """Any thread may request a snapshot. The writing thread answers all requests that came before it began."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Future[datetime | None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def add(self) -> Future[datetime | None]:
        """Adds a request. Its future gets the snapshot's time, None if there is no graph, or an exception."""
        request: Future[datetime | None] = Future()
        with self._guard:
            if self._closed:
                request.set_exception(_closed())
            else:
                self._waiting.append(request)
        return request

    def answer(self, count: int, time: datetime | None) -> None:
        """Answers the oldest `count` requests."""
        for request in self._take(count):
            request.set_result(time)

    def fail(self, count: int, error: OSError) -> None:
        """Fails the oldest `count` requests with an error."""
        for request in self._take(count):
            request.set_exception(storage_error("write", "the snapshot", error))

    def close(self) -> None:
        """Fails the waiting requests, and refuses further ones."""
        with self._guard:
            self._closed = True
        for request in self._take(len(self)):
            request.set_exception(_closed())

    def _take(self, count: int) -> list[Future[datetime | None]]:
        with self._guard:
            return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


def _closed() -> MnemonError:
    return StorageFailedError("the records are being closed; no snapshot was written")


log = logging.getLogger(__name__)

_FEED_ROWS = 256
_FIT_GROWTH = 1.25
_LOSS_FACTOR, _LOSS_MARGIN = 1.5, 0.02


class GraphMaintenance:
    """Maintains a graph of the vectors in a cache.

    One thread reports changes to it. Its own thread starts when there is work, and is the only one that changes graphs.
    If the graph is missing or fails, searches work without it.
    """

    def __init__(
        self,
        vectors: VectorCache,
        dimension: int,
        settings: GraphSettings,
        snapshots: SnapshotFolder,
    ) -> None:
        """Starts no thread yet."""
        self._vectors = vectors
        self._dimension = dimension
        self._settings = settings
        self._snapshots = snapshots
        self.graph: Graph | None = None
        """The graph for searches; None if there is no graph, or if it is not complete yet."""
        self.snapshot_time: datetime | None = None
        """Time of the newest snapshot that was written or loaded."""
        self.is_warm = True
        """False from `start` until the expected graph is ready or building it has failed. True if no graph is
        expected.
        """
        self._unfinished: Graph | None = None
        self._loaded_count = 0
        self._fitted_count = 0
        self._removed: deque[int] = deque()
        self._unsaved = 0
        self._save_at = float("inf")
        self._retry_at = 0.0
        self._requests = SnapshotRequests()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._saves = True
        self._started = False
        self._thread: threading.Thread | None = None

    @property
    def unfinished_bytes(self) -> int:
        """The size of the graph that is being built, in bytes."""
        graph = self._unfinished
        return graph.nbytes if graph else 0

    @property
    def building_count(self) -> int:
        """The number of vectors in the graph that is being built or loaded; 0 if no graph is."""
        graph = self._unfinished
        return graph.count if graph else self._loaded_count

    def start(self, *, warm: bool = False) -> None:
        """Starts the work, now or once there are enough vectors. With `warm`, callers do not wait for the graph."""
        self._started = True
        # Set here rather than on the thread, so that no caller sees the graph as unneeded before the thread has
        # started.
        self.is_warm = warm or not self._expects_graph()
        self._start_thread(self._settings.graph_kept_min)

    def added(self) -> None:
        """Must be called after vectors were added."""
        if self._thread is None:
            self._start_thread(self._settings.graph_min)
        elif (graph := self.graph) is None or self._lacks_many(graph):
            self._wake.set()

    def removed(self, passage_ids: Sequence[int]) -> None:
        """Must be called after vectors were removed."""
        if self._thread is not None and self._thread.is_alive():
            self._removed.extend(passage_ids)
            self._wake.set()

    def save_snapshot(self) -> datetime | None:
        """Requests a snapshot, and waits for it; see RecordEngine."""
        # Add the request before checking for a graph. If the graph is given up, either this thread or the other one
        # answers it.
        request, wait_s = self._requests.add(), self._settings.snapshot_wait_s
        if self.graph is None:
            self._requests.answer(len(self._requests), None)
            return None
        self._wake.set()
        try:
            return request.result(wait_s)
        except TimeoutError:
            raise StorageFailedError(f"the snapshot was not written within {wait_s:g} s; it may still follow") from None

    def close(self, *, save: bool) -> None:
        """Stops the thread. Writes a last snapshot if `save` is set and the graph has changed."""
        self._saves = save
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.graph = None

    def _start_thread(self, count_min: int) -> None:
        if self._started and not self._closing.is_set() and count_min <= len(self._vectors):
            self._thread = threading.Thread(target=self._run, name="vector-graph", daemon=True)
            self._thread.start()

    def _expects_graph(self) -> bool:
        """Whether the present number of vectors requires a graph."""
        settings, count = self._settings, len(self._vectors)
        return count >= settings.graph_min or (count >= settings.graph_kept_min and self._snapshots.has_any())

    # On the thread

    def _run(self) -> None:
        try:
            self._warm_up()
            while next_turn(self._wake, self._closing):
                if not self._take_step():
                    self._wake.wait(self._seconds_until_save())
            self._save_last()
        except Exception:  # any error: searches continue without a graph
            log.exception("the graph failed; every vector is compared from now on, until the next start")
            self._unfinished = None
            self._give_up()
            self.is_warm = True
        finally:
            self._requests.close()

    def _warm_up(self) -> None:
        """Loads the graph and adds what its snapshot lacks, or builds it."""
        self._restore()
        if self.graph is None:
            self._take_step()
        elif self._lacks_many(self.graph):
            self._feed(self.graph)
        if not self._closing.is_set():
            self.is_warm = True

    def _take_step(self) -> bool:
        """Does the most urgent task; False if there is no task."""
        graph, count = self.graph, len(self._vectors)
        self._mark_removed()
        if graph is None:
            return count >= self._settings.graph_min and self._build()
        if count < self._settings.graph_kept_min:
            self._give_up()
            self._snapshots.clear()
            return False
        if graph.dead > self._settings.dead_share_max * graph.count or self._fits_badly(graph):
            return self._build()
        if self._lacks_many(graph):
            self._feed(graph)
            return True
        if self._is_save_due(graph):
            self._save(graph)
        return False

    def _build(self) -> bool:
        """Builds a graph of all live vectors to replace the present one; False if closing interrupted it."""
        # Searches do not use it yet, so they do not wait for its lock.
        started = time.monotonic()
        width = self._settings.graph_dimension(self._dimension)
        projection = fit_projection(self._vectors.sample(SAMPLE_MAX), width)
        self._unfinished = graph = Graph(projection, self._settings)
        self._feed(graph)
        if self._closing.is_set():
            return False
        self.graph, self._unfinished = graph, None
        self._fitted_count = graph.count
        log.info("built a graph of %d vectors in %.1f s", graph.count, time.monotonic() - started)
        self._mark_removed()
        self._save(graph)
        return True

    def _fits_badly(self, graph: Graph) -> bool:
        """Whether a new projection would lose far less of the vectors. Checked each time the graph has grown by a
        quarter.

        The first vectors may be about other subjects than later ones. A loaded graph is checked at once.
        """
        if graph.count < _FIT_GROWTH * self._fitted_count:
            return False
        self._fitted_count = graph.count
        lost, least = self._losses(graph)
        release_free_memory()
        return lost > _LOSS_FACTOR * least + _LOSS_MARGIN

    def _losses(self, graph: Graph) -> tuple[float, float]:
        """The share of the vectors that the graph's projection loses, and the share that the best projection would
        lose.
        """
        sample = self._vectors.sample(SAMPLE_MAX)
        best = fit_projection(sample, graph.projection.width)
        return graph.projection.lost_share(sample), best.lost_share(sample)

    def _lacks_many(self, graph: Graph) -> bool:
        return self._vectors.count_after(graph.newest) >= self._settings.tail_max

    def _feed(self, graph: Graph) -> None:
        """Adds the vectors that the graph lacks. Vectors that arrive meanwhile are added the next time."""
        end = self._vectors.newest
        while graph.newest < end and not self._closing.is_set():
            ids, vectors = self._vectors.after(graph.newest, _FEED_ROWS)
            if not len(ids):
                return
            graph.add(ids, vectors)
            self._note_changes(len(ids))
            self._mark_removed()
            if self.graph is not None and self._requests:
                # Adding may take minutes. Callers that requested a snapshot should not wait that long.
                self._save(self.graph)

    def _mark_removed(self) -> None:
        removed = [self._removed.popleft() for _ in range(len(self._removed))]
        if not removed:
            return
        for graph in (self.graph, self._unfinished):
            if graph is not None:
                self._note_changes(graph.remove(removed))

    def _give_up(self) -> None:
        self.graph = None
        self._requests.answer(len(self._requests), None)

    # Snapshots

    def _note_changes(self, count: int) -> None:
        if count:
            self._unsaved += count
            self._save_at = max(self._retry_at, time.monotonic() + self._settings.snapshot_idle_s)

    def _is_save_due(self, graph: Graph) -> bool:
        settings, now = self._settings, time.monotonic()
        many = max(settings.snapshot_changes_min, settings.snapshot_changes_share * graph.count)
        if self._requests:
            return True
        return self._unsaved > 0 and now >= self._retry_at and (self._unsaved >= many or now >= self._save_at)

    def _seconds_until_save(self) -> float | None:
        return max(0.0, self._save_at - time.monotonic()) if self._unsaved and self.graph else None

    def _save_last(self) -> None:
        """Also saves an unfinished graph, which the next start continues."""
        graph = self.graph or self._unfinished
        if self._saves and self._unsaved and graph is not None and graph.count:
            self._save(graph)

    def _save(self, graph: Graph) -> None:
        asked = len(self._requests)
        try:
            self.snapshot_time = self._snapshots.save(graph.links())
        except OSError as error:
            log.warning("the graph could not be saved; without a snapshot the next start builds it anew: %s", error)
            self._retry_at = self._save_at = time.monotonic() + self._settings.snapshot_retry_s
            self._requests.fail(asked, error)
        else:
            self._unsaved = 0
            self._requests.answer(asked, self.snapshot_time)
        release_free_memory()

    def _restore(self) -> None:
        """Loads the newest snapshot that is intact and fits the vectors."""
        for path in self._snapshots.generations():
            try:
                links, self.snapshot_time = self._snapshots.read(path)
                self.graph = restore_graph(links, self._vectors, self._settings, self._note_loaded)
            except (SnapshotDamagedError, LinksError) as error:
                log.warning("snapshot %s of the graph is damaged and is moved into quarantine: %s", path.name, error)
                self._snapshots.quarantine(path)
            except (SnapshotStaleError, OSError) as error:
                log.warning("snapshot %s of the graph is not used: %s", path.name, error)
            else:
                log.info("loaded a graph of %d vectors", len(links))
                self._note_changes(self.graph.count - len(links) + self.graph.dead - int(links.deleted.sum()))
                return
            finally:
                self._loaded_count = 0
        self.snapshot_time = None

    def _note_loaded(self, count: int) -> None:
        self._loaded_count = count
