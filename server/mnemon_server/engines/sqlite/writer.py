"""The writing thread: combines the writes of all calls in flight into one transaction with one sync."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import apsw

from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.domain.observation.figures import COMMIT_SECONDS, COMMIT_WRITES
from mnemon_server.engines.file_stamp import FileMovedError
from mnemon_server.engines.sqlite.pages.damage import DamageFinder
from mnemon_server.engines.sqlite.pages.mark import CommitMark
from mnemon_server.engines.sqlite.schema import close_quietly
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog

GROUP_MAX = 512
"""The number of writes from which on a transaction takes no further operation."""
FULL = "no space is left on the disk; free some space, then send the write again"
_FAILED = "the disk failed while writing; nothing more is written until the records have been reopened"

log = logging.getLogger(__name__)

Operation = Callable[[apsw.Connection], Any]


@dataclass(slots=True)
class _Job:
    operation: Operation
    parts: Sequence[Operation] = ()
    is_between: bool = False
    future: "Future[Any]" = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs operations on the only writing connection. All waiting operations share a transaction.

    An operation that fails reverts only its own writes. Operations first run together. If one fails after it has
    written, the transaction is rolled back, and all operations run again, each in a savepoint. So an operation may run
    twice, and all its effects must be reverted by the connection and `after_rollback`. Savepoints from the start would
    cost a third of a write: at every savepoint FTS5 writes out its pending words as a separate segment, which must be
    merged later.

    A future is answered only after its transaction is on stable storage and `after_commit` has returned. After a failed
    sync or commit, the state of the disk is unknown: all operations in flight and all later ones fail with
    StorageFailedError until a new writer is opened.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        log_ahead: WriteAheadLog,
        mark: CommitMark,
        damage: DamageFinder,
        *,
        before_commit: Callable[[apsw.Connection], None],
        after_commit: Callable[[], None],
        after_rollback: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._log_ahead = log_ahead
        self._mark = mark
        self._damage = damage
        self._before_commit = before_commit
        self._after_commit = after_commit
        self._after_rollback = after_rollback
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self.failure: str | None = None
        self.is_full = False
        """Whether the disk had no room for the last transaction."""
        self._thread = threading.Thread(target=self._run, name="records-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation, parts: Sequence[Operation] = ()) -> "Future[Any]":
        """Runs `operation` in the next transaction. The future gets its result once that is durable.

        If an operation that does the work of many `parts` fails, they run instead, one by one: the result is then a
        list with the result or the exception of each.
        """
        return self._enqueue(_Job(operation, parts))

    def submit_between(self, operation: Operation) -> "Future[Any]":
        """Runs `operation` after the next transaction, on the same thread. The future gets its result."""
        return self._enqueue(_Job(operation, is_between=True))

    def _enqueue(self, job: _Job) -> "Future[Any]":
        with self._closing:
            if self._closed:
                job.future.set_exception(StorageFailedError(self.failure or "the records are closed"))
            else:
                self._queue.put(job)
        return job.future

    @property
    def waiting(self) -> int:
        """About how many operations wait for a transaction."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finishes the submitted operations, empties the log, and closes the connection."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (jobs := self._gather()) is not None:
            together = [job for job in jobs if not job.is_between]
            if together and self.failure is None:
                self._commit(together)
            elif self.failure is not None:
                _fail(together, partial(StorageFailedError, self.failure))
            for job in together:
                _answer(job)
            if self.failure is None:
                self._tend_log()
            for job in jobs:
                if job.is_between:
                    self._perform_between(job)
        self._close_connection()

    def _gather(self) -> list[_Job] | None:
        """Waits for a job, and takes all waiting jobs; None if the writer is closed and no job is left.

        Returns an empty list if the log needs work.
        """
        try:
            first = self._queue.get(timeout=self._seconds_until_due() if self.failure is None else None)
        except queue.Empty:
            return []
        if first is None:
            return None
        jobs, count = [first], len(first.parts) or 1
        while count < GROUP_MAX:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)
                break
            jobs.append(job)
            count += len(job.parts) or 1
        return jobs

    def _seconds_until_due(self) -> float | None:
        dues = self._log_ahead.seconds_until_due(), self._mark.seconds_until_due()
        return min((due for due in dues if due is not None), default=None)

    def _commit(self, jobs: list[_Job]) -> None:
        began = perf_counter()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if not self._perform_together(jobs):
                self._connection.execute("ROLLBACK")
                self._after_rollback()
                self._connection.execute("BEGIN IMMEDIATE")
                self._perform_apart(jobs)
            self._before_commit(self._connection)
            self._connection.execute("COMMIT")
        except apsw.FullError:
            self.is_full = True
            self._abandon(jobs, partial(StorageFullError, FULL))
        except apsw.CorruptError:
            log.exception("a write came upon damage")
            self._abandon(jobs, partial(self._damage.error, "records.db"))
            if len(jobs) > 1:
                # Other writes may be unaffected, but after a failed read the transaction cannot read any more.
                for job in jobs:
                    self._commit([job])
        except FileMovedError as error:
            log.error("%s", error)  # noqa: TRY400 - a traceback would not help
            self.failure = str(error)
            self._abandon(jobs, partial(StorageFailedError, self.failure))
        except Exception:  # any error: the state of the disk is unknown now
            log.exception("commit failed")
            self.failure = _FAILED
            self._abandon(jobs, partial(StorageFailedError, _FAILED))
        else:
            self.is_full = False
            COMMIT_SECONDS.note(perf_counter() - began)
            COMMIT_WRITES.note(sum(len(job.parts) or 1 for job in jobs))
            self._after_commit()

    def _perform_together(self, jobs: list[_Job]) -> bool:
        """Returns whether every operation succeeded, or failed as a whole before it had written."""
        for job in jobs:
            written = self._connection.total_changes()
            self._perform(job)
            if job.error is not None and (job.parts or self._connection.total_changes() != written):
                return False
        return True

    def _perform_apart(self, jobs: list[_Job]) -> None:
        """Runs each operation in its own savepoint, so that a failure reverts only its own writes."""
        for job in jobs:
            if not job.parts:
                self._perform_alone(job)
                continue
            parts = [_Job(part) for part in job.parts]
            for part in parts:
                self._perform_alone(part)
            job.error, job.result = None, [part.result if part.error is None else part.error for part in parts]

    def _perform_alone(self, job: _Job) -> None:
        self._connection.execute("SAVEPOINT job")
        self._perform(job)
        if job.error is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _perform(self, job: _Job) -> None:
        """Stores the operation's result or exception. A failure of the disk ends the transaction instead."""
        job.result = job.error = None
        try:
            job.result = job.operation(self._connection)
        except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NoMemError):
            raise
        except Exception as error:  # noqa: BLE001 - any exception is the answer to this job
            job.error = error

    def _perform_between(self, job: _Job) -> None:
        if self.failure is not None:
            job.error = StorageFailedError(self.failure)
        else:
            try:
                job.result = job.operation(self._connection)
            except (apsw.FullError, StorageFullError):
                job.error = StorageFullError(FULL)
            except Exception as error:  # any error: the state of the disk may be unknown now
                log.exception("work between two transactions failed")
                self.failure = _FAILED if isinstance(error, apsw.Error) else None
                job.error = error if isinstance(error, MnemonError) else StorageFailedError(_FAILED)
        _answer(job)

    def _abandon(self, jobs: list[_Job], error: Callable[[], MnemonError]) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                log.exception("rollback failed")
                self.failure = _FAILED
        _fail(jobs, error)
        self._after_rollback()

    def _tend_log(self) -> None:
        try:
            if self._log_ahead.seconds_until_due() == 0:
                self._mark.sync()
            self._mark.tend()
            self._log_ahead.tend(self._connection)
        except (apsw.FullError, StorageFullError):
            log.warning("no space is left for a checkpoint")
        except Exception:  # any error: the state of the disk is unknown now
            log.exception("checkpoint failed")
            self.failure = _FAILED

    def _close_connection(self) -> None:
        try:
            if self.failure is None:
                self._mark.sync()
                self._log_ahead.empty(self._connection)
        except Exception:
            log.warning("the last checkpoint failed; the log is read at the next start", exc_info=True)
        close_quietly(self._connection)


def _fail(jobs: list[_Job], error: Callable[[], MnemonError]) -> None:
    for job in jobs:
        job.error = error()


def _answer(job: _Job) -> None:
    if job.error is not None and not isinstance(job.error, MnemonError):
        log.error("write failed", exc_info=job.error)
    if not job.future.set_running_or_notify_cancel():
        return
    if job.error is not None:
        job.future.set_exception(job.error)
    else:
        job.future.set_result(job.result)
