"""Work outside of the event loop: on threads, in futures of the engine, and in slices with pauses."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from mnemon_server.domain.observation.figures import traced
from mnemon_server.engines.promises.vault import Vault, VaultTransaction

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


async def completion(future: "Future[T]", part: str = "write") -> T:
    """The result of an engine's future. Cancelling the caller does not cancel the engine's work.

    `part` is what traces call it.

    `asyncio.wrap_future` wakes the loop once for each future. A transaction completes many at the same time, and a
    wake-up costs as much as a third of a small write.
    """
    if future.done():
        return future.result()
    loop = asyncio.get_running_loop()
    if (futures := _OF_LOOPS.get(loop)) is None:
        futures = _OF_LOOPS[loop] = _EngineFutures()
    result: T = await futures.of(traced(part, future), loop)
    return result


async def transacted(vault: Vault, program: Callable[[VaultTransaction], T]) -> T:
    """The result of a program that ran in a transaction of the vault. Errors as `Vault.transact`."""
    results: list[T] = []

    def run(tx: VaultTransaction) -> str:
        results[:] = [program(tx)]
        return ""

    await completion(vault.transact(run))
    return results[0]


class _EngineFutures:
    """The futures that one event loop waits for. Only that loop may call its methods, except for `_arrive`."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_awaited = False

    def of(self, future: "Future[T]", loop: asyncio.AbstractEventLoop) -> "asyncio.Future[T]":
        waiter: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda done: self._arrive(waiter, done))
        return waiter

    def _arrive(self, waiter: "asyncio.Future[Any]", done: "Future[Any]") -> None:
        """Any thread may call it."""
        self._arrived.append((waiter, done))
        # Checked after the append: if the flag is set, a hand-over has yet to begin, and will take this result along.
        if not self._is_awaited:
            self._is_awaited = True
            # If the loop has ended, no one waits for the result.
            with suppress(RuntimeError):
                waiter.get_loop().call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_awaited = False
        while self._arrived:
            waiter, done = self._arrived.popleft()
            if waiter.done():
                continue
            if done.cancelled():
                waiter.cancel()
            elif (error := done.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(done.result())


# The values do not refer to the loop, so an entry disappears together with its loop.
_OF_LOOPS: "WeakKeyDictionary[asyncio.AbstractEventLoop, _EngineFutures]" = WeakKeyDictionary()


# Other calls would notice a longer stretch.
_SLICE_S = 0.0005
LARGE_BYTES = 1 << 16
"""From this size on, a message with JSON is read on a thread: if it holds nothing but numbers, it takes 10 ms."""

Message = TypeVar("Message")
Result = TypeVar("Result")


class Pause:
    """Yields to the event loop once a slice of time is used up, which all conversions of the loop share.

    Otherwise a call would wait for a slice of each conversion in progress, of which every bulk stream has several.
    """

    def __init__(self) -> None:
        """Belongs to the event loop that first awaits it. Costs nothing before that."""
        self._turn: _Turn | None = None

    async def where_due(self) -> None:
        """Call it after each record, or between two: a call with one record then does without."""
        if self._turn is None:
            loop = asyncio.get_running_loop()
            self._turn = _TURNS.get(loop) or _TURNS.setdefault(loop, _Turn())
        if self._turn.is_over():
            await asyncio.sleep(0)


class _Turn:
    """The conversions between two times that the event loop looks for other calls."""

    def __init__(self) -> None:
        self._began: float | None = None

    def is_over(self) -> bool:
        """Whether the slice is used up. The first call of a turn begins it."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
            asyncio.get_running_loop().call_soon(self._end)
        return now - self._began > _SLICE_S

    def _end(self) -> None:
        self._began = None


_TURNS: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn]" = WeakKeyDictionary()


async def converted(convert: Callable[[Message], Result], message: Message, size: int) -> Result:
    """The result of `convert`, or what it raises; runs on a thread if the message has a large `size`, in bytes."""
    return convert(message) if size < LARGE_BYTES else await asyncio.to_thread(convert, message)
