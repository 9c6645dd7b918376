"""An operator's gRPC service that records its requests and answers as a test says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from grpc import aio
from mnemon.v1 import tool_provider_pb2 as pb
from mnemon.v1 import tool_provider_pb2_grpc

Answer = Callable[[pb.ProvideToolRequest, Any], Awaitable[str]]


@dataclass
class Provider(tool_provider_pb2_grpc.ToolProviderServiceServicer):
    """The service. `answer` returns the content, or ends the call with a status."""

    answer: Answer
    address: str = ""
    received: list[pb.ProvideToolRequest] = field(default_factory=list)

    async def ProvideTool(self, request: pb.ProvideToolRequest, context: Any) -> pb.ProvideToolResponse:  # noqa: N802
        """See the proto."""
        self.received.append(request)
        return pb.ProvideToolResponse(content=await self.answer(request, context))


async def echo(request: pb.ProvideToolRequest, context: Any) -> str:
    """Answers with the name of the tool."""
    return f"this is {request.tool}"


@asynccontextmanager
async def tool_provider(answer: Answer = echo, address: str = "127.0.0.1:0") -> AsyncIterator[Provider]:
    """Serves on a free port of loopback, or at an address."""
    provider = Provider(answer)
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    tool_provider_pb2_grpc.add_ToolProviderServiceServicer_to_server(provider, server)
    port = server.add_insecure_port(address)
    provider.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield provider
    finally:
        await server.stop(None)
