"""SQLite's write-ahead log: when it is copied into the database file, and when it is emptied.

A write that removes data adds a page without the data to the log. The page's previous version, with the data, stays in
the log. So the log is emptied some seconds after the oldest write in it, once for all writes since then.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np

from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.sqlite.pages.raw_file import RawFile
from mnemon_server.engines.sqlite.pages.slack import clear_slack

LIFE_S = 3.0
"""Maximum time for which the log contains removed data."""
RETRY_S = 0.5
"""Time until the next attempt if a reader still uses the log."""
PATIENCE_MS = 100
"""How long writes wait for such readers at a time."""
PATIENCE_FULL_MS = 5_000
"""How long writes wait for such readers if the log is large."""

_HEADER_BYTES = 32
_FRAME = np.dtype([("page", ">u4"), ("rest", "V20")])
_FRAMES_AT_ONCE = 256


class WriteAheadLog:
    """The log of one database file. It belongs to the thread that writes, and to its connection."""

    def __init__(
        self,
        path: Path,
        *,
        pages_few: int,
        pages_max: int,
        life_s: float = LIFE_S,
        on_emptied: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Does not access the files yet.

        If more than `pages_few` pages await copying, they are copied between two writes. A log with more than
        `pages_max` pages, or whose oldest write is `life_s` seconds old, is emptied. `on_emptied` is called when no
        file contains any of the data that was removed so far.
        """
        self._path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._pages_few, self._pages_max = pages_few, pages_max
        self._life_s = life_s
        self._on_emptied = on_emptied
        self._monotonic = monotonic
        self.file = RawFile(path)
        self._due: float | None = None
        self._cleared: tuple[bytes, int] = b"", 0
        """The identity of the log, and how many of its pages have been processed."""
        self._noted: set[int] | None = None
        self._is_held = False

    def seconds_until_due(self) -> float | None:
        """Seconds until `tend` has work to do; None until the next write."""
        return None if self._due is None else max(0.0, self._due - self._monotonic())

    def tend(self, connection: apsw.Connection) -> None:
        """Does the work that is due between two transactions.

        Raises:
            apsw.Error, StorageFullError, StorageFailedError: the disk failed.
        """
        if self._is_held:
            self._due = self._monotonic() + RETRY_S
            return
        pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if pages <= 0:
            self._due = None
            return
        if self._due is None:
            self._due = self._monotonic() + self._life_s
        if pages > self._pages_max:
            self.empty(connection, PATIENCE_FULL_MS)
        elif self._monotonic() >= self._due:
            self.empty(connection, PATIENCE_MS)
        elif pages - copied > self._pages_few:
            self._copy(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)

    def empty(self, connection: apsw.Connection, patience_ms: int = PATIENCE_FULL_MS) -> bool:
        """Copies the log into the file and empties it. Returns False, and retries soon, if older readers still use it.

        Raises:
            apsw.Error, StorageFullError, StorageFailedError: the disk failed.
        """
        connection.set_busy_timeout(patience_ms)
        try:
            if self._copy(connection, apsw.SQLITE_CHECKPOINT_FULL):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._due = None
                self._on_emptied()
                return True
        except apsw.BusyError:
            pass
        finally:
            connection.set_busy_timeout(PATIENCE_FULL_MS)
        self._due = self._monotonic() + RETRY_S
        return False

    # For a copy of the database file

    def note_pages(self) -> None:
        """Starts to note which pages of the file are written."""
        self._noted = set()

    def take_noted(self) -> set[int]:
        """The pages that were written since the last call."""
        noted, self._noted = self._noted or set(), set()
        return noted

    def settle(self, connection: apsw.Connection) -> bool:
        """Copies the whole log into the file. Returns False if older readers do not allow that now.

        Raises:
            apsw.Error, StorageFullError, StorageFailedError: the disk failed.
        """
        connection.set_busy_timeout(PATIENCE_MS)
        try:
            return self._copy(connection, apsw.SQLITE_CHECKPOINT_FULL)
        except apsw.BusyError:
            return False
        finally:
            connection.set_busy_timeout(PATIENCE_FULL_MS)

    def hold(self) -> None:
        """Leaves the file as it is until `release`; writes go on in the log."""
        self._is_held = True

    def release(self) -> None:
        """Ends `hold` and the noting of pages. Any thread may call it."""
        self._is_held, self._noted = False, None

    def close(self) -> None:
        """Closes the file. Call it after its connections are closed."""
        self.file.close()

    def _copy(self, connection: apsw.Connection, mode: int) -> bool:
        """Copies as much as readers allow; returns whether that was all. The next write then restarts the log.

        Clears the page slack before that: until the log restarts, it shows which pages were written, even after a
        crash.
        """
        pages, copied = connection.wal_checkpoint(mode=mode)
        if copied < pages:
            return False
        file = PageFile(connection)
        with file.without_readers() as is_unread:
            if not is_unread:
                return False
            written = self._written(pages)
            if (noted := self._noted) is not None:
                noted |= written
            if clear_slack(file, written):
                # Otherwise the connection's cached copy of a page would restore the slack with the next write.
                connection.release_memory()
        return True

    def _written(self, pages: int) -> set[int]:
        """The pages that were written since the last call."""
        if pages <= 0:
            return set()
        with self._log_path.open("rb") as log:
            header = log.read(_HEADER_BYTES)
            page_bytes, salt = int.from_bytes(header[8:12], "big"), header[16:24]
            known, count = self._cleared
            first = count if known == salt else 0
            frame_bytes = _FRAME.itemsize + page_bytes
            log.seek(_HEADER_BYTES + first * frame_bytes, os.SEEK_SET)
            numbers = set[int]()
            for start in range(first, pages, _FRAMES_AT_ONCE):
                data = log.read(min(_FRAMES_AT_ONCE, pages - start) * frame_bytes)
                frames = np.frombuffer(data, np.uint8).reshape(-1, frame_bytes)
                numbers.update(frames[:, : _FRAME.itemsize].copy().view(_FRAME)["page"].ravel().tolist())
        self._cleared = salt, pages
        return numbers
