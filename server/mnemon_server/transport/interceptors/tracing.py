"""Traces calls with OpenTelemetry, and sends them to a collector. Calls that are not traced pay for a random number."""

import asyncio
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mnemon_server.domain.observation.figures import current_trace
from mnemon_server.transport.interceptors.base import TRACEPARENT_KEY, Call, Method

_FORMAT = TraceContextTextMapPropagator()
_FAULTS = ("UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNIMPLEMENTED")
"""The codes that OpenTelemetry counts as errors of a server."""


class Tracing:
    """Decides which calls are traced, and begins their spans. An async context manager: its end sends what is left."""

    def __init__(self, exporter: SpanExporter, *, ratio: float, version: str) -> None:
        """Traces every call whose `traceparent` says so, and of those without one this ratio, 0 to 1."""
        resource = Resource.create({"service.name": "mnemon-server", SERVICE_VERSION: version})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("mnemon_server")
        self._ratio = ratio

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # On a thread: it waits for the collector.
        await asyncio.to_thread(self._provider.shutdown)

    def of(self, method: Method) -> Callable[[Call], None] | None:
        """The sampler that begins a trace of a call of this method; None if no call is traced."""
        if method.exempt:
            return None
        service, _, name = method.path.strip("/").rpartition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}

        def begin(call: Call) -> None:
            given = call.traceparent
            if given[-1] in "13" if given else random.random() < self._ratio:  # noqa: S311 - not a secret
                self._begin(call, f"{service}/{name}", attributes)

        return begin

    def _begin(self, call: Call, name: str, attributes: Mapping[str, str]) -> None:
        parent = _FORMAT.extract({TRACEPARENT_KEY: call.traceparent})
        span = self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, attributes=attributes)
        span.set_attribute("mnemon.request_id", call.request_id)
        headers: dict[str, str] = {}
        _FORMAT.inject(headers, set_span_in_context(span))
        call.traceparent = headers[TRACEPARENT_KEY]
        call.trace = _CallTrace(self._tracer, span)
        current_trace.set(call.trace)


class _CallTrace:
    """The span of a call; see Trace."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span)

    def begin(self, name: str) -> Callable[[Any], None]:
        """See Trace."""
        part = self._tracer.start_span(name, context=self._context)
        return lambda _: part.end()

    def end(self, code: str) -> None:
        """See Trace."""
        self._span.set_attribute("rpc.grpc.status_code", code)
        if code in _FAULTS:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def collector(endpoint: str) -> SpanExporter:
    """Sends spans to an OpenTelemetry collector by OTLP over gRPC, at an address such as http://localhost:4317."""
    return OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
