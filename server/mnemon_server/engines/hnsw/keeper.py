"""The thread that looks after a graph: loads or builds it, feeds it, rebuilds it, saves it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from mnemon_server.engines.hnsw.allocator import release_free_memory
from mnemon_server.engines.hnsw.graph import Graph
from mnemon_server.engines.hnsw.links import LinksError
from mnemon_server.engines.hnsw.projection import SAMPLE_MAX, fit_projection
from mnemon_server.engines.hnsw.restoring import restore_graph
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotDamagedError, SnapshotFolder, SnapshotStaleError
from mnemon_server.engines.vector_cache import VectorCache

log = logging.getLogger(__name__)

_FEED_ROWS = 256
_FIT_GROWTH = 1.25
_LOSS_FACTOR, _LOSS_MARGIN = 1.5, 0.02


class GraphKeeper:
    """Follows the vectors that are held with a graph of them.

    One thread tells it of changes. Its own thread starts once there is something to do, and is the only one that
    changes graphs; whatever becomes of it, searches are answered without.
    """

    def __init__(
        self,
        vectors: VectorCache,
        dimension: int,
        settings: GraphSettings,
        snapshots: SnapshotFolder,
        *,
        rows_max: int,
    ) -> None:
        """Does nothing yet; for more than `rows_max` vectors there is no graph."""
        self._vectors = vectors
        self._dimension = dimension
        self._settings = settings
        self._snapshots = snapshots
        self._rows_max = rows_max
        self.graph: Graph | None = None
        """What searches use; None where there is none, or none yet."""
        self.snapshot_time: datetime | None = None
        """Of the newest snapshot that was written or loaded."""
        self._unfinished: Graph | None = None
        self._fitted_count = 0
        self._removed: deque[int] = deque()
        self._unsaved = 0
        self._save_at = float("inf")
        self._retry_at = 0.0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._saves = True
        self._started = False
        self._thread: threading.Thread | None = None

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the graph that is being built."""
        graph = self._unfinished
        return graph.nbytes if graph else 0

    def start(self) -> None:
        """Begins the work, now or once there are enough vectors."""
        self._started = True
        self._start_thread(self._settings.graph_min // 2)

    def added(self) -> None:
        """To be called after vectors were added."""
        if self._thread is None:
            self._start_thread(self._settings.graph_min)
        elif (graph := self.graph) is None or self._vectors.count_after(graph.newest) >= self._settings.tail_max:
            self._wake.set()

    def removed(self, passage_ids: Sequence[int]) -> None:
        """To be called after vectors were removed."""
        if self._thread is not None and self._thread.is_alive():
            self._removed.extend(passage_ids)
            self._wake.set()

    def close(self, *, save: bool) -> None:
        """Ends the thread; a last snapshot is written where `save` and something changed."""
        self._saves = save
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.graph = None

    def _start_thread(self, count_min: int) -> None:
        if self._started and not self._closing.is_set() and count_min <= len(self._vectors) <= self._rows_max:
            self._thread = threading.Thread(target=self._run, name="vector-graph", daemon=True)
            self._thread.start()

    # On the thread

    def _run(self) -> None:
        try:
            self._restore()
            while not self._closing.is_set():
                self._wake.clear()
                if not self._take_step():
                    self._wake.wait(self._seconds_until_save())
            self._save_last()
        except Exception:  # whatever it is: searches go on without a graph
            log.exception("the graph failed; every vector is compared from now on, until the next start")
            self.graph = self._unfinished = None

    def _take_step(self) -> bool:
        """Does the most urgent thing; False where there is nothing to do."""
        graph, count = self.graph, len(self._vectors)
        self._mark_removed()
        if graph is None:
            return self._settings.graph_min <= count <= self._rows_max and self._build()
        if count > self._rows_max or count < self._settings.graph_min // 2:
            self._drop(count)
            return False
        if graph.dead > self._settings.dead_share_max * graph.count or self._fits_badly(graph):
            return self._build()
        if self._vectors.count_after(graph.newest) >= self._settings.tail_max:
            self._feed(graph)
            return True
        if self._is_save_due(graph):
            self._save(graph)
        return False

    def _build(self) -> bool:
        """A graph of what is alive, in place of the one there is; False where closing came first."""
        # Searches do not know it, and so do not wait for it.
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
        """Whether new directions would lose far less of the vectors; asked again once the graph has grown by a quarter.

        The first vectors may be of other subjects than those that follow. A graph that was loaded is asked at once.
        """
        if graph.count < _FIT_GROWTH * self._fitted_count:
            return False
        self._fitted_count = graph.count
        lost, least = self._losses(graph)
        release_free_memory()
        return lost > _LOSS_FACTOR * least + _LOSS_MARGIN

    def _losses(self, graph: Graph) -> tuple[float, float]:
        """What the graph's projection loses of the vectors, and what the best one would."""
        sample = self._vectors.sample(SAMPLE_MAX)
        best = fit_projection(sample, graph.projection.width)
        return graph.projection.lost_share(sample), best.lost_share(sample)

    def _feed(self, graph: Graph) -> None:
        """Gives a graph what it lacks now; what comes meanwhile is for the next time."""
        end = self._vectors.newest
        while graph.newest < end and not self._closing.is_set():
            ids, vectors = self._vectors.after(graph.newest, _FEED_ROWS)
            if not len(ids):
                return
            graph.add(ids, vectors)
            self._note_changes(len(ids))
            self._mark_removed()

    def _mark_removed(self) -> None:
        removed = [self._removed.popleft() for _ in range(len(self._removed))]
        if not removed:
            return
        for graph in (self.graph, self._unfinished):
            if graph is not None:
                self._note_changes(graph.remove(removed))

    def _drop(self, count: int) -> None:
        self.graph = None
        if count > self._rows_max:
            log.warning("%d vectors and their graph are more than may be held; every vector is compared", count)
        else:
            self._snapshots.clear()

    # Snapshots

    def _note_changes(self, count: int) -> None:
        if count:
            self._unsaved += count
            self._save_at = max(self._retry_at, time.monotonic() + self._settings.snapshot_idle_s)

    def _is_save_due(self, graph: Graph) -> bool:
        settings, now = self._settings, time.monotonic()
        many = max(settings.snapshot_changes_min, settings.snapshot_changes_share * graph.count)
        return self._unsaved > 0 and now >= self._retry_at and (self._unsaved >= many or now >= self._save_at)

    def _seconds_until_save(self) -> float | None:
        return max(0.0, self._save_at - time.monotonic()) if self._unsaved and self.graph else None

    def _save_last(self) -> None:
        """Also a graph that is not finished: the next start goes on from there."""
        graph = self.graph or self._unfinished
        if self._saves and self._unsaved and graph is not None and graph.count:
            self._save(graph)

    def _save(self, graph: Graph) -> None:
        try:
            self.snapshot_time = self._snapshots.save(graph.links())
        except OSError as error:
            log.warning("the graph could not be saved; it would be built anew at the next start: %s", error)
            self._retry_at = self._save_at = time.monotonic() + self._settings.snapshot_retry_s
        else:
            self._unsaved = 0
        release_free_memory()

    def _restore(self) -> None:
        """Loads the newest snapshot that is whole and fits the vectors."""
        for path in self._snapshots.generations():
            try:
                links, self.snapshot_time = self._snapshots.read(path)
                self.graph = restore_graph(links, self._vectors, self._settings)
            except (SnapshotDamagedError, LinksError) as error:
                log.warning("snapshot %s of the graph is damaged and is moved into quarantine: %s", path.name, error)
                self._snapshots.quarantine(path)
            except (SnapshotStaleError, OSError) as error:
                log.warning("snapshot %s of the graph is not used: %s", path.name, error)
            else:
                log.info("loaded a graph of %d vectors", len(links))
                self._note_changes(self.graph.count - len(links) + self.graph.dead - int(links.deleted.sum()))
                return
        self.snapshot_time = None
