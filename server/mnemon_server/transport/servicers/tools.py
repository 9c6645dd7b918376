"""ToolService over gRPC. Every method has the same steps: check what may be no value, convert, call, convert."""

from mnemon.v1 import tools_pb2 as pb
from mnemon.v1 import tools_pb2_grpc

from mnemon_server.transport.checks import tools as checks
from mnemon_server.transport.convert import tools as convert
from mnemon_server.transport.convert.shared.pause import converted
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class ToolServicer(TenantServicer, tools_pb2_grpc.ToolServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    def __init__(self, *, message_bytes_max: int) -> None:
        super().__init__()
        self._message_bytes_max = message_bytes_max

    async def ListTools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:  # noqa: N802 - the promises of the methods are in the proto
        async with self.vault(context) as vault:
            tools = vault.tools.list_tools(
                actions_permitted=tuple(request.actions_permitted),
                manage_instructions=request.manage_instructions if request.HasField("manage_instructions") else None,
                search_instructions=request.search_instructions if request.HasField("search_instructions") else None,
            )
        return convert.tools_to_pb(tools)

    async def CallTool(self, request: pb.CallToolRequest, context: Context) -> pb.CallToolResponse:  # noqa: N802
        call = await converted(checks.checked_call, request, request.ByteSize())
        async with self.vault(context) as vault:
            output = await vault.tools.call(call)
        return await convert.output_to_pb(output)

    async def ParseToolCalls(  # noqa: N802
        self, request: pb.ParseToolCallsRequest, context: Context
    ) -> pb.ParseToolCallsResponse:
        async with self.vault(context) as vault:
            parsed = await vault.tools.parse(request.text, convert.options_from_pb(request.options))
        return await convert.parsed_to_pb(parsed)

    async def ExecuteText(self, request: pb.ExecuteTextRequest, context: Context) -> pb.ExecuteTextResponse:  # noqa: N802
        text = checks.checked_execute(request)
        async with self.vault(context) as vault:
            executed = await vault.tools.execute(text)
        return await convert.executed_to_pb(executed, bytes_max=self._message_bytes_max)

    async def GetProtocolStats(  # noqa: N802
        self, request: pb.GetProtocolStatsRequest, context: Context
    ) -> pb.GetProtocolStatsResponse:
        async with self.vault(context) as vault:
            return convert.statistics_to_pb(vault.tools.statistics())
