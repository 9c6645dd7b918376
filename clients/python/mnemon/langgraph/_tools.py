"""The two memory tools as tools of LangChain."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException
from langgraph.config import get_store
from langgraph.store.base import BaseStore
from pydantic import TypeAdapter, ValidationError

import mnemon
from mnemon._async.client import AsyncClient
from mnemon._sync.client import Client
from mnemon.langgraph._async_store import AsyncMnemonStore
from mnemon.langgraph._searching import take, take_async
from mnemon.langgraph._store_tools import Tool, manage_steps, search_steps
from mnemon.langgraph._sync_store import MnemonStore
from mnemon.shared.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from mnemon.shared.tool_definitions import (
    KINDS,
    MANAGE_INSTRUCTIONS,
    MANAGE_MEMORY,
    SEARCH_INSTRUCTIONS,
    SEARCH_MEMORY,
    ToolDefinition,
    manage_definition,
    search_definition,
)

Store = Client | AsyncClient | BaseStore


class MemoryToolError(ToolException, ValueError):
    """A model's call is not valid, or names a missing memory. The message is for the model."""


def create_manage_memory_tool(
    namespace: tuple[str, ...] | str | None = None,
    *,
    instructions: str = MANAGE_INSTRUCTIONS,
    schema: Any = str,
    actions_permitted: Iterable[Literal["create", "update", "delete"]] = ("create", "update", "delete"),
    store: Store | None = None,
    name: str = MANAGE_MEMORY,
) -> StructuredTool:
    """A tool with which a model creates, updates and deletes memories.

    `namespace` is a template such as ("{user_id}", "memories"), which is filled from `config["configurable"]` of each
    call; without one, the keys `org_id`, `user_id` and `agent_id` form the namespace. `store` is a client or any
    LangGraph store; the default is the store of the graph in which the tool runs.

    `schema` is the type of a memory's content: text, or a pydantic model, a TypedDict or a dataclass. It is stored as
    JSON: as text on Mnemon, as an object in another store.

    A model's mistake comes back to it as a tool message with the status "error"; set the tool's `handle_tool_error` to
    False to raise a MemoryToolError instead. A namespace that cannot be filled always raises
    `mnemon.ConfigurationError`. Raises ValueError if `actions_permitted` is empty or unknown.
    """
    actions = tuple(actions_permitted)
    content = None if schema is str else TypeAdapter(schema)
    definition = _with_content(manage_definition(actions, instructions), content)

    def on_server(client: Any) -> Callable[..., Any]:
        return mnemon.create_manage_memory_tool(
            namespace, store=client, instructions=instructions, actions_permitted=actions, name=name
        )

    return _structured(name, _Way(definition, on_server, manage_steps(namespace, actions), content), store, "content")


def create_search_memory_tool(
    namespace: tuple[str, ...] | str | None = None,
    *,
    instructions: str = SEARCH_INSTRUCTIONS,
    store: Store | None = None,
    response_format: Literal["content", "content_and_artifact"] = "content",
    time_zone: str = "",
    name: str = SEARCH_MEMORY,
) -> StructuredTool:
    """A tool with which a model searches the memories of a namespace; otherwise as `create_manage_memory_tool`.

    With the format "content_and_artifact", its message carries the results beside the JSON for the model: as
    `mnemon.FactMatch` values on Mnemon, as items of another store. If `store` is Mnemon's, a model can search other
    kinds of records, too. Times are shown in the `time_zone`, such as "Europe/Berlin", by default UTC.
    """

    def on_server(client: Any) -> Callable[..., Any]:
        return mnemon.create_search_memory_tool(
            namespace,
            store=client,
            instructions=instructions,
            response_format=response_format,
            time_zone=time_zone,
            name=name,
        )

    # Other stores hold only facts, and which store it is may only be known in the graph.
    has_kinds = store is not None and not isinstance(_backend_of(store), BaseStore)
    definition = search_definition(instructions, kinds=KINDS if has_kinds else ())
    way = _Way(definition, on_server, search_steps(namespace, response_format, time_zone))
    return _structured(name, way, store, response_format)


@dataclass(frozen=True, slots=True)
class _Way:
    """The description of a tool for a model, and its calls."""

    definition: ToolDefinition
    on_server: Callable[[Any], Callable[..., Any]]
    """The tool on a client."""
    in_store: Tool
    """The tool on a store that is not Mnemon's."""
    content: TypeAdapter[Any] | None = None
    """The type of the content; None means text."""

    def arguments(self, given: Mapping[str, Any], store: object) -> dict[str, Any]:
        """The arguments for the tool on this store."""
        checked = _checked(given, self.definition)
        if self.content is not None and checked.get("content") is not None:
            checked["content"] = _as_json(self.content, checked["content"], as_text=not isinstance(store, BaseStore))
        return checked


