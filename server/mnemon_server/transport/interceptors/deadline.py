"""Gives a deadline to a single call whose client sets none."""

from typing import Any

from mnemon_server.transport.interceptors.base import Answer, Exchange
from mnemon_server.transport.interceptors.time_limit import TimeLimit


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
