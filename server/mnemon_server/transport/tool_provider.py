"""The endpoint of an operator's tool that speaks gRPC: a client of ToolProviderService."""

from collections.abc import Mapping
from typing import Any

import grpc
from grpc import aio
from mnemon.v1 import tool_provider_pb2 as pb
from mnemon.v1 import tool_provider_pb2_grpc

from mnemon_server.domain.errors import ToolFailedError, ToolUnreachableError
from mnemon_server.domain.tools import ANSWER_BYTES_MAX, OperatorTool
from mnemon_server.transport.channels import operator_channel
from mnemon_server.transport.convert.shared.json_values import fill_object


class GrpcEndpoint:
    """Calls ToolProviderService at one address, on one connection. Belongs to one event loop."""

    def __init__(self, tool: OperatorTool) -> None:
        """Connects on the first call."""
        self._timeout_s = tool.timeout_s
        self._channel = operator_channel(tool.grpc, tls=tool.tls, answer_bytes_max=ANSWER_BYTES_MAX)
        self._provider = tool_provider_pb2_grpc.ToolProviderServiceStub(self._channel)

    async def call(
        self, name: str, arguments: Mapping[str, Any], namespace: tuple[str, ...], request_id: str, token: str = ""
    ) -> str:
        """See `ToolEndpoint` of services/tools/endpoints.py."""
        request = pb.ProvideToolRequest(tool=name, namespace=namespace, request_id=request_id)
        fill_object(request.arguments, arguments)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            answer = await self._provider.ProvideTool(request, timeout=self._timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            raise _failure(name, error.code(), self._timeout_s) from error
        content: str = answer.content
        return content

    async def aclose(self) -> None:
        """See `ToolEndpoint`."""
        await self._channel.close()


def _failure(name: str, code: grpc.StatusCode, timeout_s: float) -> ToolFailedError | ToolUnreachableError:
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return ToolUnreachableError(f"the tool {name!r} did not answer within {timeout_s:g} s")
        case grpc.StatusCode.UNAVAILABLE:
            return ToolUnreachableError(f"the tool {name!r} cannot be reached, or its endpoint closed the connection")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ToolFailedError(
                f"the tool {name!r} failed: its endpoint is overloaded, or sent more than {ANSWER_BYTES_MAX:,} bytes"
            )
    return ToolFailedError(f"the tool {name!r} failed: its endpoint answered with status {code.name}")
