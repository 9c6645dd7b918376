"""The status with which the server ended an asyncio stream, even if grpcio replaces it.

A message that is being written as the server ends the call fails, and grpcio then says INTERNAL, "Internal error from
Core", instead of what the server said: before the server's status, or over it (https://github.com/grpc/grpc/issues/36066).
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import grpc

_WRITE_FAILED = (grpc.StatusCode.INTERNAL, "Internal error from Core")
_STATUS_WAIT_S = 1.0  # the server's status is on its way already

_T = TypeVar("_T")


class StreamStatus:
    """Listens for the status of one call from its beginning on."""

    def __init__(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        self._told = asyncio.Event()
        self._error: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._note)

    async def error(self, raised: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """The error that the server ended the call with, given the one that was raised.

        Where the server's status never comes, the stream broke, which is UNAVAILABLE: it may be taken up again.
        """
        if not _is_of_a_write(raised.code(), raised.details()):
            return raised
        with suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_WAIT_S):
                await self._told.wait()
        return self._error or _error(grpc.StatusCode.UNAVAILABLE, "the stream ended while a message was written")

    def _note(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        """Called for each status that is set, before the next one takes its place."""
        code, details = _now(call.code()), _now(call.details())
        if self._error is None and code is not grpc.StatusCode.OK and not _is_of_a_write(code, details):
            self._error = _error(code, details, _now(call.trailing_metadata()))
            self._told.set()


def _is_of_a_write(code: grpc.StatusCode, details: str | None) -> bool:
    return (code, details) == _WRITE_FAILED


def _error(
    code: grpc.StatusCode, details: str | None, trailing_metadata: grpc.aio.Metadata | None = None
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing_metadata or grpc.aio.Metadata(), details)


def _now(known: Coroutine[Any, Any, _T]) -> _T:
    """Returns the result of a coroutine that never waits, such as one for the status of an ended call."""
    try:
        known.send(None)
    except StopIteration as returned:
        value: _T = returned.value
        return value
    known.close()
    raise RuntimeError("the call has ended, and its status is not known")
