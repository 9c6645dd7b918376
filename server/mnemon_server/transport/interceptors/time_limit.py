"""Time limits and deadlines of calls."""

import asyncio
from types import TracebackType
from typing import Any

from mnemon_server.transport.errors import DeadlineExceededError
from mnemon_server.transport.interceptors.base import Answer, Exchange


class TimeLimit:
    """Cancels what takes longer. Belongs to one event loop.

    All get the same time, so the oldest is always the next to expire, and one timer is enough: a timer for each would
    cost as much as a read.
    """

    def __init__(self, seconds: float, *, crowd: int | None = None, crowded_s: float = 0.0) -> None:
        """Watches nothing yet.

        Args:
            seconds: the limit.
            crowd: how many may take all of it; beyond that, the oldest are cancelled sooner. None: all may.
            crowded_s: the least that each has, in seconds.
        """
        self.seconds = seconds
        self._crowd, self._crowded_s = crowd, crowded_s
        self._thinning = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched: dict[asyncio.Task[Any], float] = {}
        """When each expires by the clock of the loop, oldest first."""

    def watch(self, message: str) -> "_Watch":
        """A context manager: the current task may spend no longer than the limit in its block.

        Leaving the block raises
            DeadlineExceededError: it took too long; its text is `message`.
        """
        return _Watch(self, message)

    def begin(self) -> "asyncio.Task[Any]":
        """For _Watch: watches the current task, and returns it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        loop = self._loop
        # With the loop as an argument: to look it up takes a system call in Python 3.11.
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - a handler always runs in a task
        now = loop.time()
        if self._crowd is not None and not self._thinning and len(self._watched) >= self._crowd:
            self._thinning = True
            loop.call_later(self._crowded_s, self._thin, self._crowd)
        self._watched[task] = now + self.seconds
        if self._timer is None:
            self._timer = loop.call_at(now + self.seconds, self._expire)
        return task

    def end(self, task: "asyncio.Task[Any]") -> bool:
        """For _Watch: stops watching the task; returns False if it has expired."""
        return self._watched.pop(task, None) is not None

    def end_oldest(self, least_s: float) -> bool:
        """Cancels the one that has been watched for longest, if that is `least_s` seconds; returns whether it did."""
        return self._loop is not None and self._end_oldest(self._loop.time() + self.seconds - least_s)

    def _expire(self) -> None:
        """Cancels those whose time is over, and sets the timer for the next."""
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        while self._end_oldest(now):
            pass
        if self._watched:
            self._timer = loop.call_at(next(iter(self._watched.values())), self._expire)

    def _thin(self, crowd: int) -> None:
        """Cancels the oldest beyond the crowd that have had their least time."""
        loop = asyncio.get_running_loop()
        while len(self._watched) > crowd and self._end_oldest(loop.time() + self.seconds - self._crowded_s):
            pass
        self._thinning = len(self._watched) > crowd
        if self._thinning:
            loop.call_later(self._crowded_s, self._thin, crowd)

    def _end_oldest(self, expired_by: float) -> bool:
        """Cancels the oldest if it expires by a time of the loop's clock; returns whether it did."""
        task, expiry = next(iter(self._watched.items()), (None, 0.0))
        if task is None or expiry > expired_by:
            return False
        del self._watched[task]
        task.cancel()
        return True


class _Watch:
    """Watches a task while it is in a block. Not a generator or a coroutine, which would cost twice as much."""

    __slots__ = ("_limit", "_message", "_task")

    def __init__(self, limit: TimeLimit, message: str) -> None:
        self._limit, self._message = limit, message

    def __enter__(self) -> None:
        self._task = self._limit.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        in_time = self._limit.end(self._task)
        # If the client has left as well, no one waits for an error.
        if kind is asyncio.CancelledError and not in_time and self._task.uncancel() <= 0:
            raise DeadlineExceededError(self._message) from None


class DefaultDeadline:
    """Cancels a handler after the default time. With a client's deadline the runtime does that."""

    def __init__(self, *, seconds: float) -> None:
        self._limit = TimeLimit(seconds)
        self._late = f"the call took longer than {seconds:g} s; send a deadline if it needs more"

    def limited(self, inner: Answer) -> Answer:
        """Limits the time of a method."""

        async def call(request: Any, context: Exchange) -> Any:
            if context.time_remaining() is not None:
                return await inner(request, context)
            with self._limit.watch(self._late):
                return await inner(request, context)

        return call