def _with_content(definition: ToolDefinition, content: TypeAdapter[Any] | None) -> ToolDefinition:
    """The definition with another form of the content, where the tool takes any."""
    parameters = deepcopy(definition.parameters)
    if content is None or "content" not in parameters["properties"]:
        return definition
    described = content.json_schema()
    # References in a schema start at its root.
    parameters |= {"$defs": described.pop("$defs")} if "$defs" in described else {}
    parameters["properties"]["content"] = described | {
        "description": parameters["properties"]["content"]["description"]
    }
    return replace(definition, parameters=parameters)


def _as_json(content: TypeAdapter[Any], given: Any, *, as_text: bool) -> Any:
    """The content as JSON; a text may be JSON already. Raises MemoryToolError if it does not match the schema."""
    try:
        valid = content.validate_json(given) if isinstance(given, str) else content.validate_python(given)
    except ValidationError as error:
        raise MemoryToolError(f"content: {error}") from error
    return content.dump_json(valid).decode() if as_text else content.dump_python(valid, mode="json")


def _structured(
    name: str, way: _Way, store: Store | None, response_format: Literal["content", "content_and_artifact"]
) -> StructuredTool:
    if store is not None and not isinstance(found := _backend_of(store), BaseStore):
        way.on_server(found)  # reports an invalid template at once

    def call(config: RunnableConfig, **arguments: Any) -> Any:
        backend = _backend_of(store)
        if isinstance(backend, AsyncClient):
            raise TypeError(f"the store of {name} is asynchronous: call the tool with ainvoke")
        with _told_to_the_model():
            given = {**way.arguments(arguments, backend), "config": _identity(config)}
            if isinstance(backend, BaseStore):
                return take(way.in_store(**given), lambda step: step[0](backend))
            return way.on_server(backend)(**given)

    async def acall(config: RunnableConfig, **arguments: Any) -> Any:
        backend = _backend_of(store)
        if isinstance(backend, Client):
            return await asyncio.to_thread(call, config, **arguments)
        with _told_to_the_model():
            given = {**way.arguments(arguments, backend), "config": _identity(config)}
            if isinstance(backend, BaseStore):
                return await take_async(way.in_store(**given), lambda step: step[1](backend))
            return await way.on_server(backend)(**given)

    return StructuredTool.from_function(
        call,
        acall,
        name=name,
        description=way.definition.description,
        args_schema=way.definition.parameters,
        response_format=response_format,
        handle_tool_error=True,
    )


def _backend_of(store: Store | None) -> Client | AsyncClient | BaseStore:
    """The store or client of the tool; for Mnemon's stores, their client."""
    found = store if store is not None else _graphs_store()
    if isinstance(found, MnemonStore | AsyncMnemonStore):
        return found.client
    if isinstance(found, Client | AsyncClient | BaseStore):
        return found
    raise ConfigurationError(
        "the tool needs a mnemon client, a MnemonStore or another store of LangGraph's as its store or the graph's, "
        f"not {type(found).__name__}"
    )


def _graphs_store() -> object:
    try:
        return get_store()
    except (RuntimeError, KeyError):
        # Called outside a graph: without a configuration, or with one that is not a graph's.
        return None


def _identity(config: RunnableConfig) -> dict[str, Any]:
    """The values for the namespace, without the graph's own internals."""
    given: Mapping[str, Any] = config.get("configurable") or {}
    return {key: value for key, value in given.items() if not key.startswith("__")}


def _checked(arguments: Mapping[str, Any], definition: ToolDefinition) -> dict[str, Any]:
    """The arguments of the tool. Missing ones are None, so that the tool itself reports them."""
    known, needed = definition.parameters["properties"], definition.parameters["required"]
    if unknown := [key for key in arguments if key not in known]:
        raise MemoryToolError(f"{unknown[0]!r:.80} is not an argument; the arguments are {', '.join(known)}")
    return {**dict.fromkeys(needed), **arguments}


@contextmanager
def _told_to_the_model() -> Iterator[None]:
    try:
        yield
    except MemoryToolError:
        raise
    except (InvalidArgumentError, NotFoundError) as error:
        raise MemoryToolError(error.message) from error
    except ValueError as error:
        # Raised by a store other than Mnemon's, for example for an unknown operator.
        raise MemoryToolError(str(error)) from error
