"""Counts how often other tasks get a turn on the event loop while something runs."""

import asyncio
from typing import Self


class Turns:
    """Counts within its block. The count is zero if the event loop is blocked all the time."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._others = asyncio.create_task(self._serve_others())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._others.cancel()

    async def _serve_others(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)
