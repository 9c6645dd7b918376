"""The connections of one vault: a writer, a pool of readers, and the followers of transactions."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.file_stamp import Place
from mnemon_server.engines.folder import refuse_links
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.pages.damage import DamageFinder
from mnemon_server.engines.sqlite.pages.mark import CommitMark
from mnemon_server.engines.sqlite.schema import (
    CHECKPOINT_PAGES,
    WAL_PAGES_MAX,
    close_quietly,
    open_reader,
    open_writer,
)
from mnemon_server.engines.sqlite.write_ahead_log import LIFE_S, WriteAheadLog
from mnemon_server.engines.sqlite.writer import FULL, Writer
from mnemon_server.engines.vault_key import VaultKeyFile

T = TypeVar("T")


class Removals(Follower):
    """Counts what was removed or replaced since the write-ahead log was last empty. Until then its bytes may be in the
    files.

    Any thread may read the counts; only the writer changes them. They need not survive the process, because opening the
    file empties the log.
    """

    def __init__(self) -> None:
        self.records = 0
        """Records of all collections."""
        self.events = 0
        """Events of the timeline."""
        self._staged = 0, 0

    def stage(self, *, records: int = 0, events: int = 0) -> None:
        """Counts the removals of a successful call, once its transaction is committed."""
        self._staged = self._staged[0] + records, self._staged[1] + events

    def forget(self) -> None:
        """Resets the counts after the log was emptied."""
        self.records = self.events = 0

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Starts with an empty log."""
        self._staged = 0, 0

    def after_commit(self) -> None:
        """Adds the staged removals, which the log still contains."""
        self.records += self._staged[0]
        self.events += self._staged[1]
        self._staged = 0, 0

    def after_rollback(self) -> None:
        """Discards the staged removals."""
        self._staged = 0, 0


class Connections:
    """Opens the file, and reopens it after a failure. Any thread may call any method."""

    def __init__(
        self, path: Path, keys: VaultKeyFile, vfs: str | None = None, *, erasure_delay_s: float = LIFE_S
    ) -> None:
        self._path = path
        self._keys = keys
        self._vfs = vfs
        self.removals = Removals()
        self._log_ahead = WriteAheadLog(
            path,
            pages_few=CHECKPOINT_PAGES,
            pages_max=WAL_PAGES_MAX,
            life_s=erasure_delay_s,
            on_emptied=self.removals.forget,
        )
        self._mark = CommitMark(keys)
        self._damage = DamageFinder(self._connect)
        self._recovering = threading.Lock()
        self._followers: Sequence[Follower] = ()

    def open(self, followers: Sequence[Follower]) -> None:
        """Opens the file. The followers are notified of each event in their order.

        Raises:
            ConfigurationError: the file is not a Mnemon database, its format is newer, or its key is not there.
            RecordDamagedError: it, or the end of its log, is not what was written.
            StorageFailedError: it cannot be read.
            LinkError: there is a symbolic link in its folder.
        """
        refuse_links(self._path.parent)
        self._followers = [self.removals, *followers]
        self._open()

    def submit(
        self, operation: Callable[[apsw.Connection], T], parts: Sequence[Callable[[apsw.Connection], Any]] = ()
    ) -> Future[T]:
        """Runs `operation` in the next transaction; see Writer.submit."""
        return self._writer.submit(operation, parts)

    def between(self, operation: Callable[[apsw.Connection, WriteAheadLog], T]) -> Future[T]:
        """Runs `operation` on the writer's thread between two transactions; see Writer.submit_between."""
        return self._writer.submit_between(lambda connection: operation(connection, self._log_ahead))

    @property
    def log_ahead(self) -> WriteAheadLog:
        """The log, whose file and `release` any thread may use."""
        return self._log_ahead

    def lend(self) -> AbstractContextManager[apsw.Connection]:
        """A reading connection, within a transaction."""
        return self._readers.lend()

    def fetch_at_once(self, statement: str, parameters: Sequence[Any]) -> list[Any] | None:
        """See ReaderPool.fetch_at_once."""
        return self._readers.fetch_at_once(statement, parameters)

    def waiting_writes(self) -> int:
        """About how many operations wait for a transaction."""
        return self._writer.waiting

    def failure(self) -> str | None:
        """Why writes are refused; None if they are accepted."""
        return self._writer.failure or (FULL if self._writer.is_full else self._place.problem())

    def recover(self) -> None:
        """Reopens the file after a failure, or checks whether a full disk has space again.

        Raises:
            StorageFailedError: the disk still fails.
            StorageFullError: it is still full.
        """
        with self._recovering:
            # Do not open another file, whose folder is not locked, or create an empty one.
            self._place.require()
            if self._writer.failure is not None:
                self._readers.close()
                self._writer.close()
                self._open()
            elif self._writer.is_full:
                self._writer.submit(_write_as_it_is).result()

    def close(self) -> None:
        """Finishes the accepted writes, and closes the file."""
        # Close the writer last: the last connection removes the write-ahead log, and only the writer may write.
        self._readers.close()
        self._writer.close()
        self._log_ahead.close()
        self._mark.close()

    def _open(self) -> None:
        try:
            connection = open_writer(self._path, self._keys, self._vfs)
        except apsw.CorruptError as error:
            raise PageDamagedError(self._path.name) from error
        except apsw.Error as error:
            raise StorageFailedError("records.db cannot be opened; the log says why") from error
        self._place = Place(self._path)
        try:
            # After a failed sync, data may exist in the page cache only. Write it to the disk before anything depends
            # on it.
            self._log_ahead.empty(connection)
            self._mark.load(connection)
            self._readers = ReaderPool(self._connect, self._path.name, self._damage)
            for follower in self._followers:
                follower.load(connection)
        except apsw.CorruptError as error:
            damaged = self._damage.error(self._path.name)
            close_quietly(connection)
            raise damaged from error
        except apsw.Error as error:
            close_quietly(connection)
            raise StorageFailedError("records.db cannot be read; the log says why") from error
        except BaseException:
            close_quietly(connection)
            raise
        self._writer = Writer(
            connection,
            self._log_ahead,
            self._mark,
            self._damage,
            before_commit=self._before_commit,
            after_commit=self._after_commit,
            after_rollback=self._after_rollback,
        )

    def _connect(self) -> apsw.Connection:
        self._place.require()
        return open_reader(self._path, self._keys, self._vfs)

    def _before_commit(self, connection: Any) -> None:
        self._place.require()
        for follower in self._touched():
            follower.before_commit(connection)
        self._mark.before_commit(connection)

    def _after_commit(self) -> None:
        self._mark.after_commit()
        for follower in self._touched():
            follower.after_commit()

    def _after_rollback(self) -> None:
        self._mark.after_rollback()
        for follower in self._touched():
            follower.after_rollback()

    def _touched(self) -> list[Follower]:
        return [follower for follower in self._followers if follower.is_touched]


def _write_as_it_is(connection: apsw.Connection) -> None:
    """Writes a page that does not change."""
    connection.execute("UPDATE meta SET value = value WHERE key = 'embedding_model'")


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

        It uses a separate connection. A single statement needs no transaction.
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
