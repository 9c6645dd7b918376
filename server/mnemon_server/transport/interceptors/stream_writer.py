"""Streams of responses are written here: no reader may stall one for ever, and a shutdown ends them all."""

import asyncio
from contextlib import aclosing
from typing import Any

from mnemon_server.domain.errors import NotServingError
from mnemon_server.transport.errors import SlowReaderError
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, Single, Stream


class StreamWriter(MethodInterceptor):
    """Turns async generators into coroutines that write.

    A client that stops reading holds a few megabytes in the transport, and then the write blocks: for ever, were it
    not for the timeout. Health streams end by themselves at a shutdown, after a last message.
    """

    def __init__(self, *, write_timeout_s: float) -> None:
        super().__init__()
        self._write_timeout_s = write_timeout_s
        self._open: set[asyncio.Task[Any]] = set()
        self._ending = False

    @property
    def open_count(self) -> int:
        """Streams in work that a shutdown has to end."""
        return len(self._open)

    def end_all(self) -> None:
        """Ends every open stream, and every later one at once, with UNAVAILABLE."""
        self._ending = True
        for task in self._open:
            task.cancel()

    def wrap_stream(self, method: Method, inner: Stream) -> Single:
        """Writes what the generator yields."""

        async def write_all(request: Any, context: Context) -> None:
            async with aclosing(inner(request, context)) as messages:  # type: ignore[type-var]
                async for message in messages:
                    try:
                        async with asyncio.timeout(self._write_timeout_s):
                            await context.write(message)
                    except TimeoutError:
                        raise SlowReaderError(
                            f"a message was left unread for {self._write_timeout_s:g} s; read faster, or ask for less"
                        ) from None

        async def write_until_shutdown(request: Any, context: Context) -> None:
            if self._is_ending():
                raise NotServingError("the server is shutting down")
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a handler always runs in a task
            self._open.add(task)
            try:
                await write_all(request, context)
            except asyncio.CancelledError:
                if not self._is_ending() or context.cancelled():
                    raise
                task.uncancel()
                raise NotServingError("the server is shutting down") from None
            finally:
                self._open.discard(task)

        return write_all if method.ends_itself else write_until_shutdown

    def _is_ending(self) -> bool:
        return self._ending
