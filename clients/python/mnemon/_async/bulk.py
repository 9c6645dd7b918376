"""The bulk stream of the asyncio client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from mnemon._bulk import Batch, Batcher, BulkMethod, Resumption
from mnemon._channel import Target
from mnemon._status import StreamLostError, error_from_call
from mnemon._stream_status import StreamStatus
from mnemon.shared.errors import DeadlineExceededError, ServerUnreachableError

StreamMethod: TypeAlias = "grpc.aio.StreamStreamMultiCallable[Any, Any]"
"""A method of a stub that streams in both directions."""

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def send_all(
    target: Target,
    method: Callable[[], StreamMethod],
    bulk: BulkMethod[_Given, _Result],
    items: Iterable[_Given] | AsyncIterable[_Given],
    timeout: float | None,
) -> AsyncGenerator[_Result, None]:
    """Sends items in batches, a few ahead of the answers, and yields one result for each, in order.

    It resumes when the stream breaks. `method` opens no channel before the first result is asked for.
    """
    return _send_batches(method, target, _batches(Batcher(bulk), items), target.time_limit(timeout))


async def each_of(items: Iterable[_Given] | AsyncIterable[_Given]) -> AsyncIterator[_Given]:
    """The items, which may come from a plain iterable."""
    if isinstance(items, AsyncIterable):
        async for given in items:
            yield given
        return
    for given in items:
        yield given


async def _batches(
    batcher: Batcher[_Given, _Result], items: Iterable[_Given] | AsyncIterable[_Given]
) -> AsyncIterator[Batch[_Result]]:
    async for given in each_of(items):
        if full := batcher.add(given):
            yield full
    if rest := batcher.rest():
        yield rest


async def _send_batches(
    method: Callable[[], StreamMethod], target: Target, source: AsyncIterator[Batch[_Result]], timeout: float | None
) -> AsyncGenerator[_Result, None]:
    resumption: Resumption[_Result] = Resumption(timeout, target.credential)
    opened = method()
    done = False
    while not done:
        await target.credential.renew_async()
        stream = _Stream(opened, target, timeout)
        try:
            async with aclosing(_converse(stream, source, resumption)) as results:
                async for result in results:
                    yield result
            await stream.finish()
            done = True
        except StreamLostError as broken:
            await asyncio.sleep(resumption.wait_after(broken))
        finally:
            stream.cancel()


async def _converse(
    stream: "_Stream", source: AsyncIterator[Batch[_Result]], resumption: Resumption[_Result]
) -> AsyncGenerator[_Result, None]:
    for batch in resumption.pending:
        stream.send(batch)
    while True:
        while resumption.has_room and (following := await anext(source, None)):
            resumption.pending.append(following)
            stream.send(following)
        if not resumption.pending:
            return
        response = await stream.receive(resumption.pending[0])
        for result in resumption.answered().results(response):
            yield result


class _Stream:
    """One call of a bulk method, opened with the first message."""

    def __init__(self, method: StreamMethod, target: Target, timeout: float | None) -> None:
        self._method, self._target, self._timeout = method, target, timeout
        self._outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self._call: grpc.aio.StreamStreamCall[Any, Any] | None = None
        self._status: StreamStatus | None = None

    def send(self, batch: Batch[Any]) -> None:
        """Queues a batch; it never waits, because few are in flight."""
        if (request := batch.request) is None:
            return
        self._outbox.put_nowait(request)
        if self._call is None:
            self._call = self._method(self._requests())
            self._status = StreamStatus(self._call)

    async def receive(self, batch: Batch[Any]) -> Message | None:
        """The answer to the batch; None if the batch was not sent."""
        if self._call is None or batch.request is None:
            return None
        response = await self._next(self._call)
        if response is None:
            raise StreamLostError(ServerUnreachableError(f"{self._target.address} ended the stream early"))
        return response

    async def finish(self) -> None:
        """Ends the stream in order. Everything is answered, so an error no longer matters."""
        if self._call is None:
            return
        self._outbox.put_nowait(None)
        try:
            await self._next(self._call)
        except (StreamLostError, DeadlineExceededError):
            return

    def cancel(self) -> None:
        """Ends the stream at once. Does nothing if it has ended."""
        if self._call is not None:
            self._call.cancel()
            self._outbox.put_nowait(None)  # otherwise the task that reads it would wait forever

    async def _requests(self) -> AsyncIterator[Message]:
        while (request := await self._outbox.get()) is not None:
            yield request

    async def _next(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> Message | None:
        # A deadline on the stream would limit the whole import, so each answer has its own.
        try:
            async with asyncio.timeout(self._timeout):
                response = await call.read()
        except TimeoutError as late:
            raise DeadlineExceededError(
                f"{self._target.address} answered no batch within {self._timeout:g} s"
            ) from late
        except grpc.aio.AioRpcError as raised:
            error = await self._status.error(raised) if self._status else raised
            raise StreamLostError(error_from_call(error, address=self._target.address)) from raised
        return response if isinstance(response, Message) else None
