"""The bulk stream of the blocking client."""

import threading
from collections.abc import Generator, Iterable, Iterator
from queue import SimpleQueue

import grpc

from mnemon._bulk import Batch, Resumption, StreamBrokenError
from mnemon._channel import Target
from mnemon._errors import DeadlineExceededError, ServerUnreachableError
from mnemon._status import error_from_call
from mnemon._values import IndexResult
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1.knowledge_store_pb2_grpc import KnowledgeStoreServiceStub


def index_batches(
    stub: KnowledgeStoreServiceStub, target: Target, batches: Iterable[Batch], timeout: float | None
) -> Generator[IndexResult, None, None]:
    """Sends batches, a few ahead of the answers, and yields the results in order; resumes when the stream breaks."""
    source = iter(batches)
    resumption = Resumption()
    done = threading.Event()
    while not done.is_set():
        stream = _Stream(stub, target, timeout)
        try:
            yield from _converse(stream, source, resumption)
            stream.finish()
            done.set()
        except StreamBrokenError as broken:
            done.wait(resumption.wait_after(broken))
        finally:
            stream.cancel()


def _converse(stream: "_Stream", source: Iterator[Batch], resumption: Resumption) -> Iterator[IndexResult]:
    for batch in resumption.pending:
        stream.send(batch)
    while True:
        while resumption.has_room and (following := next(source, None)):
            resumption.pending.append(following)
            stream.send(following)
        if not resumption.pending:
            return
        response = stream.receive(resumption.pending[0])
        yield from resumption.answered().results(response)


class _Stream:
    """One call of IndexDocuments, opened with the first message."""

    def __init__(self, stub: KnowledgeStoreServiceStub, target: Target, timeout: float | None) -> None:
        self._stub, self._target, self._timeout = stub, target, timeout
        self._outbox: SimpleQueue[pb.IndexDocumentsRequest | None] = SimpleQueue()
        self._call: grpc._CallIterator[pb.IndexDocumentsResponse] | None = None
        self._stalled = False

    def send(self, batch: Batch) -> None:
        """Queues a batch; it never waits, because few are in flight."""
        if (request := batch.request) is None:
            return
        self._outbox.put(request)
        if self._call is None:
            # gRPC reads this iterator on a thread of its own, the caller's documents are read on the caller's.
            self._call = self._stub.IndexDocuments(iter(self._outbox.get, None))

    def receive(self, batch: Batch) -> pb.IndexDocumentsResponse | None:
        """The answer to the batch; a batch that was not sent has none."""
        if self._call is None or batch.request is None:
            return None
        response = self._next(self._call)
        if response is None:
            raise StreamBrokenError(ServerUnreachableError(f"{self._target.address} ended the stream early"))
        return response

    def finish(self) -> None:
        """Ends the stream in order; everything is answered, so that nothing depends on how it ends."""
        if self._call is None:
            return
        self._outbox.put(None)
        try:
            self._next(self._call)
        except (StreamBrokenError, DeadlineExceededError):
            return

    def cancel(self) -> None:
        """Ends the stream at once; does nothing to one that has ended."""
        self._outbox.put(None)
        if self._call is not None:
            self._call.cancel()

    def _next(self, call: "grpc._CallIterator[pb.IndexDocumentsResponse]") -> pb.IndexDocumentsResponse | None:
        # A deadline on the stream would bound the whole import, so a watchdog bounds the wait for each answer.
        watchdog = threading.Timer(self._timeout, self._stall, [call]) if self._timeout is not None else None
        try:
            if watchdog:
                watchdog.daemon = True
                watchdog.start()
            return next(call, None)
        except grpc.RpcError as error:
            if self._stalled:
                raise DeadlineExceededError(
                    f"{self._target.address} answered no batch within {self._timeout:g} s"
                ) from error
            raise StreamBrokenError(error_from_call(error, address=self._target.address)) from error
        finally:
            if watchdog:
                watchdog.cancel()

    def _stall(self, call: "grpc._CallIterator[pb.IndexDocumentsResponse]") -> None:
        self._stalled = True
        call.cancel()
