"""One call over HTTP, as the steps around a method see it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import grpc
from google.protobuf.message import Message
from grpc import aio

from mnemon_server.domain.errors import NotServingError
from mnemon_server.transport.conversions import Conversions
from mnemon_server.transport.errors import DeadlineExceededError
from mnemon_server.transport.http.forms import HTTP_STATUSES, JSON_ERROR, Form, Status
from mnemon_server.transport.http.intake import CURSOR, Intake
from mnemon_server.transport.http.json_writer import dumped, text_of
from mnemon_server.transport.http.request import Request
from mnemon_server.transport.interceptors.base import REQUEST_ID_KEY, Answer, Trailers
from mnemon_server.transport.status import Failure

PIECE_BYTES = 64 << 10
"""The part of an answer that is written at once."""


class Kinds(NamedTuple):
    """The messages of a method; None if no descriptor says them."""

    request: type[Message] | None = None
    response: type[Message] | None = None


class HttpExchange:
    """Reads the request as protobuf, whatever its form is, and writes answers in that form."""

    def __init__(
        self,
        request: Request,
        form: Form,
        kinds: Kinds,
        *,
        headers: Iterable[tuple[str, str]],
        intake: Intake,
        conversions: Conversions,
        write_timeout_s: float,
    ) -> None:
        """Has not begun. `headers` are in every answer; a client may leave one unread for `write_timeout_s`."""
        self._request = request
        self._form = form
        self._kinds = kinds
        self._headers = list(headers)
        self._intake, self._convert = intake, conversions
        self._write_timeout_s = write_timeout_s
        self._status = Status()
        self._trailers: Trailers = ()
        self._deadline: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._is_read = self._started = self._ended = self._left = False

    async def run(self, behaviour: Answer, *, streams: bool, timeout_s: float | None) -> None:
        """Answers the call, whatever happens. Returns once the answer is on its way."""
        loop = asyncio.get_running_loop()
        self._task, connection = asyncio.current_task(loop), self._request.connection
        self._deadline = None if timeout_s is None else loop.time() + timeout_s
        connection.on_lost = self._leave
        try:
            async with asyncio.timeout_at(self._deadline):
                answer = await behaviour(None, self)
                await (self._end() if streams else self._answer(answer))
        except aio.AbortError:
            pass  # Its status is on its way.
        except TimeoutError:
            await self.fail(DeadlineExceededError("the deadline of the client has passed"))
        except asyncio.CancelledError:
            # Else, the server ends.
            if not self._left:
                await self.fail(NotServingError("the server is shutting down"))
        finally:
            connection.on_lost = None
            self._ended = True
            for callback in self._callbacks:
                callback(self)

    def peer(self) -> str:
        """The address of the client."""
        return self._request.connection.peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The client's certificate."""
        return self._request.connection.auth_context

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline."""
        return None if self._deadline is None else self._deadline - asyncio.get_running_loop().time()

    async def read(self) -> Any:
        """The one request as protobuf, then the end."""
        if self._is_read:
            return aio.EOF
        self._is_read = True
        return await self._intake.receive(self._request, self._form, self._kinds.request)

    async def write(self, message: bytes, /) -> None:
        """Writes one of several answers, and waits until the client has taken most of it."""
        part = await self._rendered(message)
        await self._start(200, self._form)
        await self._write(part)

    def set_trailing_metadata(self, trailing_metadata: Any, /) -> None:
        """Sets what follows the answer, or precedes it."""
        self._trailers = tuple(trailing_metadata)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call with this status. Raises AbortError."""
        self._status = Status(code, details, tuple(trailing_metadata))
        self._trailers = self._status.trailers
        await self._end()
        raise aio.AbortError(details)

    def code(self) -> Any:
        """The status."""
        return self._status.code

    def cancelled(self) -> bool:
        """Whether the client has left."""
        return self._left

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._left or self._ended

    def add_done_callback(self, callback: Any, /) -> None:
        """Calls `callback` with this once the call has ended."""
        self._callbacks.append(callback)

    def _leave(self) -> None:
        self._left = True
        if self._task is not None:
            self._task.cancel()

    async def _rendered(self, data: bytes) -> bytes:
        """A message of the answer in the form of the call."""
        kind, form = self._kinds.response, self._form
        if not form.is_json or kind is None:
            return form.message(data, "")
        return form.message(*await self._convert(len(data), _json, kind, data))

    async def _answer(self, data: bytes) -> None:
        """Writes the only answer."""
        part = await self._rendered(data) + self._form.end(Status(trailers=self._trailers))
        await self._respond(200, self._form, part)

    async def _end(self) -> None:
        """Writes the status, as HTTP's if nothing has been written."""
        status = Status(self._status.code, self._status.message, self._trailers)
        if self._started or status.is_ok or self._form.always_ok:
            await self._start(200, self._form)
            await self._write_in_time(b"")
            await self._send(self._form.end(status), more=False)
            return
        self._headers += status.headers()
        text = dumped(status.error())
        await self._respond(HTTP_STATUSES[status.code], JSON_ERROR, text)

    async def fail(self, error: Exception) -> None:
        """Ends the call with an error of which the pipeline does not know."""
        if not self._ended:
            failure = Failure.of(error)
            ids = tuple(pair for pair in self._trailers if pair[0] == REQUEST_ID_KEY)
            self._status = Status(failure.code, failure.message)
            self._trailers = (*ids, *failure.trailers())
            await self._end()

    async def _respond(self, code: int, form: Form, body: bytes) -> None:
        """Writes a whole answer, and waits until the client has taken most of it."""
        await self._start(code, form, length=len(body))
        # The status has left. What fails from now on cuts the body off, and must not write into it.
        self._ended = True
        await self._write_in_time(body)
        await self._send(b"", more=False)

    async def _write_in_time(self, body: bytes) -> None:
        """Writes, and waits until the client has taken most of it; cuts off one that does not read."""
        connection = self._request.connection
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await self._write(body)
        except TimeoutError:
            connection.transport.abort()
            await connection.lost.wait()

    async def _write(self, body: bytes) -> None:
        """Writes in pieces; uvicorn waits after each. Of an answer that is not read, only the first are copied."""
        for start in range(0, len(body), PIECE_BYTES):
            await self._send(body[start : start + PIECE_BYTES], more=True)
        await self._request.connection.flow.drain()

    async def _start(self, code: int, form: Form, *, length: int | None = None) -> None:
        if self._started:
            return
        self._started = True
        headers = [("content-type", form.content_type), *self._headers]
        headers += [(key, value) for key, value in self._trailers if isinstance(value, str)]
        if length is None:
            # A proxy must not collect a stream.
            headers += [("cache-control", "no-store"), ("x-accel-buffering", "no")]
        else:
            headers.append(("content-length", str(length)))
        await self._request.send(
            {
                "type": "http.response.start",
                "status": code,
                "headers": [(key.encode("latin-1"), value.encode("latin-1", "replace")) for key, value in headers],
            }
        )

    async def _send(self, body: bytes, *, more: bool) -> None:
        self._ended = self._ended or not more
        await self._request.send({"type": "http.response.body", "body": body, "more_body": more})


def _json(kind: type[Message], data: bytes) -> tuple[bytes, str]:
    """A message as JSON text, and its position in a feed, if it has one."""
    message = kind.FromString(data)
    return text_of(message), getattr(message, CURSOR, "")
