"""A pool of reading connections."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.sqlite.pages.damage import DamageFinder
from mnemon_server.engines.sqlite.schema import close_quietly

READERS_MAX = 8


class ReaderPool:
    """Lends connections that only read. Each loan is one transaction, so it sees a consistent state."""

    def __init__(self, connect: Callable[[], apsw.Connection], name: str, damage: DamageFinder) -> None:
        self._connect = connect
        self._name = name
        self._damage = damage
        self._idle: deque[apsw.Connection] = deque()
        self._slots = threading.BoundedSemaphore(READERS_MAX)
        self._closed = False
        self._at_once: apsw.Connection | None = None
        self._one_at_once = threading.Lock()

    def fetch_at_once(self, statement: str, parameters: Sequence[Any]) -> list[Any] | None:
        """The rows of one short statement, without waiting for other reads; None if SQLite fails or would wait.

        It has a connection of its own. As a single statement, it needs no transaction.
        """
        with self._one_at_once:
            if self._closed:
                return None
            try:
                if self._at_once is None:
                    self._at_once = self._connect()
                    self._at_once.set_busy_timeout(0)
                return self._at_once.execute(statement, parameters).fetchall()
            except (apsw.Error, UnicodeDecodeError):
                self._close_at_once()
                return None

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection within a read transaction. Waits while all connections are lent."""
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
                damaged = self._damage.error(self._name)
                close_quietly(connection)
                raise damaged from error
            except BaseException:
                # The connection's state is unknown after an error, so the next reader gets a new one.
                close_quietly(connection)
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Waits until all loans have ended, and closes the connections."""
        self._closed = True
        with self._one_at_once:
            self._close_at_once()
        for _ in range(READERS_MAX):
            self._slots.acquire()
        while self._idle:
            close_quietly(self._idle.pop())
        for _ in range(READERS_MAX):
            self._slots.release()

    def _close_at_once(self) -> None:
        connection, self._at_once = self._at_once, None
        if connection is not None:
            close_quietly(connection)
