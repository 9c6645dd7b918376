"""The connections of one vault: the one that writes, those that read, and what follows their transactions."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.sqlite.readers import ReaderPool
from mnemon_server.engines.sqlite.schema import (
    CHECKPOINT_PAGES,
    WAL_PAGES_MAX,
    close_quietly,
    open_reader,
    open_writer,
)
from mnemon_server.engines.sqlite.write_ahead_log import LIFE_S, WriteAheadLog
from mnemon_server.engines.sqlite.writer import Writer

T = TypeVar("T")


class Follower(Protocol):
    """Keeps something beside the file, and follows its transactions on the writer's thread."""

    def load(self, connection: apsw.Connection) -> None:
        """The file was opened, or opened anew: what is remembered of it begins here."""

    def before_commit(self, connection: apsw.Connection) -> None:
        """The last moment inside the transaction."""

    def after_commit(self) -> None:
        """The transaction is on stable storage."""

    def after_rollback(self) -> None:
        """The transaction never happened."""


class Removals:
    """How much was removed or replaced since the log was last empty: that long, its bytes may be in the files.

    Any thread may read the counts; all else is the writer's. Nothing of them need outlive the process: opening the
    file empties the log.
    """

    def __init__(self) -> None:
        self.records = 0
        """Records of all collections."""
        self.events = 0
        """Events of the timeline."""
        self._staged = 0, 0

    def stage(self, *, records: int = 0, events: int = 0) -> None:
        """Takes what a call removed that can no longer fail by itself."""
        self._staged = self._staged[0] + records, self._staged[1] + events

    def forget(self) -> None:
        """The log was emptied."""
        self.records = self.events = 0

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """The log is empty."""
        self._staged = 0, 0

    def before_commit(self, connection: apsw.Connection) -> None:
        """Nothing is written."""

    def after_commit(self) -> None:
        """It was removed, and is in the log still."""
        self.records += self._staged[0]
        self.events += self._staged[1]
        self._staged = 0, 0

    def after_rollback(self) -> None:
        """It was not."""
        self._staged = 0, 0


class Connections:
    """Opens the file, and opens it anew after a failure. Any thread may call any method."""

    def __init__(self, path: Path, vfs: str | None, *, erasure_delay_s: float = LIFE_S) -> None:
        self._path = path
        self._vfs = vfs
        self.removals = Removals()
        self._log_ahead = WriteAheadLog(
            path,
            pages_few=CHECKPOINT_PAGES,
            pages_max=WAL_PAGES_MAX,
            life_s=erasure_delay_s,
            on_emptied=self.removals.forget,
        )
        self._recovering = threading.Lock()
        self._followers: Sequence[Follower] = ()

    def open(self, followers: Sequence[Follower]) -> None:
        """Opens; the followers are told of everything, in their order.

        Raises:
            ConfigurationError: the file is not ours, or its format is newer.
            StorageFailedError: it cannot be read.
        """
        self._followers = [self.removals, *followers]
        self._open()

    def submit(self, operation: Callable[[apsw.Connection], T]) -> Future[T]:
        """Runs `operation` in the next transaction; the future holds what it returned, once that is durable."""
        return self._writer.submit(operation)

    def lend(self) -> AbstractContextManager[apsw.Connection]:
        """A connection that reads, inside a transaction."""
        return self._readers.lend()

    def failure(self) -> str | None:
        """Why writes are not accepted; None while they are."""
        return self._writer.failure

    def recover(self) -> None:
        """Opens anew after a failure.

        Raises:
            StorageFailedError: the disk still fails.
        """
        with self._recovering:
            if self._writer.failure is None:
                return
            self._readers.close()
            self._writer.close()
            self._open()

    def close(self) -> None:
        """Finishes the writes that were accepted, and closes the file."""
        # The writer goes last: the last connection to go tidies the log away, and only it may write.
        self._readers.close()
        self._writer.close()
        self._log_ahead.close()

    def _open(self) -> None:
        try:
            connection = open_writer(self._path, self._vfs)
        except apsw.Error as error:
            raise StorageFailedError("records.db cannot be opened; the log says why") from error
        try:
            # What a failed sync left in the page cache alone reaches the disk here, before anything is built on it.
            self._log_ahead.empty(connection)
            self._readers = ReaderPool(lambda: open_reader(self._path, self._vfs))
            for follower in self._followers:
                follower.load(connection)
        except apsw.Error as error:
            close_quietly(connection)
            raise StorageFailedError("records.db cannot be read; the log says why") from error
        except BaseException:
            close_quietly(connection)
            raise
        self._writer = Writer(
            connection,
            self._log_ahead,
            before_commit=self._before_commit,
            after_commit=self._after_commit,
            after_rollback=self._after_rollback,
        )

    def _before_commit(self, connection: Any) -> None:
        for follower in self._followers:
            follower.before_commit(connection)

    def _after_commit(self) -> None:
        for follower in self._followers:
            follower.after_commit()

    def _after_rollback(self) -> None:
        for follower in self._followers:
            follower.after_rollback()
