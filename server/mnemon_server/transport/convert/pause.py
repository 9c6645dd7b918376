"""Pauses in long conversions, so that other calls are served meanwhile."""

import asyncio
import time

# Longer than this at a stretch, and other calls would notice.
_SLICE_S = 0.005


class Pause:
    """Lets the event loop run in between, once a slice of time is used up."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def where_due(self) -> None:
        """Call it after each record."""
        if time.perf_counter() - self._since > _SLICE_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
