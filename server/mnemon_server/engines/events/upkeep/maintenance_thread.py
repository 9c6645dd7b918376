"""The maintenance thread of a timeline: it writes, seals, repairs, checks and compacts the segment files."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import NotServingError
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.settings import DEFAULT_TIMELINE, EventEngineSettings
from mnemon_server.engines.events.upkeep.maintenance import MaintenanceTasks
from mnemon_server.engines.events.upkeep.manifest import Manifest
from mnemon_server.engines.events.upkeep.store import SegmentStore


class MaintenanceThread:
    """Runs all work on segment files on one thread.

    Acknowledged events do not depend on it: rows are deleted from records.db only after their segment was sealed,
    synced and read back. Every failure is reported by `failure` and in the feed, and is retried.
    """

    def __init__(
        self,
        *,
        files: Files,
        quarantine: Files,
        manifest: Manifest,
        index: TimelineIndex,
        clock: Clock,
        settings: EventEngineSettings = DEFAULT_TIMELINE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Does nothing yet.

        Args:
            files: the folder of the segments.
            quarantine: the folder for damaged files.
            manifest: the segments according to records.db.
            index: empty; the thread loads it, and replaces blocks of segments that are sealed or rewritten.
            clock: for the age of segments, and the time of losses.
            settings: the schedule.
            monotonic: a clock in seconds that never goes back.
        """
        self.store = SegmentStore(files, quarantine, manifest, index)
        self.tasks = MaintenanceTasks(self.store, clock, settings, monotonic)
        self._wake = threading.Event()
        self._warm = threading.Event()
        self._closing = threading.Event()
        self._requests: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="timeline-maintenance", daemon=True)

    # For any thread

    def start(self) -> None:
        """Starts the thread, which first loads the index."""
        self._thread.start()

    @property
    def is_warm(self) -> bool:
        """Whether the index is loaded."""
        return self._warm.is_set()

    def wait_until_warm(self, timeout_s: float) -> bool:
        """Waits until the index is loaded or the timeout ends; returns `is_warm`."""
        return self._warm.wait(timeout_s)

    @property
    def loaded_segment_count(self) -> int:
        """The number of segments in the index so far."""
        return self.tasks.loaded_count

    @property
    def erasing_count(self) -> int:
        """See SegmentStore."""
        return self.tasks.erasing_count

    def erased_counts(self) -> dict[tuple[int, int], int]:
        """See Erasing."""
        return self.tasks.erased_counts()

    def failure(self) -> str | None:
        """The current problem with the files, as a sentence; None without a problem."""
        return self.tasks.health.failure()

    def appended(self, byte_count: int) -> None:
        """Must be called after a commit of events, with the total size of their bodies."""
        if self.tasks.note_appended(byte_count):
            self._wake.set()

    def pruned(self) -> None:
        """Must be called after a commit of removals."""
        self.tasks.note_pruned()
        self._wake.set()

    def repair(self, segment_id: int) -> None:
        """Has a segment read, and rewritten if it is damaged; returns when that is done.

        If the new file cannot be written, `failure` says so, and intact events are read from the old file.

        Raises:
            NotServingError: the timeline is closing.
        """
        self._ask(lambda: self.tasks.repair(segment_id)).result()

    def repair_soon(self, segment_id: int) -> None:
        """Like `repair`, without waiting."""
        with contextlib.suppress(NotServingError):
            self._ask(lambda: self.tasks.repair(segment_id))

    def scrub(self) -> None:
        """Checks all data, and repairs damage; returns when that is done. Raises the same errors as `compact`."""
        done = Future[None]()
        self._ask(lambda: self.tasks.start_scrub(done)).result()
        done.result()

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """Seals the active segment, rewrites segments with pruned events, and merges small ones. Calls `report` on the
        way, and returns the final progress.

        Raises:
            NotServingError: the timeline is closing.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        done = Future[CompactionProgress]()
        self._ask(lambda: self.tasks.start_compaction(report, done)).result()
        return done.result()

    def close(self) -> None:
        """Writes committed events, and stops the thread. Further calls have no effect."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.store.readers.close()

    def _ask(self, request: Callable[[], None]) -> Future[None]:
        future = Future[None]()
        with self._lock:
            if self._closing.is_set():
                raise _closed()
            self._requests.append((request, future))
        self._wake.set()
        return future

    # For the maintenance thread

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._wake.clear()
                self.turn()
                self._wake.wait(self.tasks.seconds_until_due())
            self.tasks.finish()
        finally:
            with self._lock:
                self._closing.set()
            for _, future in self._requests:
                future.set_exception(_closed())
            self.tasks.close(_closed())

    def turn(self) -> None:
        """Runs the tasks that are due and a step of a long job. Tests call it without a thread."""
        if not self._warm.is_set():
            if self.tasks.warm_up():
                self._warm.set()
            return
        while self._requests:
            _answer(*self._requests.popleft())
        self.tasks.turn()


def _answer(request: Callable[[], None], future: Future[None]) -> None:
    try:
        request()
    except Exception as error:  # noqa: BLE001 - any exception is the answer
        future.set_exception(error)
    else:
        future.set_result(None)


def _closed() -> NotServingError:
    return NotServingError("the timeline is closing")
