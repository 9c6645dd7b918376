"""Turns: when calls of a connection begin, and when bulk streams give way to single calls."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from mnemon_server.services.limits.accounts import SharedBudget

PER_TURN = 4
"""So many calls of a connection begin in one turn of the event loop. With 32, six turns took up to 7 ms of processor
time while 520 streams began, with four up to 4 ms, and with one no less."""


class Turns:
    """Hands out turns, connection by connection. Belongs to one event loop."""

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = per_turn
        self._begun: dict[str, int] = {}
        """How many calls of each connection began in this turn."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def take(self, connection: str) -> "asyncio.Future[None] | None":
        """None: the call may begin. Otherwise many of the connection begin in this turn, and it awaits a later one."""
        begun = self._begun.get(connection, 0)
        if begun < self._per_turn:
            if not self._begun:
                asyncio.get_running_loop().call_soon(self._next)
            self._begun[connection] = begun + 1
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append(turn)
        return turn

    def _next(self) -> None:
        """Begins a turn with those that have waited longest."""
        self._begun = {connection: self._wake(turns) for connection, turns in self._waiting.items()}
        self._waiting = {connection: turns for connection, turns in self._waiting.items() if turns}
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next)

    def _wake(self, turns: "deque[asyncio.Future[None]]") -> int:
        """Lets the first go on; returns how many. Calls that have ended meanwhile take no turn."""
        woken = 0
        while turns and woken < self._per_turn:
            turn = turns.popleft()
            if not turn.done():
                turn.set_result(None)
                woken += 1
        return woken


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
