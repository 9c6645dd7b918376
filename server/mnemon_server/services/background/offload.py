"""Runs blocking work outside of the event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from mnemon_server.services.background.engine_futures import completion

P = ParamSpec("P")
T = TypeVar("T")

LONG_S = 0.03
"""A call that takes longer no longer keeps others waiting; see OneByOne."""


class Offload:
    """Runs blocking calls on a bounded number of threads; they start in the order of the calls."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._is_used = False

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns or raises what `function` does. Cancelling the caller does not stop a call that has begun."""
        future = self._submit(function, *args, **kwargs)
        try:
            return await completion(future, "read")
        except asyncio.CancelledError:
            future.cancel()
            raise

    def close(self) -> None:
        """Waits for the calls that have begun, and drops those that have not."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def aclose(self) -> None:
        """As `close`, on a thread. Most offloads of a vault that is open for a few calls have no thread to wait for."""
        if self._is_used:
            await asyncio.to_thread(self.close)
        else:
            self.close()

    def _submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self._is_used = True
        return self._executor.submit(function, *args, **kwargs)


class OneByOne(Offload):
    """Runs short calls on one thread, one after the other. Further threads help while a call takes long.

    Threads that compute at the same time only pass the interpreter lock back and forth, which costs a short call a
    quarter of its time. Belongs to one event loop.
    """

    def __init__(self, threads: int, name: str, *, long_s: float = LONG_S) -> None:
        """Uses at most `threads`. A call is long after `long_s` seconds."""
        super().__init__(threads, name)
        self._threads = threads
        self._long_s = long_s
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._working = 0
        """Threads at work."""
        self._began = 0.0
        """When the last call began."""
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See Offload."""
        future: Future[T] = Future()
        with self._lock:
            if not self._working:
                self._add_thread()
            self._waiting.append((future, partial(function, *args, **kwargs)))
        if self._timer is None:
            self._set_timer()
        try:
            return await completion(future, "read")
        except asyncio.CancelledError:
            future.cancel()
            raise

    def close(self) -> None:
        """See Offload."""
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
        for future, _ in dropped:
            future.cancel()
        super().close()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._long_s, self._help)

    def _help(self) -> None:
        """Adds a thread if calls wait, and none has begun for a while. Looks again as long as calls wait."""
        self._timer = None
        with self._lock:
            if not self._waiting:
                return
            if self._working < self._threads and time.monotonic() - self._began >= self._long_s:
                self._add_thread()
        self._set_timer()

    def _add_thread(self) -> None:
        self._submit(self._work)
        self._working += 1

    def _work(self) -> None:
        """Runs calls until no further one waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                future, call = self._waiting.popleft()
                self._began = time.monotonic()
            if future.set_running_or_notify_cancel():
                _run(future, call)


def _run(future: "Future[Any]", call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is raised to the caller
        future.set_exception(error)
    else:
        future.set_result(result)
