"""Applies the changes of the records to a vector index, in their order, as long as the server runs."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic

import numpy as np

from mnemon_server.domain.documents import HealthStatus, RebuildProgress
from mnemon_server.domain.errors import (
    BackendConnectionError,
    KnowledgeStoreError,
    MnemonError,
    StorageFailedError,
)
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentChange, IndexPosition, PassageIds
from mnemon_server.engines.promises.vector_index import IndexEntry, VectorIndex
from mnemon_server.services.search.index_pulse import SILENCE_S, Pulse

BATCH_CHANGES = 128
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 10.0
BATCH_PATIENCE_S, CLOSE_POLL_S = 10.0, 0.05
PAUSE_SHARE, PAUSE_MAX_S = 19.0, 30.0
QUIET_S = 1.0
"""After this long without a commit, writes have ended. A bulk stream that is embedding commits about twice a second."""

STARTING = "the vector database is starting; the records answer until then"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiter:
    sequence: int
    future: "Future[None]"


class IndexApplier:
    """Keeps a vector index up to date with the records. It stores its position; applying a change twice is harmless.

    An index that was lost, damaged or recreated reports a new generation, and is then filled from the start. If an
    index lacks entries after catching up, it is emptied and filled again.
    """

    def __init__(self, records: RecordEngine, index: VectorIndex) -> None:
        """Starts the thread that applies changes."""
        self._records = records
        self.index = index
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._watchers: list[Callable[[RebuildProgress], None]] = []
        self._closed = False
        self._reset_wanted = False
        self._verified = False
        self._opened = False
        self._position = IndexPosition()
        self._rebuilt_sequence = 0
        self._checking = False
        self._failure = ""
        self._busy = STARTING
        self._was_silent = False
        self.pulse = Pulse(index, self._hear)
        """Whether the index answers at all."""
        self._unsubscribe = records.subscribe(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="index-applier", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why the index cannot be searched, as a sentence for clients; empty if it can."""
        is_closed = self._checking or not self._opened
        return self.failure or self._busy or ("the vector database is being checked" if is_closed else "")

    @property
    def failure(self) -> str:
        """The reason why the index does not answer or its last operation failed; empty if neither applies,
        or is still running.
        """
        return self.pulse.problem or self._failure

    async def outage(self) -> str:
        """The reason why the index is unavailable; empty if it is available or being checked. Waits briefly."""
        return await self.pulse.problem_now() or self._failure or self._busy

    def pending(self) -> int:
        """The number of committed changes that the index does not have yet; never 0 while the index is checked."""
        return self._records.count_changes_after(self._position.sequence) or int(self._checking)

    def pending_passages(self, changes_max: int) -> PassageIds | None:
        """Passages of the documents whose newest change the index does not have yet; None if there are too many."""
        changes = self._records.changes_after(self._position.sequence, limit=changes_max + 1)
        if len(changes) > changes_max:
            return None
        return np.array([passage for change in changes for passage in change.passage_ids], np.int64)

    def removals(self) -> int:
        """How many documents were removed or replaced, but may still be in the files of the index."""
        return self._records.index_removals(self.index.name)

    def applied(self, sequence: int) -> "Future[None]":
        """A future that completes once the index has every change up to `sequence`; fails if it cannot be reached."""
        waiter = _Waiter(sequence, Future())
        with self._lock:
            if self._opened and self._position.sequence >= sequence:
                waiter.future.set_result(None)
            elif problem := self.pulse.problem:  # the thread may wait for an index that hangs
                waiter.future.set_exception(BackendConnectionError(problem))
            else:
                self._waiters.append(waiter)
                self._hurry.set()
        return waiter.future

    def distrust(self, problem: str) -> None:
        """Probes, reopens and checks the index in the background, after a search failed."""
        self._opened = False
        self.pulse.doubt(problem)
        self._wake.set()

    def rebuild(self, watcher: Callable[[RebuildProgress], None]) -> Callable[[], None]:
        """Empties and refills the index. Calls `watcher` with the progress, until the returned function is called.

        The rebuild is complete when it has all changes from before this call; later ones do not count.
        """
        with self._lock:
            self._watchers.append(watcher)
            self._rebuilt_sequence = self._records.stats().sequence
            self._reset_wanted = True
        self._hurry.set()
        self._wake.set()
        return lambda: self._watchers.remove(watcher)

    def close(self) -> None:
        """Stops after the current batch, and closes the index; the next start applies the remaining changes."""
        self._closed = True
        self._unsubscribe()
        self._hurry.set()
        self._wake.set()
        deadline = monotonic() + BATCH_PATIENCE_S
        while self._thread.is_alive() and not self.pulse.problem and monotonic() < deadline:
            self._thread.join(CLOSE_POLL_S)
        self.pulse.close()
        # The thread may wait for an index that does not answer: closing the index ends that wait.
        self.index.close()
        self._thread.join()
        self._fail_waiters("the server is shutting down")

    def _hear(self, problem: str) -> None:
        """Called by the pulse. An index that answers again is opened and checked again, as others may have used it."""
        if problem:
            self._opened, self._was_silent = False, True
            self._note_outage(problem)
            self._fail_waiters(problem)
        elif self._was_silent:
            self._was_silent = False
            self._hurry.set()
            self._wake.set()

    def _run(self) -> None:
        retry_s = RETRY_FIRST_S
        while not self._closed:
            self._wake.clear()
            self._hurry.clear()
            started, sequence = monotonic(), self._records.stats().sequence
            try:
                is_more = self._advance()
                retry_s = RETRY_FIRST_S
                if is_more:
                    if self._records.stats().sequence > sequence:
                        self._give_way(monotonic() - started)
                elif not self._closed:
                    self._wake.wait()
                continue
            except StorageFailedError:
                timeout_s = RETRY_FIRST_S
            except Exception as error:  # noqa: BLE001 - no failure of the index may end this thread
                self._report(error)
                timeout_s, retry_s = retry_s, min(2 * retry_s, RETRY_MAX_S)
            self._wait(timeout_s)

    def _wait(self, timeout_s: float) -> None:
        """Waits after a failure; commits do not end this wait, but callers that wait for the index do.

        Otherwise every write would try again to reach an index that is not available.
        """
        if not self._closed:
            self._hurry.wait(timeout_s)

    def _give_way(self, took_s: float) -> None:
        """Pauses while writes keep coming, to leave them most of the machine; not if callers wait for the index."""
        self._hurry.clear()
        deadline = monotonic() + min(PAUSE_SHARE * took_s, PAUSE_MAX_S)
        while self._opened and monotonic() < deadline and not (self._waiters or self._watchers or self._closed):
            sequence = self._records.stats().sequence
            if self._hurry.wait(QUIET_S) or self._records.stats().sequence == sequence:
                return

    def _advance(self) -> bool:
        """Does one step; returns False if no work is left."""
        if self._reset_wanted:
            self._busy = "the vector database is being rebuilt"
            self._restart(self.index.reset().generation)
            self._reset_wanted = False
        elif not self._opened:
            self._open()
        changes = self._records.changes_after(self._position.sequence, limit=BATCH_CHANGES)
        if not changes:
            return self._verify()
        entries = [entry for change in changes if change.document for entry in _entries(change)]
        self.index.apply(entries, [change.doc_id for change in changes if change.document is None])
        self._move(IndexPosition(changes[-1].sequence, self._position.generation))
        self._notify_watchers()
        return True

    def _open(self) -> None:
        if problem := self.pulse.problem_within(SILENCE_S):
            raise BackendConnectionError(problem)
        state = self.index.open()
        position = self._records.index_position(self.index.name)
        if position.generation == state.generation:
            self._position = position
        else:
            self._restart(state.generation)
        self._opened = True
        self._verified = False
        self._mark_available()
        self._answer_waiters()

    def _restart(self, generation: str) -> None:
        """Starts from the beginning; the records keep every later deletion until this generation has applied it."""
        self._move(IndexPosition(0, generation))
        self._opened = True
        self._verified = False
        self._mark_available()

    def _note_outage(self, problem: str) -> None:
        """Logs the beginning of an outage; `_mark_available` logs its end."""
        with self._lock:
            is_new, self._failure = not self._failure, problem
        if is_new and not self._closed:  # `close` has closed the index, and the next start repeats this
            log.warning("the vector index cannot be reached: %s", problem)

    def _mark_available(self) -> None:
        with self._lock:
            was_away, self._failure = bool(self._failure), ""
        if was_away:
            log.info("the vector index at %s can be used again", self.index.host)
        self._checking, self._busy = False, ""

    def _move(self, position: IndexPosition) -> None:
        self._records.set_index_position(self.index.name, position).result()
        self._position = position
        self._answer_waiters()

    def _verify(self) -> bool:
        """Checks the index once after it has caught up; returns True if it was emptied, to be filled again."""
        if not self._verified and self._refill_if_incomplete():
            return True
        self._notify_watchers()
        return False

    def _refill_if_incomplete(self) -> bool:
        # Until the check has ended, the index must not count as complete.
        self._checking = True
        state, stored = self.index.open(), self._records.stats().passage_count
        self._verified = True
        if state.generation != self._position.generation:
            generation = state.generation
        elif state.entry_count < stored and not self._records.count_changes_after(self._position.sequence):
            log.warning("the vector index holds %d of %d entries and is rebuilt", state.entry_count, stored)
            generation = self.index.reset().generation
        else:
            self._mark_available()
            return False
        self._restart(generation)
        # Do not check again: an index that always seems incomplete must not be refilled for ever.
        self._verified = True
        return True

    def _report(self, error: Exception) -> None:
        self._opened = self._checking = False
        known = isinstance(error, MnemonError) and (
            not isinstance(error, KnowledgeStoreError) or isinstance(error, BackendConnectionError)
        )
        if isinstance(error, BackendConnectionError):
            self._note_outage(str(error))
        else:
            self._failure = str(error) if known else "the vector database failed; the log says why"
            log.error("the vector index failed", exc_info=error)
        self._fail_waiters(self._failure)

    def _answer_waiters(self) -> None:
        with self._lock:
            ready = [waiter for waiter in self._waiters if waiter.sequence <= self._position.sequence]
            self._waiters = [waiter for waiter in self._waiters if waiter.sequence > self._position.sequence]
        for waiter in ready:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(None)

    def _fail_waiters(self, problem: str) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(BackendConnectionError(problem))

    def _notify_watchers(self) -> None:
        if self._watchers and not self._reset_wanted:
            total = self._records.stats().document_count
            pending = self._records.count_changes_after(self._position.sequence)
            pending -= self._records.count_changes_after(max(self._rebuilt_sequence, self._position.sequence))
            for watcher in list(self._watchers):
                watcher(RebuildProgress(max(0, total - pending), total))


def status_of_index(problem: str) -> HealthStatus:
    """The health of a service whose index has this problem; HEALTHY if `problem` is empty."""
    if not problem:
        return HealthStatus.HEALTHY
    return HealthStatus.STARTING if problem == STARTING else HealthStatus.DEGRADED


def _entries(change: DocumentChange) -> list[IndexEntry]:
    document, vectors = change.document, change.vectors
    if document is None or vectors is None:
        return []
    return [
        IndexEntry(
            passage_id=passage_id,
            doc_id=change.doc_id,
            index=passage.index,
            text=document.content[passage.start : passage.end],
            vector=vector,
            document=document,
        )
        for passage_id, passage, vector in zip(change.passage_ids, document.passages, vectors, strict=True)
    ]
