"""Short helpers for requests about tools and facts, and for their answers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.struct_pb2 import Struct
from mnemon.v1 import facts_pb2, tools_pb2

ADA = {"user_id": "ada"}


def struct(values: Mapping[str, Any]) -> Struct:
    """A JSON object as a message."""
    message = Struct()
    message.update(values)
    return message


def context(config: Mapping[str, Any] | None = None, **fields: Any) -> tools_pb2.ToolContext:
    """The application's context of a call: whose it is, and what is permitted."""
    return tools_pb2.ToolContext(config=struct(ADA if config is None else config), **fields)


async def call(
    tools: Any, tool: str, arguments: Mapping[str, Any], about: tools_pb2.ToolContext | None = None, **fields: Any
) -> tools_pb2.ToolOutput:
    """The answer of a tool."""
    request = tools_pb2.CallToolRequest(tool=tool, arguments=struct(arguments), context=about or context(), **fields)
    response: tools_pb2.CallToolResponse = await tools.CallTool(request)
    return response.output


async def remember(tools: Any, content: str, about: tools_pb2.ToolContext | None = None) -> str:
    """Stores a memory. Returns its id."""
    output = await call(tools, "manage_memory", {"content": content}, about)
    return output.content.removeprefix("created memory ")


async def recall(
    tools: Any, query: str, about: tools_pb2.ToolContext | None = None, **arguments: Any
) -> list[dict[str, Any]]:
    """The facts that search_memory returns to a model."""
    output = await call(tools, "search_memory", {"query": query, **arguments}, about)
    found: list[dict[str, Any]] = json.loads(output.content)
    return found


async def put(
    facts: Any, namespace: Sequence[str], key: str, value: Mapping[str, Any], **fields: Any
) -> facts_pb2.PutFactResponse:
    """Stores a fact."""
    fact = facts_pb2.Fact(namespace=namespace, key=key, value=struct(value), **fields)
    response: facts_pb2.PutFactResponse = await facts.PutFact(facts_pb2.PutFactRequest(fact=fact))
    return response


async def everything(facts: Any) -> list[facts_pb2.Fact]:
    """All facts of the vault."""
    found: list[facts_pb2.Fact] = []
    token = ""
    while True:
        all_of_them = facts_pb2.FactFilter(subtree=True)
        wanted = facts_pb2.ListFactsRequest(filter=all_of_them, page_size=1_000, page_token=token)
        page = await facts.ListFacts(wanted)
        found += page.facts
        if not (token := page.next_page_token):
            return found
