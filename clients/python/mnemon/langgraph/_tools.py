"""The two memory tools as tools of LangChain."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException
from langgraph.config import get_store

import mnemon
from mnemon._async.client import AsyncClient
from mnemon._errors import ConfigurationError, InvalidArgumentError, NotFoundError
from mnemon._sync.client import Client
from mnemon._tool_definitions import (
    MANAGE_INSTRUCTIONS,
    MANAGE_MEMORY,
    SEARCH_INSTRUCTIONS,
    SEARCH_MEMORY,
    ToolDefinition,
    manage_definition,
    search_definition,
)
from mnemon.langgraph._async_store import AsyncMnemonStore
from mnemon.langgraph._sync_store import MnemonStore

Store = Client | AsyncClient | MnemonStore | AsyncMnemonStore


class MemoryToolError(ToolException, ValueError):
    """What a model asked of a tool is not valid, or names a memory that is not there; the sentence is for the model."""


def create_manage_memory_tool(
    namespace: tuple[str, ...] | str | None = None,
    *,
    store: Store | None = None,
    instructions: str = MANAGE_INSTRUCTIONS,
    actions_permitted: Iterable[Literal["create", "update", "delete"]] = ("create", "update", "delete"),
    name: str = MANAGE_MEMORY,
) -> StructuredTool:
    """A tool with which a model creates, updates and deletes memories.

    `namespace` is a template such as ("{user_id}", "memories"), which is filled from `config["configurable"]` of each
    call; without one it is made of the keys `org_id`, `user_id` and `agent_id` there. `store` is a client or a store of
    this package; without it the tool uses the store of the graph that it runs in.

    What a model does wrong comes back to it as the text of a tool message whose status is "error"; set the tool's
    `handle_tool_error` to False for a MemoryToolError instead. A namespace that cannot be filled is a
    `mnemon.ConfigurationError` in any case. Raises ValueError where `actions_permitted` is empty or unknown.
    """
    actions = tuple(actions_permitted)
    definition = manage_definition(actions, instructions)

    def tool(client: Any) -> Callable[..., Any]:
        return mnemon.create_manage_memory_tool(
            namespace, store=client, instructions=instructions, actions_permitted=actions, name=name
        )

    return _structured(name, definition, tool, store, "content")


def create_search_memory_tool(
    namespace: tuple[str, ...] | str | None = None,
    *,
    store: Store | None = None,
    instructions: str = SEARCH_INSTRUCTIONS,
    response_format: Literal["content", "content_and_artifact"] = "content",
    name: str = SEARCH_MEMORY,
) -> StructuredTool:
    """A tool with which a model searches the memories of a namespace; otherwise as `create_manage_memory_tool`.

    With the format "content_and_artifact" its message carries the facts found, as `mnemon.FactMatch` values, beside the
    JSON that the model reads.
    """

    def tool(client: Any) -> Callable[..., Any]:
        return mnemon.create_search_memory_tool(
            namespace, store=client, instructions=instructions, response_format=response_format, name=name
        )

    return _structured(name, search_definition(instructions), tool, store, response_format)


def _structured(
    name: str,
    definition: ToolDefinition,
    make: Callable[[Any], Callable[..., Any]],
    store: Store | None,
    response_format: Literal["content", "content_and_artifact"],
) -> StructuredTool:
    if store is not None:
        make(_client_of(store))  # what is wrong with the template is said now

    def call(config: RunnableConfig, **arguments: Any) -> Any:
        client = _client_of(store)
        if not isinstance(client, Client):
            raise TypeError(f"the store of {name} is asynchronous: call the tool with ainvoke")
        with _told_to_the_model():
            return make(client)(**_checked(arguments, definition), config=_identity(config))

    async def acall(config: RunnableConfig, **arguments: Any) -> Any:
        client = _client_of(store)
        if isinstance(client, Client):
            return await asyncio.to_thread(call, config, **arguments)
        with _told_to_the_model():
            return await make(client)(**_checked(arguments, definition), config=_identity(config))

    return StructuredTool.from_function(
        call,
        acall,
        name=name,
        description=definition.description,
        args_schema=definition.parameters,
        response_format=response_format,
        handle_tool_error=True,
    )


def _client_of(store: Store | None) -> Client | AsyncClient:
    found = store if store is not None else _graphs_store()
    if isinstance(found, MnemonStore | AsyncMnemonStore):
        return found.client
    if isinstance(found, Client | AsyncClient):
        return found
    raise ConfigurationError(
        f"the tool needs a mnemon client, a MnemonStore or an AsyncMnemonStore as its store or the graph's, "
        f"not {type(found).__name__}"
    )


def _graphs_store() -> object:
    try:
        return get_store()
    except (RuntimeError, KeyError):
        # Called outside of any graph: without a configuration, or with one that no graph made.
        return None


def _identity(config: RunnableConfig) -> dict[str, Any]:
    """What the namespace may be made of; the graph keeps its own machinery beside it."""
    given: Mapping[str, Any] = config.get("configurable") or {}
    return {key: value for key, value in given.items() if not key.startswith("__")}


def _checked(arguments: Mapping[str, Any], definition: ToolDefinition) -> dict[str, Any]:
    """The arguments, each one of the tool's; what is missing is None, so that the tool itself says what it needs."""
    known, needed = definition.parameters["properties"], definition.parameters["required"]
    if unknown := [key for key in arguments if key not in known]:
        raise MemoryToolError(f"{unknown[0]!r:.80} is no argument of this tool; its arguments are {', '.join(known)}")
    return {**dict.fromkeys(needed), **arguments}


@contextmanager
def _told_to_the_model() -> Iterator[None]:
    try:
        yield
    except (InvalidArgumentError, NotFoundError) as error:
        raise MemoryToolError(error.message) from error
