"""The bulk stream of the blocking client."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from mnemon._bulk import Batch, Batcher, BulkMethod, Resumption
from mnemon._channel import Target
from mnemon._status import StreamLostError, error_from_call
from mnemon.shared.errors import DeadlineExceededError, ServerUnreachableError

StreamMethod: TypeAlias = "grpc.StreamStreamMultiCallable[Any, Any]"
"""A method of a stub that streams in both directions."""

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def send_all(
    target: Target,
    method: Callable[[], StreamMethod],
    bulk: BulkMethod[_Given, _Result],
    items: Iterable[_Given],
    timeout: float | None,
) -> Generator[_Result, None, None]:
    """Sends items in batches, a few ahead of the answers, and yields one result for each, in order.

    It resumes when the stream breaks. `method` opens no channel before the first result is asked for.
    """
    return _send_batches(method, target, Batcher(bulk).all(items), target.time_limit(timeout))


def each_of(items: Iterable[_Given]) -> Iterable[_Given]:
    """The items; the asyncio client's counterpart takes async iterables, too."""
    return items


def _send_batches(
    method: Callable[[], StreamMethod], target: Target, source: Iterator[Batch[_Result]], timeout: float | None
) -> Generator[_Result, None, None]:
    resumption: Resumption[_Result] = Resumption(timeout, target.credential)
    opened = method()
    done = threading.Event()
    while not done.is_set():
        target.credential.renew()
        stream = _Stream(opened, target, timeout)
        try:
            yield from _converse(stream, source, resumption)
            stream.finish()
            done.set()
        except StreamLostError as broken:
            done.wait(resumption.wait_after(broken))
        finally:
            stream.cancel()


def _converse(
    stream: "_Stream", source: Iterator[Batch[_Result]], resumption: Resumption[_Result]
) -> Iterator[_Result]:
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
    """One call of a bulk method, opened with the first message."""

    def __init__(self, method: StreamMethod, target: Target, timeout: float | None) -> None:
        self._method, self._target, self._timeout = method, target, timeout
        self._outbox: SimpleQueue[Message | None] = SimpleQueue()
        self._call: grpc._CallIterator[Message] | None = None
        self._stalled = False

    def send(self, batch: Batch[Any]) -> None:
        """Queues a batch; it never waits, because few are in flight."""
        if (request := batch.request) is None:
            return
        self._outbox.put(request)
        if self._call is None:
            # gRPC reads this iterator on a thread of its own, the caller's items are read on the caller's.
            self._call = self._method(iter(self._outbox.get, None))

    def receive(self, batch: Batch[Any]) -> Message | None:
        """The answer to the batch; None if the batch was not sent."""
        if self._call is None or batch.request is None:
            return None
        response = self._next(self._call)
        if response is None:
            raise StreamLostError(ServerUnreachableError(f"{self._target.address} ended the stream early"))
        return response

    def finish(self) -> None:
        """Ends the stream in order. Everything is answered, so an error no longer matters."""
        if self._call is None:
            return
        self._outbox.put(None)
        try:
            self._next(self._call)
        except (StreamLostError, DeadlineExceededError):
            return

    def cancel(self) -> None:
        """Ends the stream at once. Does nothing if it has ended."""
        self._outbox.put(None)
        if self._call is not None:
            self._call.cancel()

    def _next(self, call: "grpc._CallIterator[Message]") -> Message | None:
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
            raise StreamLostError(error_from_call(error, address=self._target.address)) from error
        finally:
            if watchdog:
                watchdog.cancel()

    def _stall(self, call: "grpc._CallIterator[Message]") -> None:
        self._stalled = True
        call.cancel()
