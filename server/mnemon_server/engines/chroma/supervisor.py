"""Supervises the child process: starts it, opens its collection, retries, and quarantines damaged folders."""

import logging
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from mnemon_server.domain.errors import (
    BackendConnectionError,
    ConfigurationError,
    EmbeddingModelMismatchError,
    MnemonError,
)
from mnemon_server.engines.chroma.folder import empty, quarantine, remove_quarantined
from mnemon_server.engines.chroma.process import ChildGoneError, ChildProcess, ChildTimeoutError
from mnemon_server.engines.chroma.protocol import CollectionError, Failure, Opened, OpenRequest, Operation
from mnemon_server.engines.chroma.settings import ChromaSettings

_RETRY_DELAYS_S = (0.1, 0.2, 0.4)
_RESTART_DELAY_S, _RESTART_DELAY_MAX_S = 0.25, 30.0
_STOP_S = 20.0
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
_CRASHES_MAX = 2

T = TypeVar("T")
ChildError = CollectionError | ChildGoneError | ChildTimeoutError

logger = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_generation() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A supervisor's external dependencies, which tests can replace."""

    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    new_generation: Callable[[], str] = _new_generation
    rng: random.Random = field(default_factory=random.Random)


class Supervisor:
    """One collection, hosted by one child at a time. Thread-safe."""

    def __init__(self, request: OpenRequest, *, settings: ChromaSettings, environment: Environment) -> None:
        self._request = request
        self._settings = settings
        self._environment = environment
        self._lock = threading.RLock()
        self._child: ChildProcess | None = None
        self._opened: Opened | None = None
        self._connected = False
        self._must_open = False
        self._suspect = False
        self._closed = False
        self._crashes = 0
        self._failed_starts = 0
        self._no_start_before = 0.0

    @property
    def place(self) -> str:
        """The location of the collection, for messages."""
        return "embedded" if self._request.path else f"{self._request.host}:{self._request.port}"

    @property
    def is_embedded(self) -> bool:
        """Whether the collection is in a local folder of this server."""
        return bool(self._request.path)

    @property
    def child_pid(self) -> int | None:
        """The process id of the child, if it is running."""
        child = self._child
        return child.pid if child is not None and child.alive else None

    def open(self) -> Opened:
        """Opens the collection. Creates it if it is missing or unusably damaged."""
        with self._lock:
            self._refuse_when_closed()
            self._connected, self._no_start_before = False, 0.0
            if self._child is not None and (self._suspect or not self._child.alive):
                self._stop_child()  # so that the files are checked, not the old process's cache
            self._opened = self._translated(lambda: self._retried(self._open_or_recover))
            self._must_open = self._suspect = False
            return self._opened

    def call(
        self, operation: Operation, header: Mapping[str, Any], payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Sends a request about the open collection to the child. Starts the child if it is not running."""

        def attempt() -> tuple[dict[str, Any], bytes]:
            child = self._connected_child()
            try:
                return self._ask(child, operation, header, payload, timeout_s=self._settings.call_timeout_s)
            except (ChildGoneError, ChildTimeoutError):
                child.kill()  # a hanging native call never returns
                raise

        return self._translated(lambda: self._retried(attempt))

    def search(self, header: Mapping[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Sends a search to the child, without waiting long for a server or for a collection that is being opened."""
        if self.is_embedded:
            return self.call(Operation.SEARCH, header, payload)

        def attempt() -> tuple[dict[str, Any], bytes]:
            child = self._child
            if child is None or not child.alive or not self._connected or self._must_open:
                raise CollectionError(Failure.STALE, "the collection is not open")
            # After a timeout, a thread of the child may hang forever, so the next `open` replaces the child.
            return self._ask(child, Operation.SEARCH, header, payload, timeout_s=self._settings.search_timeout_s)

        return self._translated(lambda: self._retried(attempt))

    def reset(self) -> Opened:
        """Empties the collection and its files."""
        with self._lock:
            if not self._request.path:
                result, _ = self.call(Operation.RESET, {"new_generation": self._environment.new_generation()})
                self._opened = Opened(**result)
                return self._opened
            self._refuse_when_closed()
            self._stop_child()
            remove_quarantined(Path(self._request.path))
            empty(Path(self._request.path))
            return self.open()

    def close(self) -> None:
        """Lets the child finish and end. Later calls raise BackendConnectionError."""
        self._closed = True
        child = self._child
        if child is not None:  # without the lock, which a call that opens the index holds for long
            self._end(child)
        with self._lock:
            self._stop_child()

    @property
    def _crashes_too_often(self) -> bool:
        return bool(self._request.path) and self._crashes >= _CRASHES_MAX

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise BackendConnectionError("the vector index is closed")

    def _ask(
        self, child: ChildProcess, operation: Operation, header: Mapping[str, Any], payload: bytes, *, timeout_s: float
    ) -> tuple[dict[str, Any], bytes]:
        try:
            return child.call(operation, header, payload, timeout_s=timeout_s)
        except (ChildGoneError, ChildTimeoutError):
            self._suspect = True
            raise
        except CollectionError as error:
            self._must_open = self._must_open or error.failure is Failure.STALE
            self._suspect = self._suspect or error.failure is not Failure.UNREACHABLE
            raise

    def _connected_child(self) -> ChildProcess:
        with self._lock:
            self._refuse_when_closed()
            if self._opened is None:
                self.open()
            if self._must_open:
                raise CollectionError(Failure.STALE, "the collection must be opened again")
            if self._child is None or not self._child.alive or not self._connected:
                self._reconnect()
            if self._child is None:
                raise ChildGoneError(None)
            return self._child

    def _reconnect(self) -> None:
        """Reopens exactly the previous collection, because the caller relies on what was applied to it."""
        if self._child is not None and not self._child.alive:
            self._stop_child()
        if self._crashes_too_often:
            self._must_open = True
            raise CollectionError(Failure.STALE, f"the process crashed {self._crashes} times")
        try:
            self._start(expected_generation=self._opened.generation if self._opened else "")
        except CollectionError as error:
            self._must_open = error.failure in (Failure.DAMAGED, Failure.STALE)
            raise

    def _open_or_recover(self) -> Opened:
        try:
            if self._crashes_too_often:
                raise CollectionError(Failure.DAMAGED, f"the process crashed {self._crashes} times in use")
            return self._start_despite_kill()
        except (CollectionError, ChildGoneError, ChildTimeoutError) as error:
            if not self._request.path or not _is_damage(error):
                raise
            self._stop_child()
            moved_to = quarantine(Path(self._request.path), self._environment.now())
            logger.warning(
                "the embedded vector index is damaged (%s), and was moved to %s", error, moved_to or "no place"
            )
        self._crashes = self._failed_starts = 0
        self._no_start_before = 0.0
        return self._start()

    def _start_despite_kill(self) -> Opened:
        try:
            return self._start()
        except ChildGoneError as error:
            if error.returncode != -signal.SIGKILL:
                raise
            self._no_start_before = 0.0
            return self._start()  # a first kill may come from outside; only a second one is attributed to the data

    def _start(self, expected_generation: str = "") -> Opened:
        child = self._running_child()
        request = replace(
            self._request, expected_generation=expected_generation, new_generation=self._environment.new_generation()
        )
        try:
            result, _ = child.call(
                Operation.OPEN, {"request": request.to_header()}, timeout_s=self._settings.open_timeout_s
            )
        except (CollectionError, ChildGoneError, ChildTimeoutError) as error:
            self._give_up(child, error)
            raise
        self._connected, self._failed_starts = True, 0
        return Opened(**result)

    def _running_child(self) -> ChildProcess:
        if self._child is not None and self._child.alive:
            return self._child
        self._refuse_when_closed()
        if self._environment.monotonic() < self._no_start_before:
            raise CollectionError(Failure.FAILED, "the process failed to start a moment ago")
        self._stop_child()
        self._child = ChildProcess()
        self._refuse_when_closed()  # `close` may not have seen this child
        return self._child

    def _give_up(self, child: ChildProcess, error: ChildError) -> None:
        if not isinstance(error, CollectionError):
            self._delay_next_start()
            child.kill()
        elif self._request.path:
            child.kill()  # it has locked the folder

    def _delay_next_start(self) -> None:
        delay = min(_RESTART_DELAY_S * 2**self._failed_starts, _RESTART_DELAY_MAX_S)
        self._failed_starts += 1
        self._no_start_before = self._environment.monotonic() + delay

    def _stop_child(self) -> None:
        self._connected = False
        if self._child is not None:
            self._end(self._child)
            self._crashes += self._child.returncode in _CRASHES
            self._child = None

    def _end(self, child: ChildProcess) -> None:
        if self.is_embedded:
            child.stop(timeout_s=_STOP_S)
        else:
            child.kill()  # it may be waiting for the server, and holds no data

    def _retried(self, action: Callable[[], T]) -> T:
        """The action's result. If the server cannot be reached, it is retried three times."""
        for delay in _RETRY_DELAYS_S:
            try:
                return action()
            except CollectionError as error:
                if error.failure is not Failure.UNREACHABLE:
                    raise
                logger.info("Chroma at %s cannot be reached, retrying: %s", self.place, error)
            self._environment.sleep(delay * self._environment.rng.uniform(0.75, 1.25))
        return action()

    def _translated(self, action: Callable[[], T]) -> T:
        """The action's result. Errors are translated to those of the domain; the original text goes to the log."""
        try:
            return action()
        except (CollectionError, ChildGoneError, ChildTimeoutError) as error:
            if not self._closed:  # otherwise `close` ended the process, as the caller wanted
                logger.warning("the vector index at %s failed: %s", self.place, error)
            raise self._domain_error(error) from None

    def _domain_error(self, error: ChildError) -> MnemonError:
        collection, place = self._request.collection, self.place
        if isinstance(error, ChildGoneError):
            return BackendConnectionError(
                f"the process of the vector index ({place}) ended; the next call starts it again"
            )
        if isinstance(error, ChildTimeoutError):
            return BackendConnectionError(f"the vector index ({place}) did not answer in time")
        match error.failure:
            case Failure.MISMATCH:
                return EmbeddingModelMismatchError(
                    f"the collection {collection!r} has vectors of {error}, but {self._request.model_identity} is "
                    "configured: configure the previous model, or another collection name after `mnemon-server reembed`"
                )
            case Failure.FOREIGN:
                return ConfigurationError(
                    f"the collection {collection!r} ({place}) has records of another program: set another name"
                )
            case Failure.UNREACHABLE:
                return BackendConnectionError(f"Chroma at {place} cannot be reached: check that it is running")
            case Failure.BUSY:
                return BackendConnectionError("another process uses the files of the embedded vector index")
            case Failure.STALE:
                return BackendConnectionError(f"the collection {collection!r} ({place}) must be opened again")
        return BackendConnectionError(f"the vector index ({place}) failed; the server's log says why")


def _is_damage(error: ChildError) -> bool:
    if isinstance(error, CollectionError):
        return error.failure is Failure.DAMAGED
    if isinstance(error, ChildGoneError):
        return error.returncode in _CRASHES or error.returncode == -signal.SIGKILL
    return True
