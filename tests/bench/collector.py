"""A collector of OpenTelemetry traces that forgets them at once.

python -m tests.bench.collector ADDRESS
"""

import asyncio
import sys
from typing import Any

from grpc import aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans, and does nothing with them."""

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name in the proto
        """Takes spans."""
        return pb.ExportTraceServiceResponse()


async def serve(address: str) -> None:
    """Serves until it is stopped."""
    server = aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
