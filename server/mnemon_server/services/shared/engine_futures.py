"""Results of engines, brought to the event loop: all that are there together, in one wake-up."""

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def completion(future: "Future[T]") -> T:
    """What a future of an engine comes to. Cancelling the caller leaves what it stands for alone.

    `asyncio.wrap_future` wakes the loop for each future by itself. A transaction answers many at the same time, and a
    wake-up costs as much as a third of a small write.
    """
    if future.done():
        return future.result()
    loop = asyncio.get_running_loop()
    if (futures := _OF_LOOPS.get(loop)) is None:
        futures = _OF_LOOPS[loop] = _EngineFutures()
    result: T = await futures.of(future, loop)
    return result


class _EngineFutures:
    """Those of one event loop, which alone may call its methods but for `_arrive`."""

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
        # Looked at after the append: whoever finds it set can be sure that a hand-over is still to begin.
        if not self._is_awaited:
            self._is_awaited = True
            # A loop that has ended has nobody left to tell.
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


# A loop is held by none of its values, and so is forgotten with its last use.
_OF_LOOPS: "WeakKeyDictionary[asyncio.AbstractEventLoop, _EngineFutures]" = WeakKeyDictionary()
