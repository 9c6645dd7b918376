"""The bulk stream of the asyncio client."""
# ruff: noqa: ASYNC109 -- a stream has a wait for each answer; asyncio.timeout around it would bound the whole

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc

from mnemon._bulk import Batch, Batcher, Resumption, StreamBrokenError
from mnemon._channel import Target
from mnemon._errors import DeadlineExceededError, ServerUnreachableError
from mnemon._requests import DocumentLike
from mnemon._status import error_from_call
from mnemon._values import IndexResult
from mnemon.v1 import knowledge_store_pb2 as pb

if TYPE_CHECKING:
    from mnemon.v1.knowledge_store_pb2_grpc import KnowledgeStoreServiceAsyncStub


async def all_batches(
    batcher: Batcher, documents: Iterable[DocumentLike] | AsyncIterable[DocumentLike]
) -> AsyncIterator[Batch]:
    """The batches of all documents, each one as soon as it is full."""
    if not isinstance(documents, AsyncIterable):
        for batch in batcher.all(documents):
            yield batch
        return
    async for document in documents:
        if full := batcher.add(document):
            yield full
    if rest := batcher.rest():
        yield rest


async def index_batches(
    stub: "KnowledgeStoreServiceAsyncStub", target: Target, source: AsyncIterator[Batch], timeout: float | None
) -> AsyncGenerator[IndexResult, None]:
    """Sends batches, a few ahead of the answers, and yields the results in order; resumes when the stream breaks."""
    resumption = Resumption()
    done = False
    while not done:
        stream = _Stream(stub, target, timeout)
        try:
            async with aclosing(_converse(stream, source, resumption)) as results:
                async for result in results:
                    yield result
            await stream.finish()
            done = True
        except StreamBrokenError as broken:
            await asyncio.sleep(resumption.wait_after(broken))
        finally:
            stream.cancel()


async def _converse(
    stream: "_Stream", source: AsyncIterator[Batch], resumption: Resumption
) -> AsyncGenerator[IndexResult, None]:
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
    """One call of IndexDocuments, opened with the first message."""

    def __init__(self, stub: "KnowledgeStoreServiceAsyncStub", target: Target, timeout: float | None) -> None:
        self._stub, self._target, self._timeout = stub, target, timeout
        self._outbox: asyncio.Queue[pb.IndexDocumentsRequest | None] = asyncio.Queue()
        self._call: grpc.aio.StreamStreamCall[pb.IndexDocumentsRequest, pb.IndexDocumentsResponse] | None = None

    def send(self, batch: Batch) -> None:
        """Queues a batch; it never waits, because few are in flight."""
        if (request := batch.request) is None:
            return
        self._outbox.put_nowait(request)
        if self._call is None:
            self._call = self._stub.IndexDocuments(self._requests())

    async def receive(self, batch: Batch) -> pb.IndexDocumentsResponse | None:
        """The answer to the batch; a batch that was not sent has none."""
        if self._call is None or batch.request is None:
            return None
        response = await self._next(self._call)
        if response is None:
            raise StreamBrokenError(ServerUnreachableError(f"{self._target.address} ended the stream early"))
        return response

    async def finish(self) -> None:
        """Ends the stream in order; everything is answered, so that nothing depends on how it ends."""
        if self._call is None:
            return
        self._outbox.put_nowait(None)
        try:
            await self._next(self._call)
        except (StreamBrokenError, DeadlineExceededError):
            return

    def cancel(self) -> None:
        """Ends the stream at once; does nothing to one that has ended."""
        if self._call is not None:
            self._call.cancel()

    async def _requests(self) -> AsyncIterator[pb.IndexDocumentsRequest]:
        while (request := await self._outbox.get()) is not None:
            yield request

    async def _next(
        self, call: "grpc.aio.StreamStreamCall[pb.IndexDocumentsRequest, pb.IndexDocumentsResponse]"
    ) -> pb.IndexDocumentsResponse | None:
        # A deadline on the stream would bound the whole import, so each answer is waited for by itself.
        try:
            async with asyncio.timeout(self._timeout):
                response = await call.read()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"{self._target.address} answered no batch within {self._timeout:g} s"
            ) from error
        except grpc.aio.AioRpcError as error:
            raise StreamBrokenError(error_from_call(error, address=self._target.address)) from error
        return response if isinstance(response, pb.IndexDocumentsResponse) else None
