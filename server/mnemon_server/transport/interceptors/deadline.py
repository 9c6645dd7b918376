"""A single call whose client names no deadline gets one."""

import asyncio
from typing import Any

from mnemon_server.transport.errors import DeadlineExceededError
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single


class DefaultDeadline(MethodInterceptor):
    """Cancels a handler after the default time. With a client's deadline the runtime does that."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Watches the time, except of streams of requests: a long upload is no fault."""
        if method.handler.request_streaming:
            return inner

        async def call(request: Any, context: Context) -> Any:
            if context.time_remaining() is not None:
                return await inner(request, context)
            try:
                async with asyncio.timeout(self._seconds) as timer:
                    return await inner(request, context)
            except TimeoutError:
                if not timer.expired():
                    raise
                raise DeadlineExceededError(
                    f"the call took longer than {self._seconds:g} s; send a deadline where more is needed"
                ) from None

        return call
