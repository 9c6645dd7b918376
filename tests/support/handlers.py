"""A service that does what handlers must not do, served behind the product's interceptors."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc import aio
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.transport.interceptors.base import request_bytes

EXCEPTION_TEXT = "path/of/a/file/of/the/server"
_STREAMS = ("flood", "idle", "raise_midway", "write_during_a_write")


class Held:
    """What a handler holds when it fails."""


class Misbehaving(grpc.GenericRpcHandler):
    """Every method is `/test.Misbehaving/<name>`; messages are bytes."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = 0
        self.produced = 0
        self.opened = 0
        self.cleaned_up = 0
        self.held: weakref.ref[Held] | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method."""
        service, _, name = str(handler_call_details.method).lstrip("/").partition("/")
        if service != "test.Misbehaving":
            return None
        behaviour = getattr(self, name)
        if name in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(behaviour)
        if name in ("echo_stream", "deaf"):
            return grpc.stream_stream_rpc_method_handler(behaviour)
        return grpc.unary_unary_rpc_method_handler(behaviour)

    async def echo(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Answers with the request."""
        return request

    async def raise_error(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Raises an error that only a bug would cause."""
        raise ValueError(EXCEPTION_TEXT)

    async def abort(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Aborts the call itself."""
        await context.abort(grpc.StatusCode.DATA_LOSS, "as the handler said")
        return b""

    async def abort_and_tidy_up(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Has much to do once the client has its status."""
        try:
            await context.abort(grpc.StatusCode.DATA_LOSS, "as the handler said")
        finally:
            for _ in range(1000):
                await asyncio.shield(asyncio.sleep(0))
        return b""

    async def many_violations(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Reports far more violations than an answer can hold."""
        raise InvalidArgumentError([FieldViolation(f"field{i}.{'é' * 500}", "ü" * 500) for i in range(1000)])

    async def fail_with_hands_full(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Refuses its input with an error that it stored before."""
        held = Held()
        self.held = weakref.ref(held)
        error = InvalidArgumentError.of("field", "is wrong")
        raise error

    async def wait(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Answers when it is allowed to."""
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return b"released"

    async def large(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Answers with the requested number of bytes."""
        return bytes(int(request))

    async def size(self, request: bytes, context: aio.ServicerContext) -> bytes:
        """Answers with the size that the call says its request has."""
        return str(request_bytes()).encode()

    async def flood(self, request: bytes, context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Sends messages without end."""
        message = bytes(int(request))
        while True:
            yield message
            self.produced += 1

    async def idle(self, request: bytes, context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Sends one message, and then nothing."""
        self.opened += 1
        try:
            yield bytes(int(request or b"1"))
            await asyncio.Event().wait()
        finally:
            self.cleaned_up += 1

    async def raise_midway(self, request: bytes, context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Fails after the first message."""
        yield b"first"
        raise ValueError(EXCEPTION_TEXT)

    async def write_during_a_write(self, request: bytes, context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Yields a message before the client has read another, as large as requested. The runtime refuses that."""
        writing = asyncio.ensure_future(context.write(bytes(int(request))))
        await asyncio.sleep(0)
        try:
            yield b"second"
        finally:
            self.cleaned_up += 1
            await writing

    async def deaf(self, requests: AsyncIterator[bytes], context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Reads none of its requests."""
        self.opened += 1
        await asyncio.Event().wait()
        yield b""

    async def echo_stream(self, requests: AsyncIterator[bytes], context: aio.ServicerContext) -> AsyncIterator[bytes]:
        """Echoes each message."""
        async for request in requests:
            yield request


def path(name: str) -> str:
    """The path of a method."""
    return f"/test.Misbehaving/{name}"


def method(channel: aio.Channel, name: str) -> Callable[..., Any]:
    """The client's side of one method."""
    if name in _STREAMS:
        return channel.unary_stream(path(name))
    return channel.stream_stream(path(name)) if name == "echo_stream" else channel.unary_unary(path(name))
