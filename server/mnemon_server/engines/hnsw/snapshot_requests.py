"""Callers that wait for a snapshot which another thread writes."""

import errno
import threading
from collections import deque
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SnapshotRequests:
    """Any thread asks; the one that writes answers all who asked before it began, with the same snapshot."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Future[datetime | None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self) -> Future[datetime | None]:
        """A request; its future holds the snapshot's time, or None where there is no graph, or what went wrong."""
        request: Future[datetime | None] = Future()
        with self._guard:
            if self._closed:
                request.set_exception(_closed())
            else:
                self._waiting.append(request)
        return request

    def answer(self, count: int, time: datetime | None) -> None:
        """The oldest `count` have what they asked for."""
        for request in self._take(count):
            request.set_result(time)

    def fail(self, count: int, error: OSError) -> None:
        """The oldest `count` learn what went wrong."""
        for request in self._take(count):
            request.set_exception(_storage_error(error))

    def close(self) -> None:
        """Nobody waits any more, and nobody will."""
        with self._guard:
            self._closed = True
        for request in self._take(len(self)):
            request.set_exception(_closed())

    def _take(self, count: int) -> list[Future[datetime | None]]:
        with self._guard:
            return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


def _closed() -> MnemonError:
    return StorageFailedError("the records are being closed; no snapshot was written")


def _storage_error(error: OSError) -> MnemonError:
    if error.errno in _FULL:
        return StorageFullError("no space is left on the disk for a snapshot; free some, then ask again")
    return StorageFailedError("the snapshot could not be written; the log says why")
