"""Requests for a snapshot that another thread writes."""

import errno
import threading
from collections import deque
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SnapshotRequests:
    """Any thread may request a snapshot. The writing thread answers all requests that came before it began."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Future[datetime | None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def add(self) -> Future[datetime | None]:
        """Adds a request. Its future gets the snapshot's time, None if there is no graph, or an exception."""
        request: Future[datetime | None] = Future()
        with self._guard:
            if self._closed:
                request.set_exception(_closed())
            else:
                self._waiting.append(request)
        return request

    def answer(self, count: int, time: datetime | None) -> None:
        """Answers the oldest `count` requests."""
        for request in self._take(count):
            request.set_result(time)

    def fail(self, count: int, error: OSError) -> None:
        """Fails the oldest `count` requests with an error."""
        for request in self._take(count):
            request.set_exception(_storage_error(error))

    def close(self) -> None:
        """Fails the waiting requests, and refuses further ones."""
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
        return StorageFullError("no space is left on the disk for a snapshot; free some space and try again")
    return StorageFailedError("the snapshot could not be written; the log says why")
