"""Bulk streams give way to single calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from mnemon_server.services.limits.budget import SharedBudget

PAUSE_MAX_S = 0.25
"""The longest pause after a piece of a stream's work."""
QUIET_S = 0.02
"""The time without a call after which it is taken that none follows."""


class GivingWay:
    """While single calls are in work, or have just ended, streams store one message at a time, and after each they
    pause for as long as it took. So a bulk load, which keeps all cores busy, takes half of the time at most, and does
    not begin with several messages between two calls of a client that makes one after the other.
    """

    def __init__(self, calls: SharedBudget) -> None:
        """`calls` counts calls in progress."""
        self._calls = calls
        calls.listeners.append(self._look)
        self._quiet_from = 0.0
        """When no call has just ended, by `monotonic`."""
        self._pieces = asyncio.Lock()
        self._pause_s = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Waits for the turn of a piece of work, which is the block."""
        if not self._is_busy():
            yield
            return
        async with self._pieces:
            await self._pause()
            began = monotonic()
            try:
                yield
            finally:
                self._pause_s = min(monotonic() - began, PAUSE_MAX_S)

    async def _pause(self) -> None:
        """Waits for as long as the last piece took, or until no call is in work."""
        until = monotonic() + self._pause_s
        while self._is_busy() and (left_s := until - monotonic()) > 0:  # noqa: ASYNC110 - calls may begin again
            await asyncio.sleep(min(left_s, QUIET_S))

    def _is_busy(self) -> bool:
        return bool(self._calls.used) or monotonic() < self._quiet_from

    def _look(self) -> None:
        """A call has ended."""
        self._quiet_from = monotonic() + QUIET_S
