"""Pauses in long conversions, so that other calls are served in between."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

# Other calls would notice a longer stretch.
_SLICE_S = 0.005
LARGE_BYTES = 1 << 16
"""From this size on, a message with JSON is read on a thread: if it holds nothing but numbers, it takes 10 ms."""

Message = TypeVar("Message")
Result = TypeVar("Result")


class Pause:
    """Yields to the event loop once a slice of time is used up."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def where_due(self) -> None:
        """Call it after each record."""
        if time.perf_counter() - self._since > _SLICE_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


async def converted(convert: Callable[[Message], Result], message: Message, size: int) -> Result:
    """The result of `convert`, or what it raises; runs on a thread if the message has a large `size`, in bytes."""
    return convert(message) if size < LARGE_BYTES else await asyncio.to_thread(convert, message)
