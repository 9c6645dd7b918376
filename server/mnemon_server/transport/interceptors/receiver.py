"""Reads the one request of a call here rather than in the runtime, which would wait for it for ever."""

from typing import Any

import grpc
from grpc import aio

from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.interceptors.base import Context, Method, MethodInterceptor, current_call
from mnemon_server.transport.interceptors.time_limit import TimeLimit
from mnemon_server.transport.interceptors.turns import Turns

LATE_MAX, LATE_S = 64, 1.0
"""How many requests at once may take longer than a second to arrive: each can take as much memory as a message may."""


class Receiver(MethodInterceptor):
    """Passes calls on once their request has arrived. To the runtime, such methods take a stream of requests.

    A request that does not arrive in time ends its call; until then, the call takes no slot of the limits.
    """

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._limit = TimeLimit(seconds, crowd=LATE_MAX, crowded_s=LATE_S)
        self._turns = Turns()
        self._late = f"the request did not arrive within {seconds:g} s"

    def _wrap(self, method: Method) -> Any:
        handler = method.handler
        if handler.request_streaming:
            return handler
        inner = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def call(_: Any, context: Context) -> Any:
            return await inner(await self._request(context), context)

        kind = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return kind(call)

    async def _request(self, context: Context) -> bytes:
        call = current_call.get()
        call.awaits_request = True
        if (turn := self._turns.take(call.connection)) is not None:
            await turn
        with self._limit.watch(self._late):
            request = await context.read()
        if request is aio.EOF:
            raise MalformedMessageError("the call has no request")
        call.awaits_request = False
        data: bytes = request
        return data
