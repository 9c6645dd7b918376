"""Writes streams of responses: a slow reader cannot stall one for ever, and a shutdown ends them all."""

import asyncio
from contextlib import aclosing
from typing import Any

from grpc import aio

from mnemon_server.domain.errors import NotServingError
from mnemon_server.services.background.offload import LARGE_BYTES
from mnemon_server.services.limits.outbox import Outbox, Sending, SlowReaderError
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.abort import abort
from mnemon_server.transport.interceptors.base import Answer, Exchange, Method, Stream, current_call
from mnemon_server.transport.interceptors.turns import Turns


class StreamWriter:
    """Turns async generators into coroutines that write.

    A client that stops reading fills the windows of the transport. Then the write blocks, and without the timeout it
    would block for ever. Health streams end by themselves at a shutdown, after a last message.

    A stream that waits for its next message must not hold the last one. So whatever loops over messages deletes each:
    the loop's variable would keep it until the next one comes.

    What is unread is counted in the outbox until the client has taken it or has left: the runtime keeps it even once
    the stream has been ended, since the status waits behind it.
    """

    def __init__(self, *, write_timeout_s: float, outbox: Outbox, large: Turns) -> None:
        self._write_timeout_s = write_timeout_s
        self._outbox = outbox
        self._large = large
        self._open: set[asyncio.Task[Any]] = set()
        self._ending = False

    @property
    def open_count(self) -> int:
        """Open streams, except for those that only wait for the client to read the last message."""
        return len(self._open)

    def is_ending(self) -> bool:
        """Whether `end_all` was called."""
        return self._ending

    def end_all(self) -> None:
        """Ends every open stream, and every later one at once, with UNAVAILABLE."""
        self._ending = True
        for task in self._open:
            task.cancel()

    def answer(self, method: Method, inner: Stream) -> Answer:
        """Writes what the generator yields, and aborts by itself: a slot is free only once the status has been sent."""

        async def call(request: Any, context: Exchange) -> None:
            write = self._write if method.ends_itself else self._write_until_shutdown
            record = current_call.get()
            sending = record.sending = Sending(self._outbox, record.holder, record.account)
            try:
                try:
                    await write(inner, request, context, sending)
                except (SlowReaderError, NotServingError) as error:
                    failure = report(error)
                else:
                    return
                await abort(context, failure)
            finally:
                sending.clear()

        return call

    async def _write_until_shutdown(self, inner: Stream, request: Any, context: Exchange, sending: Sending) -> None:
        if self.is_ending():
            raise NotServingError("the server is shutting down")
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler always runs in a task
        self._open.add(task)
        try:
            await self._write(inner, request, context, sending)
        except asyncio.CancelledError:
            if not self.is_ending() or context.cancelled():
                raise
            task.uncancel()
            raise NotServingError("the server is shutting down") from None
        finally:
            self._open.discard(task)

    async def _write(self, inner: Stream, request: Any, context: Exchange, sending: Sending) -> None:
        async with aclosing(inner(request, context)) as messages:  # type: ignore[type-var]
            async for message in messages:
                if not sending.fits(len(message)):
                    await sending.wait(len(message))
                if len(message) > LARGE_BYTES and (turn := self._large.take("")) is not None:
                    await turn
                try:
                    async with asyncio.timeout(self._write_timeout_s):
                        await context.write(message)
                except TimeoutError:
                    raise SlowReaderError(
                        f"a message was left unread for {self._write_timeout_s:g} s; read faster, or ask for less"
                    ) from None
                except aio.InternalError:
                    # A write fails if the call has ended. The runtime then also cancels this task, usually later. If it
                    # does not, the client still waits for the stream, and the failure is an error of the server.
                    await asyncio.sleep(self._write_timeout_s)
                    raise
                sending.clear()
                # Otherwise it would be kept until there is a next one.
                del message
