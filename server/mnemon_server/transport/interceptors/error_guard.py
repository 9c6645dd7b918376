"""Errors become statuses here; what a client must not read stays in the log, under an incident id."""

import asyncio
from traceback import clear_frames
from typing import Any

from grpc import aio

from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.abort import abort
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single


class ErrorGuard(MethodInterceptor):
    """Ends a call whose handler raised with the status of the error. Streams arrive here as calls, see StreamWriter."""

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Translates errors."""

        async def call(request: Any, context: Context) -> Any:
            try:
                return await inner(request, context)
            except (aio.AbortError, asyncio.CancelledError):
                # Already a status, or no one waits for one. Swallowing a cancellation would leak the call's memory.
                raise
            except Exception as error:  # noqa: BLE001 - this is the one place that catches everything
                failure = report(error)
                # One that was kept in a variable before it was raised is in a cycle with its frame and what that holds.
                clear_frames(error.__traceback__)
            return await abort(context, failure)

        return call

    def wrap_stream(self, method: Method, inner: Any) -> Single:
        """Translates errors; the stream is already written by a coroutine."""
        return self.wrap_single(method, inner)
