"""The thread that looks after a graph: loads or builds it, feeds it, rebuilds it, saves it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.hnsw.allocator import release_free_memory
from mnemon_server.engines.hnsw.graph import Graph
from mnemon_server.engines.hnsw.links import LinksError
from mnemon_server.engines.hnsw.projection import SAMPLE_MAX, fit_projection
from mnemon_server.engines.hnsw.restoring import restore_graph
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshot_requests import SnapshotRequests
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
        self.is_warm = True
        """False from `start` until the graph is there, where there is to be one at once, or building it has failed."""
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
        """Bytes of the graph that is being built."""
        graph = self._unfinished
        return graph.nbytes if graph else 0

    @property
    def building_count(self) -> int:
        """How many vectors the graph has that is being built or loaded; 0 where none is."""
        graph = self._unfinished
        return graph.count if graph else self._loaded_count

    def start(self, *, warm: bool = False) -> None:
        """Begins the work, now or once there are enough vectors; with `warm`, nobody has to wait for it."""
        self._started = True
        # Here, and not on the thread: nobody may take the graph that is to come for one that is not needed.
        self.is_warm = warm or not self._expects_graph()
        self._start_thread(self._settings.graph_kept_min)

    def added(self) -> None:
        """To be called after vectors were added."""
        if self._thread is None:
            self._start_thread(self._settings.graph_min)
        elif (graph := self.graph) is None or self._lacks_many(graph):
            self._wake.set()

    def removed(self, passage_ids: Sequence[int]) -> None:
        """To be called after vectors were removed."""
        if self._thread is not None and self._thread.is_alive():
            self._removed.extend(passage_ids)
            self._wake.set()

    def save_snapshot(self) -> datetime | None:
        """Has a snapshot written, and waits for it; see RecordEngine."""
        # Asked before it is looked for: a graph that is given up is answered for here, or by the thread that did it.
        request, wait_s = self._requests.add(), self._settings.snapshot_wait_s
        if self.graph is None:
            self._requests.answer(len(self._requests), None)
            return None
        self._wake.set()
        try:
            return request.result(wait_s)
        except TimeoutError:
            raise StorageFailedError(f"the snapshot was not written within {wait_s:g} s; it may still be") from None

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

    def _expects_graph(self) -> bool:
        """Whether there is to be a graph of what is held now."""
        settings, count = self._settings, len(self._vectors)
        enough = count >= settings.graph_min or (count >= settings.graph_kept_min and self._snapshots.has_any())
        return enough and count <= self._rows_max

    # On the thread

    def _run(self) -> None:
        try:
            self._warm_up()
            while not self._closing.is_set():
                self._wake.clear()
                if not self._take_step():
                    self._wake.wait(self._seconds_until_save())
            self._save_last()
        except Exception:  # whatever it is: searches go on without a graph
            log.exception("the graph failed; every vector is compared from now on, until the next start")
            self._unfinished = None
            self._give_up()
            self.is_warm = True
        finally:
            self._requests.close()

    def _warm_up(self) -> None:
        """Loads the graph, and whatever came after its snapshot, or builds it."""
        self._restore()
        if self.graph is None:
            self._take_step()
        elif self._lacks_many(self.graph):
            self._feed(self.graph)
        if not self._closing.is_set():
            self.is_warm = True

    def _take_step(self) -> bool:
        """Does the most urgent thing; False where there is nothing to do."""
        graph, count = self.graph, len(self._vectors)
        self._mark_removed()
        if graph is None:
            return self._settings.graph_min <= count <= self._rows_max and self._build()
        if count > self._rows_max or count < self._settings.graph_kept_min:
            self._drop(count)
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

    def _lacks_many(self, graph: Graph) -> bool:
        return self._vectors.count_after(graph.newest) >= self._settings.tail_max

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
            if self.graph is not None and self._requests:
                # Whoever asks for a snapshot does not wait for what takes minutes.
                self._save(self.graph)

    def _mark_removed(self) -> None:
        removed = [self._removed.popleft() for _ in range(len(self._removed))]
        if not removed:
            return
        for graph in (self.graph, self._unfinished):
            if graph is not None:
                self._note_changes(graph.remove(removed))

    def _drop(self, count: int) -> None:
        self._give_up()
        if count > self._rows_max:
            log.warning("%d vectors and their graph are more than may be held; every vector is compared", count)
        else:
            self._snapshots.clear()

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
        """Also a graph that is not finished: the next start goes on from there."""
        graph = self.graph or self._unfinished
        if self._saves and self._unsaved and graph is not None and graph.count:
            self._save(graph)

    def _save(self, graph: Graph) -> None:
        asked = len(self._requests)
        try:
            self.snapshot_time = self._snapshots.save(graph.links())
        except OSError as error:
            log.warning("the graph could not be saved; it would be built anew at the next start: %s", error)
            self._retry_at = self._save_at = time.monotonic() + self._settings.snapshot_retry_s
            self._requests.fail(asked, error)
        else:
            self._unsaved = 0
            self._requests.answer(asked, self.snapshot_time)
        release_free_memory()

    def _restore(self) -> None:
        """Loads the newest snapshot that is whole and fits the vectors."""
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
