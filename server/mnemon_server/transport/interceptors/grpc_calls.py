"""Calls over gRPC pass the pipeline."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from mnemon_server.transport.interceptors.base import Answer, Exchange, Method, call_of, current_call
from mnemon_server.transport.interceptors.pipeline import Pipeline

# Slows down connections that keep cancelling calls, so that these do not take the time of others.


PER_SECOND = 500
"""The number of cancelled calls of a connection that end in a second: a tenth of a processor's capacity."""
AT_ONCE = 64
"""The number that may end at once without a delay. An ordinary client rarely cancels more."""
OTHERS_S = 1.0
"""A connection is alone if no call of another one was answered for that long, in seconds."""
_CONNECTIONS_MAX = 1000


class Cancellations:
    """Keeps a cancelled call for a while if its connection has cancelled many, and is not alone.

    The runtime counts a stream until its call has ended in Python, and refuses further ones of the connection at little
    cost, before they reach Python. So a client that opens and resets streams runs out of them.

    Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        """When each connection has made up for its cancelled calls, in seconds of the event loop."""
        self._answered = self._answered_before = ("", 0.0)
        """The last connection that got an answer, and the last other one; and when."""

    def note_answer(self, connection: str) -> None:
        """A call of the connection has been answered."""
        if connection != self._answered[0]:
            self._answered_before = self._answered
        self._answered = connection, asyncio.get_running_loop().time()

    async def wait(self, connection: str) -> None:
        """Returns when a cancelled call of the connection may end."""
        now = asyncio.get_running_loop().time()
        other, answered = self._answered if self._answered[0] != connection else self._answered_before
        if not other or now - answered > OTHERS_S:
            return
        if len(self._due) > _CONNECTIONS_MAX:
            self._due = {each: due for each, due in self._due.items() if due > now}
        due = self._due[connection] = max(now, self._due.get(connection, now)) + 1 / PER_SECOND
        if (delay_s := due - now - AT_ONCE / PER_SECOND) > 0:
            await asyncio.sleep(delay_s)


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
        self._working: set[asyncio.Task[Any]] = set()

    async def ended(self) -> None:
        """Returns once every call has ended and has its line in the log."""
        if self._working:
            await asyncio.wait(self._working)

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
        """Tracks calls in progress, and delays cancelled ones; see Cancellations."""

        cancellations, working = self._cancellations, self._working

        async def call(requests: Any, context: Exchange) -> Any:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - the runtime calls a handler in a task
            working.add(task)
            task.add_done_callback(working.discard)
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
