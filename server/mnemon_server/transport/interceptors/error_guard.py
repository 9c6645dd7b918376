"""Errors become statuses here: what no client may read stays in the log, under an incident id."""

import asyncio
from typing import Any, NoReturn

from grpc import aio

from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import (
    REQUEST_ID_KEY,
    Context,
    Method,
    MethodInterceptor,
    Single,
    current_call,
)

Trailers = tuple[tuple[str, str | bytes], ...]


class ErrorGuard(MethodInterceptor):
    """Ends a call whose handler raised with the status of the error. Streams arrive here as calls, see StreamWriter."""

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Translates errors."""

        async def call(request: Any, context: Context) -> Any:
            try:
                return await inner(request, context)
            except (aio.AbortError, asyncio.CancelledError):
                # Already a status, or nobody to tell. Swallowing a cancellation would leak the call's native memory.
                raise
            except Exception as error:  # noqa: BLE001 - this is the one place that catches everything
                await _abort(context, error)

        return call

    def wrap_stream(self, method: Method, inner: Any) -> Single:
        """Translates errors; the stream is already written by a coroutine."""
        return self.wrap_single(method, inner)


async def _abort(context: Context, error: Exception) -> NoReturn:
    failure = report(error)
    call = current_call.get()
    call.reason, call.incident_id = failure.reason, failure.incident_id
    if context.cancelled() or context.done():
        raise asyncio.CancelledError
    trailers: Trailers = ((REQUEST_ID_KEY, call.request_id), *failure.trailers())
    await context.abort(failure.code, failure.message, trailers)
