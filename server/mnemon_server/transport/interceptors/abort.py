"""Ends a call with the status of a failure."""

import asyncio
from traceback import clear_frames
from typing import NoReturn

from grpc import aio

from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Exchange, Trailers, current_call
from mnemon_server.transport.status import Failure


def failure_of(error: Exception) -> Failure:
    """The failure that a handler's error is reported as. Frees what its frames hold.

    What a client must not read stays in the log, under an incident id.
    """
    failure = report(error)
    # One that was kept in a variable before it was raised is in a cycle with its frame and what that holds.
    clear_frames(error.__traceback__)
    return failure


async def abort(context: Exchange, failure: Failure) -> NoReturn:
    """Sends the status and raises AbortError, or CancelledError if the client has left meanwhile.

    Waits until the status is on its way. Behind a message that the client does not read, that can take until the
    client leaves.

    Call it outside of `except`. The runtime keeps the AbortError with its call, and that would keep the error that it
    came after, with its frames.
    """
    call = current_call.get()
    call.reason, call.incident_id = failure.reason, failure.incident_id
    if context.cancelled() or context.done():
        raise asyncio.CancelledError
    trailers: Trailers = (*call.trailers, *failure.trailers())
    try:
        await context.abort(failure.code, failure.message, trailers)
    except aio.BaseError as ended:
        if isinstance(ended, aio.AbortError):
            raise
        raise asyncio.CancelledError from ended
