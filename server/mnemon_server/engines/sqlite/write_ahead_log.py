"""The log that SQLite writes ahead of a file: when it is copied into the file, and when it is emptied.

A write that removes something adds a page without it to the log; the page before it is still there, with what was
removed. So the log is emptied some seconds after the oldest write in it, however many there are, and not for each.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np

from mnemon_server.engines.sqlite.page_slack import PageSlack

LIFE_S = 3.0
"""So long after a write, at most, nothing that it removed is in the log."""
RETRY_S = 0.5
"""So much later it is tried again where a reader that began before is still there."""
PATIENCE_MS = 100
"""Writes wait for such readers so long at a time, ..."""
PATIENCE_FULL_MS = 5_000
"""... or so long where the log has grown large."""

_HEADER_BYTES = 32
_FRAME = np.dtype([("page", ">u4"), ("rest", "V20")])


class WriteAheadLog:
    """The log of one file. It belongs to the thread that writes, and to its connection."""

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
        """Touches nothing yet.

        Args:
            path: the file itself.
            pages_few: more than so many pages that are not in the file yet are copied there, between two writes.
            pages_max: a log of more pages is emptied at once.
            life_s: so long after the oldest write in it, the log is emptied.
            on_emptied: is told that what was removed so far is in no file any more.
            monotonic: seconds that never go back.
        """
        self._path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._pages_few, self._pages_max = pages_few, pages_max
        self._life_s = life_s
        self._on_emptied = on_emptied
        self._monotonic = monotonic
        self._slack = PageSlack(path)
        self._due: float | None = None
        self._cleared: tuple[bytes, int] = b"", 0
        """Which log it was, and how many of its pages were looked at."""

    def seconds_until_due(self) -> float | None:
        """How long `tend` has nothing to do; None until something is written."""
        return None if self._due is None else max(0.0, self._due - self._monotonic())

    def tend(self, connection: apsw.Connection) -> None:
        """Does what is due between two transactions.

        Raises:
            apsw.Error, StorageFullError, StorageFailedError: the disk failed.
        """
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
        """Copies the log into the file and empties it; False where older readers keep it: then it is due again soon.

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

    def close(self) -> None:
        """Closes the file; to be called after its connections were closed."""
        self._slack.close()

    def _copy(self, connection: apsw.Connection, mode: int) -> bool:
        """Copies what readers allow; whether that was all. Then the log may begin anew with the next write.

        The slack goes before that: until the log begins anew it tells which pages were written, also after a crash.
        """
        pages, copied = connection.wal_checkpoint(mode=mode)
        if copied < pages:
            return False
        if self._slack.clear(self._written(pages)):
            # Or the next write of such a page would bring back what the connection remembers of it.
            connection.release_memory()
        return True

    def _written(self, pages: int) -> list[int]:
        """The pages that were written since this was last asked."""
        if pages <= 0:
            return []
        with self._log_path.open("rb") as log:
            header = log.read(_HEADER_BYTES)
            page_bytes, salt = int.from_bytes(header[8:12], "big"), header[16:24]
            known, count = self._cleared
            first = count if known == salt else 0
            frame_bytes = _FRAME.itemsize + page_bytes
            log.seek(_HEADER_BYTES + first * frame_bytes, os.SEEK_SET)
            frames = np.frombuffer(log.read((pages - first) * frame_bytes), np.uint8).reshape(-1, frame_bytes)
        self._cleared = salt, pages
        numbers = frames[:, : _FRAME.itemsize].copy().view(_FRAME)["page"]
        return [int(number) for number in np.unique(numbers)]
