"""The watch of the asyncio client."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

import grpc

from mnemon._channel import Target
from mnemon._status import StreamLostError, error_from_call
from mnemon._values.feed import Change
from mnemon._watch import Progress, ended, silent
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub


class AsyncWatch(AsyncIterator[Change]):
    """Changes as they are committed, in order, each once, without an end: an async iterator; see `Watch`.

    async with client.watch() as changes:
        await client.remember("Ada prefers window seats.")
        print(await anext(changes))
    """

    def __init__(self, target: Target, request: pb.WatchChangesRequest) -> None:
        self._target = target
        self._progress = Progress(request, answer_within_s=target.time_limit(None), credential=target.credential)
        self._pending: Iterator[Change] = iter(())
        self._stream: _Stream | None = None
        self._closed = asyncio.Event()

    @property
    def cursor(self) -> str:
        """The position to resume from, safe to store: behind changes that were handed out, never ahead of them.

        Changes come in batches. Within a batch, this is still the cursor of the previous one. Empty before the first
        answer.
        """
        return self._progress.cursor

    @property
    def caught_up(self) -> bool:
        """Whether all changes that were in the log at the server's last look have been handed out."""
        return self._progress.caught_up

    async def __aenter__(self) -> Self:
        while not self._progress.confirmed and not self._closed.is_set():
            await self._receive()
        if self._closed.is_set():
            raise RuntimeError("the watch has ended; open a new one")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def __anext__(self) -> Change:
        """The next change; waits for it. Ends only when the watch, or its client, is closed.

        Raises:
            CursorExpiredError: changes were dropped before this watch read them.
            MnemonError: the server refuses the watch, or no server was ever reached.
        """
        while not self._closed.is_set():
            for change in self._pending:
                return change
            await self._receive()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Ends the watch, and the iteration of another task. Calling it again does nothing."""
        self._closed.set()
        if (stream := self._stream) is not None:
            await stream.close()

    async def _receive(self) -> None:
        """Takes a message, or recovers from a lost stream. An exception ends the watch."""
        try:
            await self._receive_or_pause()
        except BaseException:
            await self.close()
            raise

    async def _receive_or_pause(self) -> None:
        if self._stream is None:
            self._progress.opened()
            await self._target.credential.renew_async()
            self._stream = _Stream(self._target, self._progress.request)
        try:
            self._pending = self._progress.received(await self._stream.receive(self._progress.silence_s))
        except StreamLostError as lost:
            await self._stream.close()
            self._stream = None
            if not self._closed.is_set():
                await self._pause(self._progress.pause_after(lost))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return


class _Stream:
    """One call of WatchChanges, on a channel of its own."""

    def __init__(self, target: Target, request: pb.WatchChangesRequest) -> None:
        self._address = target.address
        self._channel = target.open_aio()
        self._call = ChangeServiceStub(self._channel).WatchChanges(request)
        self._closed = False

    async def receive(self, silence_s: float | None) -> pb.WatchChangesResponse:
        """The next message. Raises StreamLostError if the stream has ended."""
        try:
            async with asyncio.timeout(silence_s):
                message = await self._call.read()
        except TimeoutError as error:
            raise silent(self._address, silence_s) from error
        except grpc.aio.AioRpcError as error:
            raise StreamLostError(error_from_call(error, address=self._address)) from error
        except asyncio.CancelledError:
            # Closing a stream cancels its reader. If the reader itself was cancelled, that must go on.
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise ended(self._address) from None
        if not isinstance(message, pb.WatchChangesResponse):
            raise ended(self._address)
        return message

    async def close(self) -> None:
        """Ends the call and its connection. Calling it again does nothing."""
        self._closed = True
        self._call.cancel()
        await self._channel.close()
