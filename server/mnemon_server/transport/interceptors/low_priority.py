"""Long work gives way to short calls: that of the event loop in short steps, that of streams in pieces."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic, perf_counter, sleep
from typing import TypeVar

from mnemon_server.services.shared.budget import SharedBudget
from mnemon_server.services.shared.pause import Rest
from mnemon_server.transport.interceptors.turns import Turns

T = TypeVar("T")

TURNS, TURNS_S = 8, 0.001
"""How many turns of the event loop there are from the end of a step to the next, or how many seconds. A call over gRPC
takes six turns until its method is called; one in which there is nothing to do takes 5 µs."""
SHORT_STEPS = 4
"""So many first steps of an answer do not wait in the line: one with a page of records has no more."""
WAIT_S = 0.002
"""How long a step waits for calls in work. It is four times as long as a step, so that these cannot stop the work."""
PAUSE_MAX_S = 0.25
"""The longest pause after a piece of a stream's work."""
QUIET_S = 0.02
"""The time without a call after which it is taken that none follows."""
LONG_SWITCH_S = 0.005
"""After how long a computing thread releases the interpreter lock while streams are in work alone: Python's default. No
single call waits for it then, and each switch between the event loop and the writer's thread costs both."""


class LowPriority:
    """One step of all such work in `TURNS` turns of the event loop, and while calls are in work, one in `WAIT_S`.

    A call passes through the loop several times, and would otherwise wait for a step each time. Answers that end within
    a few steps do not wait so. Belongs to one loop.
    """

    def __init__(self, calls: SharedBudget) -> None:
        """`calls` counts calls in progress, including calls whose messages are read here."""
        self._calls = calls
        calls.listeners.append(self._look)
        self._reading = 0
        """How many calls in progress are read here."""
        self._line: deque[asyncio.Future[None]] = deque()
        self._next_step: asyncio.Handle | None = None
        self._waits = False
        """Whether the next step waits for calls in work."""
        self._short = Turns(per_turn=1)

    @contextmanager
    def reading(self, *, single: bool) -> Iterator[None]:
        """Long work for a call does not give way to that call. `single`: whether the call counts."""
        self._reading += single
        try:
            yield
        finally:
            self._reading -= single

    async def run(self, steps: Generator[None, None, T], *, short_steps: int = 0) -> T:
        """Does work that pauses wherever it yields; returns its result. Other calls are served in between.

        Args:
            steps: the work.
            short_steps: so many first steps do not wait in the line; in a turn of the loop, there is one for all works.
        """
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                result: T = ended.value
                return result
            if short_steps:
                short_steps -= 1
                await (self._short.take("") or asyncio.sleep(0))
            else:
                await self.turn()

    def turn(self) -> "asyncio.Future[None]":
        """Ends once it is the turn of this step; whoever cancels it leaves the line."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        if self._next_step is None:
            self._schedule()
        return turn

    def _schedule(self, turns: int = TURNS) -> None:
        loop = asyncio.get_running_loop()
        self._waits = self._calls.used > self._reading
        if self._waits:
            self._next_step = loop.call_later(WAIT_S, self._step)
        else:
            self._next_step = loop.call_soon(self._pass, turns, loop.time() + TURNS_S)

    def _pass(self, turns: int, until: float) -> None:
        """Lets so many turns of the loop pass, or so much time: those of a busy loop are long."""
        loop = asyncio.get_running_loop()
        if turns > 1 and loop.time() < until:
            self._next_step = loop.call_soon(self._pass, turns - 1, until)
        else:
            self._step()

    def _step(self) -> None:
        """Resumes the first waiter that has not been cancelled, and then counts anew."""
        self._next_step, self._waits = None, False
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                # The waiter runs before this: its own time does not count.
                self._next_step = asyncio.get_running_loop().call_soon(self._go_on)
                break

    def _go_on(self) -> None:
        self._next_step = None
        if self._line:
            self._schedule(TURNS - 1)

    def _look(self) -> None:
        """A call has ended. If it was the last one in progress, the next step runs at once."""
        if self._waits and self._next_step is not None and self._calls.used <= self._reading:
            self._next_step.cancel()
            self._schedule()


WORK_S = 0.001
"""How long a thread computes until it rests for as long."""


class GivingWay:
    """While single calls are in work, or have just ended, streams store one message at a time, and after each they
    pause for as long as it took. So a bulk load, which keeps all cores busy, takes half of the time at most, and does
    not begin with several messages between two calls of somebody who makes one after the other.

    Without such calls, threads may keep the interpreter lock for longer.
    """

    def __init__(self, calls: SharedBudget) -> None:
        """`calls` counts calls in progress."""
        self._calls = calls
        calls.listeners.append(self._look)
        calls.taken.append(self._hurry)
        self._quiet_from = 0.0
        """When no call has just ended, by `monotonic`."""
        self._pieces = asyncio.Lock()
        self._pause_s = 0.0
        self._undisturbed = 0
        """How many pieces are in work that began without calls in work."""
        self._usual_switch_s = sys.getswitchinterval()
        self._is_long = False

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Waits for the turn of a piece of work, which is the block."""
        if not self._is_busy():
            self._count_undisturbed(1)
            try:
                yield
            finally:
                self._count_undisturbed(-1)
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

    def new_rest(self) -> Rest:
        """For one thread that computes for a single call: while others are in work, or have just ended, it rests after
        each millisecond for another one.

        A call asks for the interpreter lock some ten times, and while a thread computes, it waits for 0.2 ms each time.
        """
        began = perf_counter()

        def rest() -> None:
            nonlocal began
            if perf_counter() - began < WORK_S:
                return
            if self._calls.used > 1 or monotonic() < self._quiet_from:
                sleep(WORK_S)
            began = perf_counter()

        return rest

    def _hurry(self) -> None:
        """A call has begun."""
        if self._is_long:
            self._switch(is_long=False)

    def _count_undisturbed(self, change: int) -> None:
        self._undisturbed += change
        is_long = bool(self._undisturbed) and not self._is_busy()
        if is_long != self._is_long:
            self._switch(is_long=is_long)

    def _switch(self, *, is_long: bool) -> None:
        self._is_long = is_long
        sys.setswitchinterval(max(self._usual_switch_s, LONG_SWITCH_S) if is_long else self._usual_switch_s)
