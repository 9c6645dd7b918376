"""The connections of both clients: a channel, its stubs, single calls, and waiting for a ready server."""
# ruff: noqa: ASYNC109 -- a deadline goes to the server with the call, which asyncio.timeout would not do

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

import grpc
from google.protobuf.message import Message

from mnemon import _readiness as readiness
from mnemon._attempts import CALLS_IN_FLIGHT_MAX, Attempts
from mnemon._channel import DEFAULT_TIMEOUT_S, Target
from mnemon.shared.errors import ClientClosedError
from mnemon.shared.warnings import noted

CLOSED = "the client is closed"

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
_Stub = TypeVar("_Stub")


class Connection:
    """A connection of the blocking client, safe to share between threads. Messages and reprs show its `name`."""

    def __init__(self, target: Target, *, name: str = "") -> None:
        self.target = target
        self.name = name or target.address
        self._channel = self.target.open()
        self._places = threading.Semaphore(CALLS_IN_FLIGHT_MAX)
        self._stubs: dict[object, Any] = {}
        self.watches: WeakSet[Any] = WeakSet()
        self.closed_because = ""

    def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        if self.closed_because:
            return
        self.closed_because = CLOSED
        for watch in list(self.watches):
            watch.close()
        self._channel.close()

    def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        check = self.open_channel().unary_unary(readiness.METHOD, readiness.as_bytes, readiness.as_bytes)
        waiting = readiness.Readiness(self.target.address, timeout)
        while True:
            try:
                if waiting.is_ready(check(readiness.REQUEST, timeout=waiting.time_left(), wait_for_ready=True)):
                    return
            except grpc.RpcError as error:
                waiting.failed(error)
            time.sleep(waiting.pause())

    def call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        repeatable: bool = True,
    ) -> _Response:
        """Makes one call, and repeats it while a retry can help and `timeout` has not passed. Raises MnemonError."""
        attempts = Attempts(self.target, timeout)
        if not self._places.acquire(timeout=attempts.time_left()):
            raise attempts.late()
        try:
            while True:
                # The client may have been closed in the meantime.
                self.open_channel()
                self.authorize()
                try:
                    return noted(method(request, timeout=attempts.time_left()))
                except grpc.RpcError as raised:
                    pause_s = attempts.pause_after(raised, repeatable=repeatable)
                time.sleep(pause_s)
        finally:
            self._places.release()

    def authorize(self) -> None:
        """Renews the token of the client if that is due. Raises what its function raises."""
        if self.target.credential.is_due:
            self.target.credential.renew()

    def open_channel(self) -> grpc.Channel:
        """The channel. Raises ClientClosedError if the client is closed."""
        if self.closed_because:
            raise ClientClosedError(self.closed_because)
        return self._channel

    def stub(self, kind: Callable[[grpc.Channel], _Stub]) -> _Stub:
        """The stub of one service. Raises ClientClosedError if the client is closed."""
        channel = self.open_channel()
        # Cached, because creating one costs about as much as a call.
        if kind not in self._stubs:
            self._stubs[kind] = kind(channel)
        found: _Stub = self._stubs[kind]
        return found


class AsyncConnection:
    """A connection of the asyncio client, for one event loop at a time. Messages and reprs show its `name`."""

    def __init__(self, target: Target, *, name: str = "") -> None:
        self.target = target
        self.name = name or target.address
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(CALLS_IN_FLIGHT_MAX)
        self._stubs: dict[object, Any] = {}
        self.watches: WeakSet[Any] = WeakSet()
        self.closed_because = ""

    async def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        if self.closed_because:
            return
        self.closed_because = CLOSED
        for watch in list(self.watches):
            await watch.close()
        # The channel of a loop that has ended is gone with it.
        if self._channel is not None and self._loop is asyncio.get_running_loop():
            await self._channel.close()

    async def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        check = self.open_channel().unary_unary(readiness.METHOD, readiness.as_bytes, readiness.as_bytes)
        waiting = readiness.Readiness(self.target.address, timeout)
        while True:
            try:
                if waiting.is_ready(await check(readiness.REQUEST, timeout=waiting.time_left(), wait_for_ready=True)):
                    return
            except grpc.aio.AioRpcError as error:
                waiting.failed(error)
            await asyncio.sleep(waiting.pause())

    async def call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        repeatable: bool = True,
    ) -> _Response:
        """Makes one call, and repeats it while a retry can help and `timeout` has not passed. Raises MnemonError."""
        attempts = Attempts(self.target, timeout)
        self.open_channel()
        try:
            async with asyncio.timeout(attempts.time_left()):
                await self._places.acquire()
        except TimeoutError:
            raise attempts.late() from None
        try:
            while True:
                # The client may have been closed in the meantime.
                self.open_channel()
                await self.authorize()
                try:
                    return noted(await method(request, timeout=attempts.time_left()))
                except grpc.aio.AioRpcError as raised:
                    pause_s = attempts.pause_after(raised, repeatable=repeatable)
                await asyncio.sleep(pause_s)
        finally:
            self._places.release()

    async def authorize(self) -> None:
        """Renews the token of the client if that is due. Raises what its function raises."""
        if self.target.credential.is_due:
            await self.target.credential.renew_async()

    def open_channel(self) -> grpc.aio.Channel:
        """The channel. Raises ClientClosedError if the client is closed."""
        if self.closed_because:
            raise ClientClosedError(self.closed_because)
        loop = asyncio.get_running_loop()
        if self._channel is None or self._loop is not loop:
            self._use_loop(loop)
            # Not in the constructor, because a channel belongs to the event loop that runs when it is made.
            self._channel = self.target.open_aio()
        return self._channel

    def _use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins anew in this loop after the one before has ended. Raises RuntimeError while that still runs."""
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("an asyncio client belongs to one event loop at a time; make a client for each")
        self._loop, self._places = loop, asyncio.Semaphore(CALLS_IN_FLIGHT_MAX)
        self._stubs.clear()
        self.target.credential.use_new_loop()

    def stub(self, kind: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        """The stub of one service. Raises ClientClosedError if the client is closed."""
        channel = self.open_channel()
        # Cached, because creating one costs about as much as a call.
        if kind not in self._stubs:
            self._stubs[kind] = kind(channel)
        found: _Stub = self._stubs[kind]
        return found
