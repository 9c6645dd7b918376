"""Tool runners over the facts for tests of the tools' service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from mnemon_server.domain.tools import CallTool, OperatorTool, ToolContext, ToolOutput
from mnemon_server.ranking.fusion import DEFAULT_FUSION
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.tool_namespaces import ToolNamespaces
from mnemon_server.services.recall.kinds import Stores
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.recall.tokenizers import Tokenizers
from mnemon_server.services.tools.http_endpoint import HttpEndpoint
from mnemon_server.services.tools.registry import ToolRegistry
from mnemon_server.services.tools.service import ToolRunner

from tests.support.fact_stores import OpenedFacts, open_facts

ADA = ToolContext(config={"user_id": "ada"})


class OpenedTools:
    """A tool runner with the facts that it works on."""

    def __init__(self, runner: ToolRunner, facts: OpenedFacts) -> None:
        self.runner, self.facts = runner, facts

    async def output(
        self, tool: str, context: ToolContext = ADA, /, request_id: str = "", **arguments: Any
    ) -> ToolOutput:
        """The output of a tool."""
        return await self.runner.call(
            CallTool(tool=tool, arguments=arguments, context=context, request_id=request_id, artifact=True)
        )

    async def manage(self, context: ToolContext = ADA, /, **arguments: Any) -> str:
        """The output of `manage_memory`."""
        return (await self.output("manage_memory", context, **arguments)).content

    async def remember(self, content: str, context: ToolContext = ADA) -> str:
        """Creates a memory and returns its id."""
        return (await self.manage(context, content=content, action="create")).removeprefix("created memory ")


@asynccontextmanager
async def open_tools(folder: Path, tools: Sequence[OperatorTool] = (), **options: Any) -> AsyncIterator[OpenedTools]:
    """A tool runner over facts alone, with tools at HTTP endpoints. `options` are passed to ToolRunner, except for the
    template of namespaces.
    """
    async with AsyncExitStack() as stack:
        facts = await stack.enter_async_context(open_facts(folder))
        offload = Offload(2, "tools")
        stack.callback(offload.close)
        registry = ToolRegistry([(tool, HttpEndpoint(tool)) for tool in tools])
        stack.push_async_callback(registry.aclose)
        nothing, namespaces = cast("Any", None), ToolNamespaces(options.pop("namespace", ()))
        stores = Stores(nothing, nothing, facts.store, nothing, nothing)
        recall = RecallStore(stores, namespaces, Tokenizers(), nothing, DEFAULT_FUSION, offload)
        yield OpenedTools(ToolRunner(facts.store, recall, registry, offload, **options), facts)
