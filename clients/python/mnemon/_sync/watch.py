"""The watch of the blocking client."""

import threading
from collections.abc import Iterator
from time import monotonic
from types import TracebackType
from typing import Self

import grpc

from mnemon._channel import Target
from mnemon._status import StreamLostError, error_from_call
from mnemon._values.feed import Change
from mnemon._watch import Progress, ended, silent
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub

_LOOK_S = 0.5


class Watch(Iterator[Change]):
    """Changes as they are committed, in order, each once, without an end: an iterator.

    It has its own connection. It resumes behind the last change if the connection is lost, if the server restarts or
    falls silent, or if the reader was too slow. As a context manager it returns once the server watches, so that no
    change in the block is missed:

        with client.watch() as changes:
            client.remember("Ada prefers window seats.")
            print(next(changes))
    """

    def __init__(self, target: Target, request: pb.WatchChangesRequest) -> None:
        self._target = target
        self._progress = Progress(request, answer_within_s=target.time_limit(None), credential=target.credential)
        self._pending: Iterator[Change] = iter(())
        self._stream: _Stream | None = None
        self._closed = threading.Event()

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

    def __enter__(self) -> Self:
        while not self._progress.confirmed and not self._closed.is_set():
            self._receive()
        if self._closed.is_set():
            raise RuntimeError("the watch has ended; open a new one")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Change:
        """The next change; waits for it. Ends only when the watch, or its client, is closed.

        Raises:
            CursorExpiredError: changes were dropped before this watch read them.
            MnemonError: the server refuses the watch, or no server was ever reached.
        """
        while not self._closed.is_set():
            for change in self._pending:
                return change
            self._receive()
        raise StopIteration

    def close(self) -> None:
        """Ends the watch, and the iteration of another thread. Calling it again does nothing."""
        self._closed.set()
        if (stream := self._stream) is not None:
            stream.close()

    def __del__(self) -> None:
        # A loop that is left by `break` does not close its watch, and the watchdog would keep it alive.
        self.close()

    def _receive(self) -> None:
        """Takes a message, or recovers from a lost stream. An exception ends the watch."""
        try:
            self._receive_or_pause()
        except BaseException:
            self.close()
            raise

    def _receive_or_pause(self) -> None:
        if self._stream is None:
            self._progress.opened()
            self._target.credential.renew()
            self._stream = _Stream(self._target, self._progress.request)
        try:
            self._pending = self._progress.received(self._stream.receive(self._progress.silence_s))
        except StreamLostError as lost:
            self._stream.close()
            self._stream = None
            if not self._closed.is_set():
                self._closed.wait(self._progress.pause_after(lost))


class _Stream:
    """One call of WatchChanges, on its own channel, with a watchdog: gRPC has no deadline for a single message."""

    def __init__(self, target: Target, request: pb.WatchChangesRequest) -> None:
        self._address = target.address
        self._channel = target.open()
        self._call = ChangeServiceStub(self._channel).WatchChanges(request)
        self._closed = threading.Event()
        self._waiting_until: float | None = None
        self._silent = False
        threading.Thread(target=self._watch_silence, name="mnemon-watch", daemon=True).start()

    def receive(self, silence_s: float | None) -> pb.WatchChangesResponse:
        """The next message. Raises StreamLostError if there is none."""
        self._waiting_until = None if silence_s is None else monotonic() + silence_s
        try:
            return next(self._call)
        except StopIteration:
            raise ended(self._address) from None
        except grpc.RpcError as error:
            if self._silent:
                raise silent(self._address, silence_s) from error
            raise StreamLostError(error_from_call(error, address=self._address)) from error
        finally:
            self._waiting_until = None

    def close(self) -> None:
        """Ends the call and its connection. Calling it again does nothing."""
        self._closed.set()
        self._call.cancel()
        self._channel.close()

    def _watch_silence(self) -> None:
        while not self._closed.wait(_LOOK_S):
            until = self._waiting_until
            if until is not None and monotonic() > until:
                self._silent = True
                self._call.cancel()
                return
