"""Opens the tools that language models call: the memory tools, and an operator's tools, which all vaults share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.tools import OperatorTool
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.tools.endpoints import ToolEndpoint
from mnemon_server.services.tools.registry import SignCaller, ToolRegistry
from mnemon_server.services.tools.service import ToolRunner
from mnemon_server.transport.tool_provider import GrpcEndpoint


@asynccontextmanager
async def open_registry(settings: Settings) -> AsyncIterator[ToolRegistry]:
    """Opens the operator's tools, with the connections to their endpoints.

    Raises:
        ConfigurationError: the file cannot be read, a tool in it is not valid, or the key that signs cannot be opened.
    """
    tools: tuple[OperatorTool, ...] = ()
    if settings.tools_file is not None:
        # Imports httpx, a tenth of a second that servers without such tools do not wait for.
        from mnemon_server.services.tools.tools_file import read_tools_file

        tools = await asyncio.to_thread(read_tools_file, settings.tools_file, settings.tool_endpoints_allowed)
    identified = [tool for tool in tools if tool.identity]
    more = {"sign": await asyncio.to_thread(_signer, settings)} if identified else {}
    registry = ToolRegistry(((tool, _endpoint(tool)) for tool in tools), calls_max=settings.tool_calls_max, **more)
    try:
        yield registry
    finally:
        await registry.aclose()


def make_tools(
    settings: Settings, facts: FactStore, recall: RecallStore, registry: ToolRegistry, offload: Offload
) -> ToolRunner:
    """Creates the tools of a vault. Raises ConfigurationError if one of their settings is invalid."""
    return ToolRunner(
        facts,
        recall,
        registry,
        offload,
        actions_permitted=settings.tool_actions_permitted,
        result_kib=settings.tool_result_kib,
    )


def _signer(settings: Settings) -> SignCaller:
    if is_in_memory(settings):
        raise ConfigurationError("a tool with identity = true needs a data folder, where the key is that signs")
    # Imports cryptography, which other servers do not wait for.
    from mnemon_server.engines.signing_key import TOOL_KEY, open_key
    from mnemon_server.services.tools.identity import CallerTokens

    key = open_key(settings.data_dir, TOOL_KEY)
    return CallerTokens(key.private, key.public["kid"]).sign


def _endpoint(tool: OperatorTool) -> ToolEndpoint:
    if not tool.http:
        return GrpcEndpoint(tool)
    from mnemon_server.services.tools.http_endpoint import HttpEndpoint

    return HttpEndpoint(tool)
