"""A collector of OpenTelemetry traces: a real server, which keeps the spans that it gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Keeps spans."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: list[Span] = []

    async def Export(  # noqa: N802 - the name in the proto
        self, request: pb.ExportTraceServiceRequest, context: Any
    ) -> pb.ExportTraceServiceResponse:
        """Takes spans."""
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return pb.ExportTraceServiceResponse()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a free port of the loopback."""
    server, collector = aio.server(), Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)
