"""The thread that keeps the files of a timeline: writes, seals, repairs, reads all of it now and then, and compacts."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.episodic import CompactionProgress
from mnemon_server.domain.errors import NotServingError
from mnemon_server.engines.timeline.format.files import Files
from mnemon_server.engines.timeline.index.index import TimelineIndex
from mnemon_server.engines.timeline.settings import DEFAULT_TIMELINE, TimelineSettings
from mnemon_server.engines.timeline.upkeep.maintenance import Chores
from mnemon_server.engines.timeline.upkeep.manifest import Manifest
from mnemon_server.engines.timeline.upkeep.store import SegmentStore


class TimelineKeeper:
    """Does everything that is done with segment files, on one thread.

    What was acknowledged never hangs on it: rows leave records.db only when their segment is sealed, synced, and was
    read back. Whatever fails is told by `failure` and in the feed, and is tried again.
    """

    def __init__(
        self,
        *,
        files: Files,
        quarantine: Files,
        manifest: Manifest,
        index: TimelineIndex,
        clock: Clock,
        settings: TimelineSettings = DEFAULT_TIMELINE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Touches nothing yet.

        Args:
            files: the folder of the segments.
            quarantine: where damaged files are kept.
            manifest: what records.db says of them.
            index: empty; it is filled, and segments that are sealed or rewritten are exchanged in it.
            clock: for the ages of segments, and for what is told of losses.
            settings: when what is done.
            monotonic: seconds that never go back.
        """
        self.store = SegmentStore(files, quarantine, manifest, index)
        self.chores = Chores(self.store, clock, settings, monotonic)
        self._wake = threading.Event()
        self._warm = threading.Event()
        self._closing = threading.Event()
        self._requests: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="timeline-keeper", daemon=True)

    # Any thread

    def start(self) -> None:
        """Begins with loading the index."""
        self._thread.start()

    @property
    def is_warm(self) -> bool:
        """Whether the index is loaded."""
        return self._warm.is_set()

    def wait_until_warm(self, timeout_s: float) -> bool:
        """Waits until it is; returns whether it is."""
        return self._warm.wait(timeout_s)

    @property
    def loaded_segment_count(self) -> int:
        """Segments in the index so far."""
        return self.chores.loaded_count

    def failure(self) -> str | None:
        """What is wrong with the files, as a sentence; None where nothing is."""
        return self.chores.health.failure()

    def appended(self, byte_count: int) -> None:
        """To be called after a commit of events, with the bytes of their bodies."""
        if self.chores.note_appended(byte_count):
            self._wake.set()

    def pruned(self) -> None:
        """To be called after a commit of removals."""
        self.chores.note_pruned()
        self._wake.set()

    def repair(self, segment_id: int) -> None:
        """Has a segment read, and rewritten where it is damaged; returns when that is done.

        Where the new file cannot be written, `failure` says so, and what is sound is found where it is.

        Raises:
            NotServingError: the timeline is being closed.
        """
        self._ask(lambda: self.chores.repair(segment_id)).result()

    def repair_soon(self, segment_id: int) -> None:
        """As `repair`, but waits for nothing."""
        with contextlib.suppress(NotServingError):
            self._ask(lambda: self.chores.repair(segment_id))

    def scrub(self) -> None:
        """Reads everything, and repairs what is damaged; returns when that is done. Raises as `compact` does."""
        done = Future[None]()
        self._ask(lambda: self.chores.start_scrub(done)).result()
        done.result()

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """Seals the active segment, rewrites what was pruned, joins small segments; reports, and returns the last.

        Raises:
            NotServingError: the timeline is being closed.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        done = Future[CompactionProgress]()
        self._ask(lambda: self.chores.start_compaction(report, done)).result()
        return done.result()

    def close(self) -> None:
        """Writes what was committed, and ends the thread. Calling it again does nothing."""
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

    # On the thread

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._wake.clear()
                self.turn()
                self._wake.wait(self.chores.seconds_until_due())
            self.chores.finish()
        finally:
            with self._lock:
                self._closing.set()
            for _, future in self._requests:
                future.set_exception(_closed())
            self.chores.close(_closed())

    def turn(self) -> None:
        """What is to be done now; a step of what takes long. For the thread, and for tests without one."""
        if not self._warm.is_set():
            if self.chores.warm_up():
                self._warm.set()
            return
        while self._requests:
            _answer(*self._requests.popleft())
        self.chores.turn()


def _answer(request: Callable[[], None], future: Future[None]) -> None:
    try:
        request()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        future.set_exception(error)
    else:
        future.set_result(None)


def _closed() -> NotServingError:
    return NotServingError("the timeline is being closed")
