"""Only so many calls are in work at once; more are refused with a hint rather than queued without bound."""

from types import TracebackType
from typing import Any

from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single

_RETRY_AFTER_S = 0.5


class Budget:
    """A number of slots."""

    def __init__(self, size: int, what: str) -> None:
        self._size, self._what = size, what
        self.used = 0

    def __enter__(self) -> None:
        """Takes a slot for the length of a block.

        Raises:
            TooManyRequestsError: none is free.
        """
        if self.used >= self._size:
            raise TooManyRequestsError(f"{self._size} {self._what} are already in work", _RETRY_AFTER_S)
        self.used += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.used -= 1


class Limiter(MethodInterceptor):
    """Separate budgets for single calls and for streams; health and reflection need none.

    The runtime's own limit counts health checks too, so that a busy server would be taken for a dead one.
    """

    def __init__(self, *, unary_calls_max: int, streams_max: int) -> None:
        super().__init__()
        self._calls = Budget(unary_calls_max, "calls")
        self._streams = Budget(streams_max, "streams")

    @property
    def calls_in_work(self) -> int:
        """Single calls that are not answered yet."""
        return self._calls.used

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Counts the call; one with a stream of requests is a stream."""
        if method.exempt:
            return inner
        budget = self._streams if method.handler.request_streaming else self._calls

        async def call(request: Any, context: Context) -> Any:
            with budget:
                return await inner(request, context)

        return call

    def wrap_stream(self, method: Method, inner: Any) -> Single:
        """Counts the stream, which is already written by a coroutine: until its last word has been taken."""
        if method.exempt:
            return inner  # type: ignore[no-any-return]
        budget = self._streams

        async def call(request: Any, context: Context) -> None:
            with budget:
                await inner(request, context)

        return call
