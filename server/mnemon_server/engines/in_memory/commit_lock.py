"""The commit lock of a vault, with the order of changes, the answers to request ids, and the commit listeners."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import RequestIdReusedError, StorageFailedError
from mnemon_server.domain.events import EventReceipt
from mnemon_server.domain.records import RequestKey

REQUEST_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class _Answer:
    request: RequestKey
    receipt: Any
    expire_time: datetime


class CommitLock:
    """Executes writes one by one. Reads hold its lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.closed = False
        self._sequence = 0
        self._answers: dict[str, _Answer] = {}
        self.tombstones: dict[bytes, datetime] = {}
        self._listeners: dict[object, Callable[[], None]] = {}

    def next_sequence(self) -> int:
        """The position of a new change."""
        self._sequence += 1
        return self._sequence

    def saved(self) -> Callable[[], None]:
        """Returns a function that restores the current position. Call it with the lock held."""
        sequence, answers, tombstones = self._sequence, dict(self._answers), dict(self.tombstones)

        def restore() -> None:
            self._sequence, self._answers, self.tombstones = sequence, answers, tombstones

        return restore

    def write(self, request: RequestKey | None, operation: Callable[[], Any]) -> "Future[Any]":
        """Runs the operation, or returns the stored answer to its request."""
        future: Future[Any] = Future()
        with self.lock:
            try:
                future.set_result(self._run(request, operation))
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

    def answer_once(self, request: RequestKey | None, operation: Callable[[], Any]) -> Any:
        """Runs the operation, or returns the stored answer to its request. Call it with the lock held."""
        if request is None:
            return operation()
        known = self.known_answer(request)
        if known is not None:
            return _replayed(known)
        receipt = operation()
        self.keep_answer(request, receipt)
        return receipt

    def is_answered(self, request_id: str) -> bool:
        """Whether an answer to a request with this id is stored. Call it with the lock held."""
        known = self._answers.get(request_id)
        return known is not None and known.expire_time > self.clock()

    def known_answer(self, request: RequestKey) -> Any:
        """The stored answer to a request, or None. Call it with the lock held."""
        if not self.is_answered(request.stored_id):
            return None
        known = self._answers[request.stored_id]
        if known.request != request:
            raise RequestIdReusedError(
                f"request_id {request.request_id!r} was used for a different request; each request needs its own"
            )
        return known.receipt

    def keep_answer(self, request: RequestKey, receipt: Any) -> None:
        """Stores the answer to a request. Call it with the lock held."""
        self._answers[request.stored_id] = _Answer(request, receipt, self.clock() + REQUEST_LIFETIME)

    def answers(self, after: str) -> list[tuple[str, str]]:
        """See Vault. Call it with the lock held."""
        known = sorted(self._answers.items())
        return [(stored_id, repr(one.receipt).replace("'", '"')) for stored_id, one in known if stored_id > after]

    def forget(self, stored_ids: Sequence[str]) -> int:
        """See VaultTransaction. Call it with the lock held."""
        known = [each for each in stored_ids if each in self._answers]
        for each in known:
            del self._answers[each]
        return len(known)

    def _run(self, request: RequestKey | None, operation: Callable[[], Any]) -> Any:
        if self.closed:
            raise StorageFailedError("the records are closed")
        return self.answer_once(request, operation)


def _replayed(receipt: Any) -> Any:
    return receipt._replace(replayed=True) if isinstance(receipt, EventReceipt) else replace(receipt, replayed=True)
