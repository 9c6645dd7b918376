"""Calls over gRPC pass the pipeline."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from mnemon_server.transport.interceptors.base import Answer, Exchange, Method, call_of, current_call
from mnemon_server.transport.interceptors.cancellations import Cancellations
from mnemon_server.transport.interceptors.pipeline import Pipeline

# Unknown methods have a handler too, and their names are the client's.
_METHODS_MAX = 1000


class GrpcCalls(grpc.GenericRpcHandler):
    """The only handler registered with the runtime. It returns the wrapped handler of each method.

    An interceptor could do the same, but costs every call two coroutines more.
    """

    def __init__(self, pipeline: Pipeline, find: Callable[[str], Any]) -> None:
        """`find` returns the handler of the method with a path; None if the method is unknown."""
        self._pipeline = pipeline
        self._find = find
        self._cancellations = Cancellations()
        self._handlers: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The wrapped handler, which the runtime calls in the same task; None if the method does not exist."""
        # The runtime makes the headers anew each time that it is asked for them, and here it has made them already.
        current_call.set(call_of(handler_call_details.invocation_metadata))
        path = str(handler_call_details.method)
        if (known := self._handlers.get(path)) is not None:
            return known
        handler = self._find(path)
        if handler is None:
            return None
        wrapped = self._wrap(Method(path, handler))
        if len(self._handlers) < _METHODS_MAX:
            self._handlers[path] = wrapped
        return wrapped

    def _wrap(self, method: Method) -> Any:
        behaviour = self._keeping(self._pipeline.wrapped(method))
        if method.handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(behaviour)
        return grpc.stream_unary_rpc_method_handler(behaviour)

    def _keeping(self, answer: Answer) -> Answer:
        """Keeps calls that were cancelled; see Cancellations."""

        cancellations = self._cancellations

        async def call(requests: Any, context: Exchange) -> Any:
            try:
                response = await answer(requests, context)
            except asyncio.CancelledError:
                pass  # Until the end of this block, it keeps everything that the call has.
            except aio.AbortError as error:
                # The runtime keeps it with the call, and it would keep its frames, which have the call: a cycle.
                error.__traceback__ = None
                del requests, context
                raise
            else:
                cancellations.note_answer(current_call.get().connection)
                return response
            await cancellations.wait(current_call.get().connection)
            raise asyncio.CancelledError

        return call
