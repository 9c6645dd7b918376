"""What the interceptors share: each one wraps the behaviour of a method once, and no call pays for the wrapping."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from mnemon_server.domain.access import EVERYBODY, Principal

Context = aio.ServicerContext[Any, Any]
Single = Callable[[Any, Context], Awaitable[Any]]
"""Takes a request, or an iterator of them, and returns one response."""
Stream = Callable[[Any, Context], AsyncIterator[Any]]
"""Takes a request, or an iterator of them, and yields responses."""
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]

REQUEST_ID_KEY = "x-request-id"

# Probes and descriptions must answer when everything else is full.
_HEALTH = "/grpc.health.v1."
_EXEMPT = (_HEALTH, "/grpc.reflection.")
# Unknown methods have a handler too, and their names are the client's.
_METHODS_MAX = 1000


@dataclass(slots=True)
class Call:
    """What is known about the call in progress."""

    request_id: str
    connection: str = ""
    """The address of the client. The runtime makes it anew each time that it is asked for it."""
    credential: str = ""
    """The secret in the header `authorization`; empty without one."""
    principal: Principal = EVERYBODY
    reason: str = ""
    incident_id: str = ""
    awaits_request: bool = False
    """Its request has not arrived yet. Clients may drop such calls as often as they like: the log leaves them out."""
    request_bytes: int = 0

    @property
    def holder(self) -> Hashable:
        """With whom its connections share what is limited: a caller with a name may have many connections."""
        return (self.principal.tenant, self.principal.subject) if self.principal.subject else self.connection


current_call: ContextVar[Call] = ContextVar("current_call")


def request_bytes() -> int:
    """The size of this call's request on the wire. A message takes as long to tell its size as to be read: 60 ms for
    4 MB of small parts."""
    return current_call.get().request_bytes


@dataclass(frozen=True, slots=True)
class Method:
    """A method being wrapped."""

    path: str
    handler: Any

    @property
    def exempt(self) -> bool:
        """Whether limits do not apply to it."""
        return self.path.startswith(_EXEMPT)

    @property
    def ends_itself(self) -> bool:
        """Whether its streams end by themselves at a shutdown, after a last message."""
        return self.path.startswith(_HEALTH)


class MethodInterceptor(aio.ServerInterceptor):
    """Wraps handlers; subclasses say how for methods with one response and for those with a stream.

    Every handler with a stream of responses is an async generator. StreamWriter turns it into a coroutine that writes,
    and that is what the interceptors around StreamWriter see. Those around Receiver only see streams of requests.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}

    async def intercept_service(self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The wrapped handler; None if the method does not exist."""
        path = str(handler_call_details.method)
        if (known := self._handlers.get(path)) is not None:
            return known
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        wrapped = self._wrap(Method(path, handler))
        if len(self._handlers) < _METHODS_MAX:
            self._handlers[path] = wrapped
        return wrapped

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """The behaviour that replaces `inner`, which returns one response."""
        return inner

    def wrap_stream(self, method: Method, inner: Stream) -> Any:
        """The behaviour that replaces `inner`, which yields responses."""
        return inner

    def _wrap(self, method: Method) -> Any:
        match (method.handler.request_streaming, method.handler.response_streaming):
            case (False, False):
                behaviour: Any = {"unary_unary": self.wrap_single(method, method.handler.unary_unary)}
            case (True, False):
                behaviour = {"stream_unary": self.wrap_single(method, method.handler.stream_unary)}
            case (False, True):
                behaviour = {"unary_stream": self.wrap_stream(method, method.handler.unary_stream)}
            case _:
                behaviour = {"stream_stream": self.wrap_stream(method, method.handler.stream_stream)}
        return method.handler._replace(**behaviour)
