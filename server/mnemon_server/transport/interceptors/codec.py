"""Messages are received, read and written here rather than in the runtime, so that a bad one is an ordinary error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message
from grpc import aio

from mnemon_server.transport.conversions import AT_ONCE_BYTES, Conversions
from mnemon_server.transport.convert.shared.counts import cut
from mnemon_server.transport.convert.shared.slices import merge
from mnemon_server.transport.errors import MalformedMessageError, MessageTooLargeError
from mnemon_server.transport.interceptors.audit import NO_IDS, IdReaders
from mnemon_server.transport.interceptors.base import Answer, Exchange, Method, Single, Stream, current_call
from mnemon_server.transport.interceptors.time_limit import TimeLimit
from mnemon_server.transport.interceptors.turns import Turns
from mnemon_server.transport.metrics.call_figures import CallFigures, Traffic

Parse = Callable[[bytes], Any]
Encoded: TypeAlias = Any
"""The bytes of an answer, sent as they are. Not `bytes`, since the generated base classes only know messages."""


class Codec:
    """The innermost step: handlers see messages, everything around them sees bytes.

    If the runtime did this, bytes that are not a message would end as UNKNOWN with the text of an exception, and an
    answer that is too large as an error without a reason.
    """

    def __init__(self, *, message_bytes_max: int, conversions: Conversions, figures: CallFigures | None = None) -> None:
        self._message_bytes_max = message_bytes_max
        self.conversions = conversions
        self._figures = figures

    def single(self, method: Method, inner: Single, ids: IdReaders = NO_IDS) -> Answer:
        """Reads the request, writes the response. With `ids`, the call gets those that they name.

        A response whose type has ids must be a message, not bytes.
        """
        read, write = self._reader(method), self._writer(method)
        of_request, of_answer = ids

        async def call(request: Any, context: Exchange) -> bytes:
            return write(await inner(await read(request), context))

        async def audited_call(request: Any, context: Exchange) -> bytes:
            message = await read(request)
            if of_request is not None:
                current_call.get().records = of_request(message)
            response = await inner(message, context)
            if of_answer is not None:
                current_call.get().records += of_answer(response)
            return write(response)

        return audited_call if of_request or of_answer else call

    def stream(self, method: Method, inner: Stream) -> Stream:
        """Reads the request, writes each response."""
        read, write = self._reader(method), self._writer(method)
        figures = self._figures.of(method) if self._figures else None
        sent = figures.sent if figures else None

        async def call(request: Any, context: Exchange) -> AsyncIterator[bytes]:
            async for response in inner(await read(request), context):
                data = write(response)
                if sent is not None:
                    sent.note(len(data))
                yield data
                del response, data  # See `StreamWriter`.

        return call

    def _reader(self, method: Method) -> Callable[[Any], Awaitable[Any]]:
        parse: Parse = method.handler.request_deserializer or bytes
        convert = self.conversions

        async def read(data: bytes) -> Any:
            self._check_size(len(data), "the request")
            current_call.get().request_bytes = len(data)
            try:
                return parse(data) if len(data) <= AT_ONCE_BYTES else await convert(len(data), _read_large, parse, data)
            except DecodeError:
                raise MalformedMessageError(f"the bytes are not a request of {method.path}") from None

        figures = self._figures.of(method) if self._figures else None
        received = figures.received if figures else None

        async def read_each(messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            return _each(read, messages, received)

        return read_each if method.handler.request_streaming else read

    def _writer(self, method: Method) -> Callable[[Any], bytes]:
        serialize = method.handler.response_serializer or bytes

        def write(response: Any) -> bytes:
            data: bytes = response if isinstance(response, bytes) else serialize(response)
            self._check_size(len(data), "the answer")
            return data

        return write

    def _check_size(self, size: int, what: str) -> None:
        if size > self._message_bytes_max:
            raise MessageTooLargeError(
                f"{what} has {size:,} bytes, more than the {self._message_bytes_max:,} that this server allows; "
                "ask in smaller parts, or for a view with less"
            )


def _read_large(parse: Parse, data: bytes) -> Any:
    """Reads a message in slices, between which other threads run, and without what its lists have too many of."""
    message = parse(b"")
    if not isinstance(message, Message):
        return parse(data)
    merge(message, data)
    cut(message)
    return message


async def _each(
    read: Callable[[bytes], Awaitable[Any]], messages: AsyncIterator[bytes], received: Traffic | None
) -> AsyncIterator[Any]:
    async for data in messages:
        if received is not None:
            received.note(len(data))
        yield await read(data)
        del data  # See `StreamWriter`.


LATE_MAX, LATE_S = 64, 1.0
"""How many requests at once may take longer than a second to arrive: each can take as much memory as a message may."""


class Receiver:
    """Receives the one request of a call, which to the runtime is a stream of requests.

    A request that does not arrive in time ends its call; until then, the call takes no slot of the limits.
    """

    def __init__(self, *, seconds: float) -> None:
        self._limit = TimeLimit(seconds, crowd=LATE_MAX, crowded_s=LATE_S)
        self._turns = Turns()
        self._late = f"the request did not arrive within {seconds:g} s"

    async def receive(self, context: Exchange) -> bytes:
        """Waits for the turn of the call, and for its request."""
        call = current_call.get()
        call.awaits_request = True
        if (turn := self._turns.take(call.connection)) is not None:
            await turn
        try:
            with self._limit.watch(self._late):
                request = await context.read()
        except aio.BaseError as ended:  # The client has left, or the server is stopping.
            raise asyncio.CancelledError from ended
        if request is aio.EOF:
            raise MalformedMessageError("the call has no request")
        call.awaits_request = False
        data: bytes = request
        return data
