"""Reading connections, lent out one call at a time."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError
from mnemon_server.engines.sqlite.schema import close_quietly

READERS_MAX = 8


class ReaderPool:
    """Lends connections that only read; each loan is one transaction, so that it sees a single moment."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._idle: deque[apsw.Connection] = deque()
        self._slots = threading.BoundedSemaphore(READERS_MAX)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection inside a read transaction; waits while all are lent."""
        with self._slots:
            if self._closed:
                raise StorageFailedError("the records are closed")
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except (UnicodeDecodeError, apsw.CorruptError) as error:
                close_quietly(connection)
                raise RecordDamagedError("records.db") from error
            except BaseException:
                # Whatever state it is in, the next reader gets a fresh one.
                close_quietly(connection)
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Waits for every loan to end, and closes the connections."""
        self._closed = True
        for _ in range(READERS_MAX):
            self._slots.acquire()
        while self._idle:
            close_quietly(self._idle.pop())
        for _ in range(READERS_MAX):
            self._slots.release()
