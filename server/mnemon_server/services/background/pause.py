"""Pauses in long conversions, so that other calls are served in between."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

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
