"""The MCP server: lists the tools, runs their calls, and reports errors in a sentence."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mnemon._async.client import AsyncClient
from mnemon._local_time import days_in
from mnemon._mcp.conversations import CONVERSATION_TOOLS
from mnemon._mcp.identity import Identity
from mnemon._mcp.searches import NOTHING_RELEVANT, OWN_TOOLS, OwnTool
from mnemon.shared.errors import ConfigurationError, MnemonError, ToolNotFoundError
from mnemon.shared.tool_definitions import MANAGE_MEMORY, SEARCH_MEMORY

_NAME = "mnemon"
_INSTRUCTIONS = (
    "Memory that lasts beyond this conversation. Search it before you answer, and keep in it what a later conversation "
    "will need."
)
_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ANNOTATIONS = {
    MANAGE_MEMORY: types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
    SEARCH_MEMORY: _READS,
    **{
        tool.name: _READS if tool.is_read else types.ToolAnnotations(destructive_hint=False, open_world_hint=False)
        for tool in (*OWN_TOOLS.values(), *CONVERSATION_TOOLS.values())
    },
}
_LOG = logging.getLogger(__name__)


def mcp_server(client: AsyncClient, identity: Identity, version: str) -> Server[Any]:
    """A server with the tools of the Mnemon server of `client`, further searches, and conversations of the user.

    Over HTTP, a request that has a credential is made as its caller, others as that of `client`.

    A failed call returns a result with the error in a sentence. Only failing to list the tools is an MCP error.
    """
    own_tools: Mapping[str, OwnTool] = {**OWN_TOOLS, **(CONVERSATION_TOOLS if identity.user else {})}

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            async with _acting(client, context) as acting:
                found = await acting.tools.list(actions_permitted=identity.actions or None)
        except MnemonError as error:
            raise MCPError(types.INTERNAL_ERROR, sentence(error)) from error
        told = [_tool(tool.name, tool.description, tool.parameters) for tool in found if tool.name not in own_tools]
        own = [_tool(tool.name, tool.description, tool.arguments.model_json_schema()) for tool in own_tools.values()]
        return types.ListToolsResult(tools=[*told, *own])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            async with _acting(client, context) as acting:
                own = own_tools.get(params.name)
                return _result(*await _run(acting, identity, own, params.name, params.arguments or {}))
        except ToolNotFoundError as error:
            return _failure(f"{sentence(error)}, {', '.join(map(repr, own_tools))}")
        except MnemonError as error:
            return _failure(sentence(error))
        except ValidationError as error:
            return _failure(_violations(error, own_tools[params.name].arguments.model_fields))
        except Exception:  # noqa: BLE001 - it is logged, and the model gets an error
            _LOG.exception("the call of %s failed", params.name)
            return _failure("the call failed inside of the MCP server; its log says why")

    return Server(_NAME, version=version, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def sentence(error: MnemonError) -> str:
    """The error for a person or a model."""
    incident = f" (incident {error.incident_id}, see the Mnemon server's log)" if error.incident_id else ""
    return f"{error.message}{incident}"


@asynccontextmanager
async def _acting(client: AsyncClient, context: ServerRequestContext[Any]) -> AsyncIterator[AsyncClient]:
    """The client of the caller whom the HTTP request names; otherwise the given one.

    A model makes few calls, so a connection for each costs little, and none is left to anybody else.
    """
    header = context.request.headers.get("authorization") if context.request is not None else None
    if header is None:
        yield client
        return
    scheme, _, credential = header.partition(" ")
    try:
        acting = client.acting_as(credential if scheme.lower() == "bearer" else "")
    except ValueError as error:
        raise ConfigurationError("the header must be `Authorization: Bearer` with an API key or a token") from error
    async with acting:
        yield acting


async def _run(
    client: AsyncClient, identity: Identity, own: OwnTool | None, name: str, arguments: Mapping[str, Any]
) -> list[str]:
    if own:
        with days_in(identity.time_zone or "UTC"):
            return [await own(client, identity, arguments)]
    output = await client.tools.call(
        name,
        arguments,
        namespace=identity.namespace or None,
        config=identity.config,
        actions_permitted=identity.actions or None,
        time_zone=identity.time_zone,
    )
    # The list of facts has its fixed form, so the note is a text of its own.
    is_noted = output.nothing_relevant and output.content != "[]"
    return [output.content, NOTHING_RELEVANT] if is_noted else [output.content]


def _tool(name: str, description: str, parameters: dict[str, Any]) -> types.Tool:
    return types.Tool(name=name, description=description, input_schema=parameters, annotations=_ANNOTATIONS.get(name))


def _result(*texts: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts])


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _violations(error: ValidationError, names: Iterable[str]) -> str:
    """What is wrong with the arguments, and what would be right; `names` are the valid ones."""
    known = f"is not a known name; known names: {', '.join(map(repr, names))}"
    right = {"missing": "must be given", "extra_forbidden": known}
    said = []
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        place, told = ".".join(map(str, each["loc"])) or "arguments", each["msg"].removeprefix("Value error, ")
        said.append(f"{place}: {right.get(each['type'], told) if len(each['loc']) == 1 else told}")
    return "; ".join(said)
