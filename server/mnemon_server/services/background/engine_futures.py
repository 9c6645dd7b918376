"""Brings the results of engines to the event loop: all that are ready, in one wake-up."""

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from mnemon_server.domain.observation.tracing import traced

T = TypeVar("T")


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
