"""Pauses in long conversions, so that other calls are served meanwhile."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

# Longer than this at a stretch, and other calls would notice.
_SLICE_S = 0.005
LARGE_BYTES = 1 << 16
"""Of a message with JSON in it, which takes 10 ms to read where it holds nothing but numbers."""

Message = TypeVar("Message")
Result = TypeVar("Result")


class Pause:
    """Lets the event loop run in between, once a slice of time is used up."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def where_due(self) -> None:
        """Call it after each record."""
        if time.perf_counter() - self._since > _SLICE_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


async def converted(convert: Callable[[Message], Result], message: Message, size: int) -> Result:
    """What `convert` makes of a message, or raises; on a thread where its `size`, in bytes, is large."""
    return convert(message) if size < LARGE_BYTES else await asyncio.to_thread(convert, message)
