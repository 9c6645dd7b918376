"""Lets requests of one stream, which are worked on at the same time, write in the order in which they came."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar


class WriteTurn:
    """The turn of one request. Belongs to one event loop."""

    def __init__(self, before: Iterable["WriteTurn"]) -> None:
        """`before` are the turns of the requests before it that are still in progress."""
        self._over = asyncio.Event()
        self._before: list[asyncio.Event] = [turn._over for turn in before]

    def begin(self) -> None:
        """Makes it the turn of the running task."""
        _turn.set(self)

    async def come(self) -> None:
        """Waits until the turns before are over."""
        for turn in self._before:
            await turn.wait()

    def end(self) -> None:
        """Must be called when the request has ended, whether it wrote or not. Further calls have no effect."""
        self._over.set()


_turn: ContextVar[WriteTurn | None] = ContextVar("write_turn", default=None)


@asynccontextmanager
async def in_turn() -> AsyncIterator[None]:
    """Hand a write over within this block: it is entered once the requests before have handed over theirs, or ended."""
    turn = _turn.get()
    if turn is None:
        yield
        return
    await turn.come()
    try:
        yield
    finally:
        turn.end()
