"""The asyncio client's object for tools."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from mnemon._async.service import AsyncService, Stub
from mnemon._messages import tools as tool_requests
from mnemon._messages.translation import read, request
from mnemon._values import documents as values
from mnemon._values import tools
from mnemon.shared import tool_definitions as definitions
from mnemon.v1 import tools_pb2 as pb
from mnemon.v1.tools_pb2_grpc import ToolServiceStub


class AsyncTools(AsyncService):
    """Memory for a language model, as `client.tools`: the tools' descriptions, and calls of the tools.

        async with AsyncClient() as memory:
            told = await memory.tools.schemas("openai")
            await memory.tools.call("manage_memory", {"content": "Ada likes tea."}, config={"user_id": "ada"})

    The model supplies a tool's arguments. The application decides where the memories are: `namespace` is a sequence of
    labels, and those in braces, such as "{user_id}", are filled from `config`, flat or under "configurable". The
    default is the server's setting, or ("org", org_id[, agent_id][, "user", user_id]), ("user", user_id[, "agent",
    agent_id]) or ("agent", agent_id), depending on `config`. Raises ConfigurationError if that gives no namespace. The
    client does not repeat a failed call, because only the caller knows whether an operator's tool may run twice.
    """

    _stub = Stub(ToolServiceStub)

    async def list(
        self,
        *,
        actions_permitted: Iterable[str] | None = None,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
        timeout: float | None = None,
    ) -> tuple[tools.Tool, ...]:
        """Returns the tools as a model sees them: manage_memory, search_memory, and the operator's.

        `actions_permitted` are the actions of manage_memory: "create", "update" and "delete". None means all that the
        server permits. Instructions replace the part of a description that says when to call the tool.
        """
        asked = request(
            pb.ListToolsRequest,
            actions_permitted=tool_requests.actions_to_pb(actions_permitted),
            manage_instructions=manage_instructions,
            search_instructions=search_instructions,
        )
        response = await self._call(self._stub.ListTools, asked, timeout)
        return tuple(read(tools.Tool, each) for each in response.tools)

    async def schemas(
        self,
        style: str = definitions.SchemaStyle.OPENAI,
        *,
        actions_permitted: Iterable[str] | None = None,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
        timeout: float | None = None,
    ) -> tools.Schemas:
        """Returns the tools of `list` in the format of a model's API: "openai", "openai-responses", "anthropic" or
        "gemini". Gemini takes them as `[{"functionDeclarations": schemas}]`.
        """
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
        arguments: Mapping[str, Any] | str | None,
        *,
        config: Mapping[str, Any] | None = None,
        namespace: Iterable[str] | str | None = None,
        actions_permitted: Iterable[str] | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        min_trust: str | None = None,
        time_zone: str = "",
        response_format: str = definitions.ResponseFormat.CONTENT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tools.ToolOutput:
        """Runs one tool and returns its output. `arguments` are an object, or JSON as a model wrote it, which is
        repaired as in `execute`; an empty text or None means no arguments.

        Every fact that is created gets this `metadata`. With `min_trust`, such as "agent", search_memory leaves out
        records whose origin is less trusted; it shows times in the `time_zone`, such as "Europe/Berlin", by default
        UTC. With `response_format="content_and_artifact"`, it also returns the facts. Raises InvalidArgumentError for
        wrong arguments and ToolNotFoundError for an unknown tool. The same `request_id` with the same call gets the
        same answer for 24 hours.
        """
        given = tool_requests.arguments_of(arguments)
        if isinstance(given, str):
            parsed = await self.parse(tool_requests.as_block(tool, given), timeout=timeout)
            given = tool_requests.repaired(given, parsed)
        about = tool_requests.context(
            namespace=namespace,
            config=config,
            actions_permitted=actions_permitted,
            metadata=metadata,
            min_trust=min_trust,
            time_zone=time_zone,
            keys=tool_requests.owner_keys(tool, given),
        )
        how = {"context": about, "response_format": response_format, "request_id": request_id}
        asked = request(pb.CallToolRequest, tool=tool, arguments=given, **how)
        response = await self._call(self._stub.CallTool, asked, timeout, repeatable=False)
        return read(tools.ToolOutput, response.output)

    async def parse(
        self, text: str, *, timeout: float | None = None, **options: Unpack[tools.ParseOptions]
    ) -> tools.ParsedText:
        """Finds the calls in a model's text without running them. `options` are those of `ParseOptions`."""
        asked = request(pb.ParseToolCallsRequest, text=text, options=tool_requests.options_to_pb(options))
        response = await self._call(self._stub.ParseToolCalls, asked, timeout)
        return read(tools.ParsedText, response.parsed)

    async def execute(
        self,
        text: str,
        *,
        config: Mapping[str, Any] | None = None,
        namespace: Iterable[str] | str | None = None,
        actions_permitted: Iterable[str] | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        min_trust: str | None = None,
        time_zone: str = "",
        response_format: str = definitions.ResponseFormat.CONTENT,
        request_id: str | None = None,
        timeout: float | None = None,
        **options: Unpack[tools.ParseOptions],
    ) -> tools.ExecutedText:
        """Finds the calls in a model's text and runs them in order, at most 64. One failed call does not stop the
        others. A block that cannot be read has no result: `parsed.problems` has its tool, its line and the reason.

        The arguments are those of `call`, and `options` those of `ParseOptions`.
        """
        about = tool_requests.context(
            namespace=namespace,
            config=config,
            actions_permitted=actions_permitted,
            metadata=metadata,
            min_trust=min_trust,
            time_zone=time_zone,
        )
        how = {"context": about, "response_format": response_format, "request_id": request_id}
        asked = request(pb.ExecuteTextRequest, text=text, options=tool_requests.options_to_pb(options), **how)
        return read(tools.ExecutedText, await self._call(self._stub.ExecuteText, asked, timeout, repeatable=False))

    async def stats(self, *, timeout: float | None = None) -> tools.ProtocolStats:
        """Counts the texts that were parsed since the vault was opened, by outcome."""
        answer = await self._call(self._stub.GetProtocolStats, pb.GetProtocolStatsRequest(), timeout)
        return read(tools.ProtocolStats, answer)
