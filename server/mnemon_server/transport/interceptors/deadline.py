"""A single call whose client names no deadline gets one."""

import asyncio
from typing import Any

from mnemon_server.transport.errors import DeadlineExceededError
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single


class DefaultDeadline(MethodInterceptor):
    """Cancels a handler after the default time. With a client's deadline the runtime does that.

    All calls get the same time, so the oldest is always the next to expire, and one timer watches all of them: a timer
    for each costs as much as a read.
    """

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._watched: dict[asyncio.Task[Any], float] = {}
        """When each call expires by the clock of the loop, oldest first."""

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Watches the time, except of streams of requests: a long upload is no fault."""
        if method.handler.request_streaming:
            return inner

        async def call(request: Any, context: Context) -> Any:
            if context.time_remaining() is not None:
                return await inner(request, context)
            task = self._watch()
            try:
                return await inner(request, context)
            except asyncio.CancelledError:
                # Where the client has left as well, nobody is there to be told.
                if task in self._watched or task.uncancel() > 0:
                    raise
                raise DeadlineExceededError(
                    f"the call took longer than {self._seconds:g} s; send a deadline where more is needed"
                ) from None
            finally:
                self._watched.pop(task, None)

        return call

    def _watch(self) -> "asyncio.Task[Any]":
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler always runs in a task
        loop = asyncio.get_running_loop()
        expiry = self._watched[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(expiry, self._expire)
        return task

    def _expire(self) -> None:
        """Cancels the calls whose time is over, which are watched no longer, and waits for the next."""
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        while self._watched:
            task, expiry = next(iter(self._watched.items()))
            if expiry > now:
                self._timer = loop.call_at(expiry, self._expire)
                return
            del self._watched[task]
            task.cancel()
