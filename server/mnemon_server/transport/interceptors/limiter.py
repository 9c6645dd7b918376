"""Limits concurrent calls: further ones are refused with a hint, rather than queued without bound."""

from typing import Any

from mnemon_server.services.shared.budget import SharedBudget
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single, current_call


class Limiter(MethodInterceptor):
    """Separate budgets for single calls and for streams; health and reflection are exempt.

    Callers share each budget: one that wants all of it leaves room for the others. Without authentication, a connection
    counts as a caller. The runtime's own limit also
    counts health checks, so that a busy server would be taken for a dead one.
    """

    def __init__(self, *, unary_calls_max: int, streams_max: int) -> None:
        super().__init__()
        self._calls = SharedBudget(unary_calls_max, "calls")
        self._streams = SharedBudget(streams_max, "streams")

    @property
    def calls_in_work(self) -> int:
        """Single calls that are not answered yet."""
        return self._calls.used

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Counts the call; one with a stream of requests is a stream."""
        if method.exempt:
            return inner
        return _counted(self._streams if method.handler.request_streaming else self._calls, inner)

    def wrap_stream(self, method: Method, inner: Any) -> Single:
        """Counts the stream, which is already written by a coroutine, until its last message has been read."""
        if method.exempt:
            return inner  # type: ignore[no-any-return]
        return _counted(self._streams, inner)


def _counted(budget: SharedBudget, inner: Single) -> Single:
    async def call(request: Any, context: Context) -> Any:
        holder = current_call.get().holder
        budget.take(holder)
        try:
            return await inner(request, context)
        finally:
            budget.give_back(holder)

    return call
