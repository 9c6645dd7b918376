"""ToolService over gRPC. Every method has the same steps: read, call, write."""

from dataclasses import replace

from mnemon.v1 import tools_pb2 as pb
from mnemon.v1 import tools_pb2_grpc

from mnemon_server.services.background.offload import converted
from mnemon_server.services.reading.answers import Room
from mnemon_server.transport.convert import tools as convert
from mnemon_server.transport.interceptors.base import Context, current_call, request_bytes
from mnemon_server.transport.interceptors.codec import Encoded
from mnemon_server.transport.tenancy import TenantServicer


class ToolServicer(TenantServicer, tools_pb2_grpc.ToolServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    def __init__(self, message_bytes_max: int) -> None:
        super().__init__()
        self._message_bytes_max = message_bytes_max

    async def ListTools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:
        actions = convert.read_actions(request)
        async with self.vault() as vault:
            tools = vault.tools.list_tools(
                actions_permitted=actions,
                manage_instructions=request.manage_instructions if request.HasField("manage_instructions") else None,
                search_instructions=request.search_instructions if request.HasField("search_instructions") else None,
            )
            unoffered = vault.tools.unoffered_tools()
        return convert.tools_to_pb(tools, unoffered)

    async def CallTool(self, request: pb.CallToolRequest, context: Context) -> Encoded:
        call = await converted(convert.read_call, request, request_bytes())
        call = replace(call, caller=current_call.get().principal)
        async with self.vault() as vault:
            output = await vault.tools.call(call, room=self._room_for(artifact=call.artifact))
        return await convert.called_to_bytes(output)

    async def ParseToolCalls(self, request: pb.ParseToolCallsRequest, context: Context) -> pb.ParseToolCallsResponse:
        async with self.vault() as vault:
            parsed = await vault.tools.parse(request.text, convert.options_from_pb(request.options))
        return await convert.parsed_to_pb(parsed)

    async def ExecuteText(self, request: pb.ExecuteTextRequest, context: Context) -> Encoded:
        text = await converted(convert.read_execute, request, request_bytes())
        text = replace(text, caller=current_call.get().principal)
        async with self.vault() as vault:
            executed = await vault.tools.execute(text, room=self._room_for(artifact=text.artifact))
        return await convert.executed_to_bytes(executed, bytes_max=self._message_bytes_max)

    async def GetProtocolStats(
        self, request: pb.GetProtocolStatsRequest, context: Context
    ) -> pb.GetProtocolStatsResponse:
        async with self.vault() as vault:
            return convert.statistics_to_pb(vault.tools.statistics())

    def _room_for(self, *, artifact: bool) -> Room:
        """Facts that a search finds are in the answer twice if they come beside their text."""
        return self.room(copies=2 if artifact else 1)
