"""The asyncio client's methods for tools."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from mnemon import _tool_definitions as definitions
from mnemon._connection import AsyncConnection
from mnemon._messages import tool_requests
from mnemon._messages import tools as tool_convert
from mnemon._values import documents as values
from mnemon._values import tools
from mnemon.v1 import tools_pb2 as pb
from mnemon.v1.tools_pb2_grpc import ToolServiceStub

if TYPE_CHECKING:
    from mnemon.v1.tools_pb2_grpc import ToolServiceAsyncStub


class AsyncTools:
    """Memory as a language model uses it, which a client has as `client.tools`: what it is told, and what it calls.

        async with AsyncClient() as memory:
            told = await memory.tools.schemas("openai")
            await memory.tools.call("manage_memory", {"content": "Ada likes tea."}, config={"user_id": "ada"})

    What a model says are a tool's arguments. The application says where its memories are: `namespace` is labels, of
    which those in braces, such as "{user_id}", are filled from `config`, flat or under "configurable". Without one it
    is the server's setting, or ("org", org_id[, agent_id][, "user", user_id]), ("user", user_id[, "agent", agent_id])
    or ("agent", agent_id), by what `config` has. ConfigurationError where that gives no namespace. A call that fails
    is not repeated: only the caller knows whether an operator's tool may run twice.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(
        self,
        *,
        actions_permitted: Iterable[str] | None = None,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
        timeout: float | None = None,
    ) -> tuple[tools.Tool, ...]:
        """Returns the tools as a model is told of them: manage_memory, search_memory, and the operator's.

        `actions_permitted` are what manage_memory may do, of "create", "update" and "delete"; None: all that the server
        permits. Instructions take the place of what a description says of when to call the tool.
        """
        request = tool_requests.list_tools(
            actions_permitted=actions_permitted,
            manage_instructions=manage_instructions,
            search_instructions=search_instructions,
        )
        response = await self._connection._call(self._stub.ListTools, request, timeout)
        return tuple(map(tool_convert.tool_from_pb, response.tools))

    async def schemas(
        self,
        style: str = definitions.SchemaStyle.OPENAI,
        *,
        actions_permitted: Iterable[str] | None = None,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
        timeout: float | None = None,
    ) -> tools.Schemas:
        """Returns the tools of `list` as a model's API takes them, in the style "openai" or "anthropic"."""
        chosen = definitions.chosen_style(style)
        found = await self.list(
            actions_permitted=actions_permitted,
            manage_instructions=manage_instructions,
            search_instructions=search_instructions,
            timeout=timeout,
        )
        return [definitions.tool_schema(tool, chosen) for tool in found]

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        config: Mapping[str, Any] | None = None,
        namespace: Iterable[str] | str | None = None,
        actions_permitted: Iterable[str] | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        response_format: str = definitions.ResponseFormat.CONTENT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tools.ToolOutput:
        """Runs one tool and returns its output; `arguments` are an object, or its JSON as a model wrote it.

        `metadata` is put on every fact that is created. With `response_format="content_and_artifact"` search_memory
        gives the facts that it found, too. Arguments that are wrong are an InvalidArgumentError, an unknown tool is a
        ToolNotFoundError. The same `request_id` with the same call gets the same answer for 24 hours.
        """
        about = tool_requests.context(
            namespace=namespace, config=config, actions_permitted=actions_permitted, metadata=metadata
        )
        request = tool_requests.call(
            tool, arguments, about=about, response_format=response_format, request_id=request_id
        )
        response = await self._connection._call(self._stub.CallTool, request, timeout)
        return tool_convert.output_from_pb(response.output)

    async def parse(
        self, text: str, *, timeout: float | None = None, **options: Unpack[tools.ParseOptions]
    ) -> tools.ParsedText:
        """Reads the calls out of a model's text, and runs nothing. `options` are those of `ParseOptions`."""
        request = tool_requests.parse(text, options)
        response = await self._connection._call(self._stub.ParseToolCalls, request, timeout)
        return tool_convert.parsed_from_pb(response.parsed)

    async def execute(
        self,
        text: str,
        *,
        config: Mapping[str, Any] | None = None,
        namespace: Iterable[str] | str | None = None,
        actions_permitted: Iterable[str] | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        response_format: str = definitions.ResponseFormat.CONTENT,
        request_id: str | None = None,
        timeout: float | None = None,
        **options: Unpack[tools.ParseOptions],
    ) -> tools.ExecutedText:
        """Reads the calls out of a model's text and runs each, in order, 64 at most; a call that fails fails alone.

        The arguments are those of `call`, and `options` those of `ParseOptions`.
        """
        about = tool_requests.context(
            namespace=namespace, config=config, actions_permitted=actions_permitted, metadata=metadata
        )
        request = tool_requests.execute(
            text, options, about=about, response_format=response_format, request_id=request_id
        )
        return tool_convert.executed_from_pb(await self._connection._call(self._stub.ExecuteText, request, timeout))

    async def stats(self, *, timeout: float | None = None) -> tools.ProtocolStats:
        """Counts the texts that were read since the vault was opened, by what became of them."""
        request = pb.GetProtocolStatsRequest()
        return tool_convert.stats_from_pb(await self._connection._call(self._stub.GetProtocolStats, request, timeout))

    @property
    def _stub(self) -> "ToolServiceAsyncStub":
        return self._connection._stub(ToolServiceStub)
