"""Which method a request calls, in which form; what is no call of one is refused here."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.errors import UnimplementedError
from mnemon_server.transport.http.exchange import HttpExchange, Kinds
from mnemon_server.transport.http.forms import ACCEPTED, Form, form_of
from mnemon_server.transport.http.intake import Intake
from mnemon_server.transport.http.request import Request
from mnemon_server.transport.interceptors.base import Answer, Exchange, Method, call_of, current_call
from mnemon_server.transport.interceptors.pipeline import Pipeline

NOTHING = "there is nothing at this path; / lists the pages, and calls are POST /mnemon.v1.<service>/<method>"
_METHODS_MAX = 1000
"""Unknown methods have a handler too, and their names are the client's."""
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_TIMEOUT_MS = re.compile("[0-9]{1,10}", re.ASCII)
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

Find = Callable[[str], Any]
"""Returns the handler of a method, by its path."""


class Refused(Exception):  # noqa: N818 - it is an answer
    """A request that is no call; answered without a look at its credential."""

    def __init__(self, code: int, text: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """The status of HTTP, what is wrong, and further headers of the answer."""
        super().__init__(text)
        self.code = code
        self.headers = headers


@dataclass(frozen=True, slots=True)
class _Route:
    """A method."""

    behaviour: Answer
    kinds: Kinds
    is_known: bool
    streams: bool
    may_get: bool
    """Whether it changes nothing, so that a GET may call it."""

    @property
    def methods(self) -> str:
        """The HTTP methods that may call it."""
        return "GET, POST" if self.may_get else "POST"


class HttpCalls:
    """Answers calls over HTTP by the handlers of gRPC, through the same pipeline."""

    def __init__(self, pipeline: Pipeline, find: Find, intake: Intake, *, write_timeout_s: float) -> None:
        self._pipeline = pipeline
        self._find = find
        self._intake = intake
        self._write_timeout_s = write_timeout_s
        self._routes: dict[str, _Route] = {}

    async def answer(self, request: Request, headers: Mapping[str, str]) -> None:
        """Answers a request; `headers` are those of every answer to it.

        Raises:
            Refused: it is not a call.
        """
        route = self._route(request.path)
        form = _form(request, route)
        current_call.set(call_of(request.fields))
        exchange = HttpExchange(
            request,
            form,
            route.kinds,
            headers=headers.items(),
            intake=self._intake,
            conversions=self._pipeline.conversions,
            write_timeout_s=self._write_timeout_s,
        )
        try:
            timeout_s = _timeout_s(request.headers)
        except InvalidArgumentError as error:
            await exchange.fail(error)
        else:
            await exchange.run(route.behaviour, streams=route.streams, timeout_s=timeout_s)

    def methods(self, request: Request) -> str:
        """The HTTP methods that a call of this path may have.

        Raises:
            Refused: the path has no method, and no browser asks whether it may try: it could not read why it may not.
        """
        route = self._route(request.path)
        if not route.is_known and "access-control-request-method" not in request.headers:
            raise Refused(404, NOTHING)
        return route.methods

    def _route(self, path: str) -> _Route:
        known = self._routes.get(path)
        if known is None:
            known = self._make(path)
            if len(self._routes) < _METHODS_MAX:
                self._routes[path] = known
        return known

    def _make(self, path: str) -> _Route:
        handler, described = self._find(path), _described(path)
        if handler.request_streaming and described is not None:
            handler = grpc.stream_unary_rpc_method_handler(_refuse_streams)
        behaviour = self._pipeline.wrapped(Method(path, handler))
        if described is None:
            is_known = not handler.request_streaming
            return _Route(behaviour, Kinds(), is_known=is_known, streams=handler.response_streaming, may_get=False)
        return _Route(
            behaviour,
            Kinds(GetMessageClass(described.input_type), GetMessageClass(described.output_type)),
            is_known=True,
            streams=described.server_streaming or described.client_streaming,
            may_get=described.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS,
        )


def _form(request: Request, route: _Route) -> Form:
    """The form of a call. Raises Refused if it has none."""
    if not route.is_known and request.method == "GET":
        raise Refused(404, NOTHING)
    if request.method not in route.methods.split(", "):
        raise Refused(405, f"use {route.methods}", {"allow": route.methods})
    content_type = request.headers.get("content-type", "")
    if request.method == "GET":
        content_type = f"application/{request.query.get('encoding', 'json')}"
    streams = route.streams if route.is_known else None
    form = form_of(content_type, request.headers.get("accept", ""), streams=streams)
    if form is None:
        raise Refused(415, f"this method takes no {content_type!r}; there are {ACCEPTED}", {"accept-post": ACCEPTED})
    return form


def _described(path: str) -> MethodDescriptor | None:
    service, _, name = path.removeprefix("/").partition("/")
    try:
        found: Any = descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return None
    method: MethodDescriptor | None = found.methods_by_name.get(name)
    return method


def _timeout_s(headers: Mapping[str, str]) -> float | None:
    """The deadline of the client, in seconds, as Connect or gRPC-Web write it.

    Raises:
        InvalidArgumentError: a header is not such a number; without it, the call could take longer than is meant.
    """
    if (text := headers.get("connect-timeout-ms")) is not None:
        if not _TIMEOUT_MS.fullmatch(text):
            raise InvalidArgumentError.of(
                "Connect-Timeout-Ms", "this header must be a whole number of milliseconds, with at most ten digits"
            )
        return int(text) / 1000
    if (text := headers.get("grpc-timeout")) is not None:
        if not (match := _TIMEOUT.fullmatch(text)):
            raise InvalidArgumentError.of(
                "grpc-timeout", "this header must be at most eight digits and a unit of H, M, S, m, u and n, as in 500m"
            )
        return int(match[1]) * _UNITS_S[match[2]]
    return None


async def _refuse_streams(requests: AsyncIterator[bytes], exchange: Exchange) -> NoReturn:
    raise UnimplementedError(
        "this method takes a stream of requests, which HTTP/1.1 cannot carry in both directions: call it over gRPC"
    )
