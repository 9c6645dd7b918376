"""The one lane of a vault: a lock, the order of changes, answers to request ids, and who listens."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import RequestIdReusedError, StorageFailedError
from mnemon_server.domain.records import RequestKey

REQUEST_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class _Answer:
    request: RequestKey
    receipt: Any
    expire_time: datetime


class Lane:
    """Writes go through it one by one; reads hold its lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.closed = False
        self._sequence = 0
        self._answers: dict[str, _Answer] = {}
        self._listeners: dict[object, Callable[[], None]] = {}

    def next_sequence(self) -> int:
        """The position of a new change."""
        self._sequence += 1
        return self._sequence

    def saved(self) -> Callable[[], None]:
        """What brings back the present position; behind the lock."""
        sequence = self._sequence

        def restore() -> None:
            self._sequence = sequence

        return restore

    def write(self, request: RequestKey | None, operation: Callable[[], Any]) -> "Future[Any]":
        """Runs the operation, or gives the answer that its request got before."""
        future: Future[Any] = Future()
        with self.lock:
            try:
                future.set_result(self._answer_once(request, operation))
            except Exception as error:  # noqa: BLE001 - whatever the operation raises belongs to its caller
                future.set_exception(error)
            else:
                for listener in list(self._listeners.values()):
                    listener()
        return future

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See Vault."""
        key = object()
        with self.lock:
            self._listeners[key] = on_commit
        return lambda: self._unsubscribe(key)

    def _unsubscribe(self, key: object) -> None:
        with self.lock:
            self._listeners.pop(key, None)

    def _answer_once(self, request: RequestKey | None, operation: Callable[[], Any]) -> Any:
        if self.closed:
            raise StorageFailedError("the records are closed")
        if request is None:
            return operation()
        known = self._answers.get(request.request_id)
        if known and known.expire_time > self.clock():
            if known.request != request:
                raise RequestIdReusedError(
                    f"request_id {request.request_id!r} was used for a different request; take a new one for each"
                )
            return replace(known.receipt, replayed=True)
        receipt = operation()
        self._answers[request.request_id] = _Answer(request, receipt, self.clock() + REQUEST_LIFETIME)
        return receipt
