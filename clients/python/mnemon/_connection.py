"""The base of both clients: a channel, its stubs, single calls, and waiting for a ready server."""
# ruff: noqa: ASYNC109 -- a deadline goes to the server with the call, which asyncio.timeout would not do

import asyncio
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import grpc
from google.protobuf.message import Message

from mnemon import _readiness as readiness
from mnemon._attempts import CALLS_IN_FLIGHT_MAX, Attempts
from mnemon._channel import DEFAULT_TIMEOUT_S, Target

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
_Stub = TypeVar("_Stub")


class Connection:
    """A connection of the blocking client, safe to share between threads."""

    def __init__(
        self,
        address: str | None = None,
        *,
        tls: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        insecure: bool = False,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._target = Target.resolve(
            address, tls=tls, ca_file=ca_file, credentials=credentials, insecure=insecure, timeout=timeout
        )
        self._channel = self._target.open()
        self._places = threading.Semaphore(CALLS_IN_FLIGHT_MAX)
        self._stubs: dict[object, Any] = {}
        self._watches: WeakSet[Any] = WeakSet()
        self._closed = False

    @property
    def address(self) -> str:
        """The address that is dialled."""
        return self._target.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        self._closed = True
        for watch in list(self._watches):
            watch.close()
        self._channel.close()

    def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        check = self._open_channel().unary_unary(readiness.METHOD, readiness.as_bytes, readiness.as_bytes)
        waiting = readiness.Readiness(self.address, timeout)
        while True:
            try:
                if waiting.is_ready(check(readiness.REQUEST, timeout=waiting.time_left(), wait_for_ready=True)):
                    return
            except grpc.RpcError as error:
                waiting.failed(error)
            time.sleep(waiting.pause())

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        repeatable: bool = True,
    ) -> _Response:
        attempts = Attempts(self._target, timeout)
        if not self._places.acquire(timeout=attempts.time_left()):
            raise attempts.late()
        try:
            while True:
                # The client may have been closed in the meantime.
                self._open_channel()
                try:
                    return method(request, timeout=attempts.time_left())
                except grpc.RpcError as raised:
                    pause_s = attempts.pause_after(raised, repeatable=repeatable)
                time.sleep(pause_s)
        finally:
            self._places.release()

    def _open_channel(self) -> grpc.Channel:
        if self._closed:
            raise RuntimeError("the client is closed")
        return self._channel

    def _stub(self, kind: Callable[[grpc.Channel], _Stub]) -> _Stub:
        channel = self._open_channel()
        # Cached, because creating one costs about as much as a call.
        if kind not in self._stubs:
            self._stubs[kind] = kind(channel)
        found: _Stub = self._stubs[kind]
        return found


class AsyncConnection:
    """A connection of the asyncio client, for one event loop."""

    def __init__(
        self,
        address: str | None = None,
        *,
        tls: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        insecure: bool = False,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._target = Target.resolve(
            address, tls=tls, ca_file=ca_file, credentials=credentials, insecure=insecure, timeout=timeout
        )
        self._channel: grpc.aio.Channel | None = None
        self._places = asyncio.Semaphore(CALLS_IN_FLIGHT_MAX)
        self._stubs: dict[object, Any] = {}
        self._watches: WeakSet[Any] = WeakSet()
        self._closed = False

    @property
    def address(self) -> str:
        """The address that is dialled."""
        return self._target.address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        self._closed = True
        for watch in list(self._watches):
            await watch.close()
        if self._channel is not None:
            await self._channel.close()

    async def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        check = self._open_channel().unary_unary(readiness.METHOD, readiness.as_bytes, readiness.as_bytes)
        waiting = readiness.Readiness(self.address, timeout)
        while True:
            try:
                if waiting.is_ready(await check(readiness.REQUEST, timeout=waiting.time_left(), wait_for_ready=True)):
                    return
            except grpc.aio.AioRpcError as error:
                waiting.failed(error)
            await asyncio.sleep(waiting.pause())

    async def _call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        repeatable: bool = True,
    ) -> _Response:
        attempts = Attempts(self._target, timeout)
        try:
            async with asyncio.timeout(attempts.time_left()):
                await self._places.acquire()
        except TimeoutError:
            raise attempts.late() from None
        try:
            while True:
                # The client may have been closed in the meantime.
                self._open_channel()
                try:
                    return await method(request, timeout=attempts.time_left())
                except grpc.aio.AioRpcError as raised:
                    pause_s = attempts.pause_after(raised, repeatable=repeatable)
                await asyncio.sleep(pause_s)
        finally:
            self._places.release()

    def _open_channel(self) -> grpc.aio.Channel:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._channel is None:
            # Not in the constructor, because a channel belongs to the event loop that runs when it is made.
            self._channel = self._target.open_aio()
        return self._channel

    def _stub(self, kind: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        channel = self._open_channel()
        # Cached, because creating one costs about as much as a call.
        if kind not in self._stubs:
            self._stubs[kind] = kind(channel)
        found: _Stub = self._stubs[kind]
        return found
