"""Gives a deadline to a single call whose client sets none."""

from typing import Any

from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single
from mnemon_server.transport.interceptors.time_limit import TimeLimit


class DefaultDeadline(MethodInterceptor):
    """Cancels a handler after the default time. With a client's deadline the runtime does that."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._limit = TimeLimit(seconds)

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Limits the time, except for streams of requests: a long upload is not a fault."""
        if method.handler.request_streaming:
            return inner
        late = f"the call took longer than {self._limit.seconds:g} s; send a deadline if it needs more"

        async def call(request: Any, context: Context) -> Any:
            if context.time_remaining() is not None:
                return await inner(request, context)
            with self._limit.watch(late):
                return await inner(request, context)

        return call
