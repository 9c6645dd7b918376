"""Copies records.db as it is at one commit, while it is being written.

Only checkpoints write to the file, and the writer's thread knows which pages they write. So the file is copied while
they go on, then what they have written meanwhile, and so on, until little is left. Then checkpoints pause for as long
as the rest takes, some milliseconds; writes go on in the log. Pages are copied as they are, so the copy of an encrypted
file is encrypted.

A read transaction would be simpler, but the log could not be emptied for as long as it lasts, and a large log makes
writes wait.
"""

import os
import time
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import TypeVar

import apsw
import numpy as np

from mnemon_server.domain.backup import BackupProgress
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.query import runs_of
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog

T = TypeVar("T")

ROUNDS_MAX = 8
PAGES_FEW = 1_024
"""With so few pages left, checkpoints pause for the rest."""
PATIENCE_S = 60.0
RETRY_S = 0.2
_BYTES_AT_ONCE = 1 << 20


def copy_database(
    connections: Connections, draft: Path, at_rest: Callable[[apsw.Connection], T]
) -> Generator[BackupProgress, None, T]:
    """Copies the file to `draft`, which is not synced. One call at a time. Returns what `at_rest` returns.

    `at_rest` runs on the writer's thread, at the commit that the copy will show. It blocks all writes, so it must
    be quick. Yields how many bytes are copied; the total grows while the file is being written.

    Raises:
        StorageFullError, StorageFailedError: the disk failed, or readers kept the log in use for PATIENCE_S.
    """
    log = connections.log_ahead
    connections.between(lambda _, log: log.note_pages()).result()
    try:
        with translated("copy", log.file.name):
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                return (yield from _Copying(connections, log.file.descriptor, descriptor).run(at_rest))
            finally:
                os.close(descriptor)
    finally:
        log.release()


class _Copying:
    def __init__(self, connections: Connections, source: int, target: int) -> None:
        self._connections = connections
        self._source, self._target = source, target
        self._page_bytes = 0
        self._done = 0

    def run(self, at_rest: Callable[[apsw.Connection], T]) -> Generator[BackupProgress, None, T]:
        yield from self._copy([(0, os.fstat(self._source).st_size)])
        written: set[int] = set()
        for _ in range(ROUNDS_MAX):
            written |= self._settle(lambda _, log: log.take_noted())
            if len(written) <= PAGES_FEW:
                break
            yield from self._copy_pages(written)
            written = set()

        def hold(connection: apsw.Connection, log: WriteAheadLog) -> tuple[int, set[int], T]:
            size = int(connection.pragma("page_count")) * self._page_bytes
            result = size, log.take_noted(), at_rest(connection)
            log.hold()
            return result

        size, last, result = self._settle(hold)
        # The caller must not decide how long this takes, so nothing is yielded.
        for _ in self._copy_pages(written | last):
            pass
        os.ftruncate(self._target, size)
        return result

    def _settle(self, action: Callable[[apsw.Connection, WriteAheadLog], T]) -> T:
        """Has the log copied into the file, and then calls `action` before the next transaction."""

        def work(connection: apsw.Connection, log: WriteAheadLog) -> tuple[T] | None:
            self._page_bytes = int(connection.pragma("page_size"))
            return (action(connection, log),) if log.settle(connection) else None

        deadline = time.monotonic() + PATIENCE_S
        while (done := self._connections.between(work).result()) is None:
            if time.monotonic() > deadline:
                raise StorageFailedError(
                    f"other readers have used older states of records.db for {PATIENCE_S:g} s; "
                    "back up again once a `mnemon-server verify` that runs has ended"
                )
            time.sleep(RETRY_S)
        return done[0]

    def _copy_pages(self, pages: Collection[int]) -> Generator[BackupProgress]:
        size = self._page_bytes
        runs = runs_of(np.array(sorted(pages), np.int64)).tolist()
        return self._copy([((first - 1) * size, (last - first + 1) * size) for first, last in runs])

    def _copy(self, ranges: list[tuple[int, int]]) -> Generator[BackupProgress]:
        """Copies ranges of bytes, each given by its start and its length."""
        total = self._done + sum(length for _, length in ranges)
        for start, length in ranges:
            for offset in range(start, start + length, _BYTES_AT_ONCE):
                data = os.pread(self._source, min(_BYTES_AT_ONCE, start + length - offset), offset)
                os.pwrite(self._target, data, offset)
                self._done += len(data)
                yield BackupProgress(self._done, total)
