"""The two memory tools as functions for a model's framework."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

from mnemon._async.client import AsyncClient
from mnemon._messages.convert import invalid, text
from mnemon._messages.tools import owner_keys
from mnemon._sync.client import Client
from mnemon._values.facts import FactMatch
from mnemon._values.tools import ToolOutput
from mnemon.shared import tool_definitions as definitions
from mnemon.shared.namespaces import needed_of, template_keys, template_labels
from mnemon.shared.tool_definitions import ResponseFormat, SchemaStyle, ToolDefinition

TextAndFacts: TypeAlias = tuple[str, list[FactMatch]]
"""The result of search_memory with the format "content_and_artifact"."""

_Returned_co = TypeVar("_Returned_co", covariant=True)


class MemoryTool(Protocol):
    """The description of a tool for a model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of the arguments, without `config`, which the application supplies."""

    def schema(self, style: str = SchemaStyle.OPENAI) -> dict[str, Any]:
        """The tool as a model's API takes it, in the style "openai" or "anthropic"."""


class ManageMemoryTool(MemoryTool, Protocol[_Returned_co]):
    """Creates, updates and deletes memories; returns a text, or an awaitable of it on an AsyncClient."""

    def __call__(
        self,
        content: str | None = None,
        action: str | None = None,
        *,
        id: str | UUID | None = None,  # noqa: A002 - the argument's name in the tool
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> _Returned_co:
        """Returns "created memory <id>", "updated memory <id>", "Deleted memory <id>" or "nothing was deleted: …".

        `metadata` is kept beside the content, and searches can filter by it; an update keeps the keys that it does not
        name, and removes keys set to None. If `action` is None, it is "create", or the first permitted action.
        Raises InvalidArgumentError for the first of these: the action is not permitted; an id is given to create; the
        id to update or delete is missing; another argument is wrong. Raises FactNotFoundError if the memory to update
        does not exist, and ConfigurationError if `config` does not fill the namespace.
        """


class SearchMemoryTool(MemoryTool, Protocol[_Returned_co]):
    """Searches memories; returns a text, alone or with the facts, or an awaitable of it on an AsyncClient."""

    def __call__(
        self,
        query: str,
        *,
        limit: int = definitions.LIMIT_DEFAULT,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the argument's name in the tool
        kinds: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> _Returned_co:
        """Returns the facts found, best first, as a JSON list of namespace, key, value, times and score.

        With `kinds`, such as ["fact", "event"], it returns records of these kinds, each with its kind; except for
        facts, they belong to the configuration's user and agent.
        Raises InvalidArgumentError for a wrong argument, such as an unknown operator of the filter, and
        ConfigurationError if `config` does not fill the namespace.
        """


@overload
def create_manage_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: Client,
    instructions: str = ...,
    actions_permitted: Iterable[str] = ...,
    name: str = ...,
) -> ManageMemoryTool[str]: ...


@overload
def create_manage_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: AsyncClient,
    instructions: str = ...,
    actions_permitted: Iterable[str] = ...,
    name: str = ...,
) -> ManageMemoryTool[Coroutine[Any, Any, str]]: ...


def create_manage_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: Client | AsyncClient,
    instructions: str = definitions.MANAGE_INSTRUCTIONS,
    actions_permitted: Iterable[str] = definitions.ALL_ACTIONS,
    name: str = definitions.MANAGE_MEMORY,
) -> Any:
    """The tool by which a model creates, updates and deletes memories. Creating it calls no server.

    `namespace` is a sequence of labels. Those in braces, such as "{user_id}", are filled from the `config` of each
    call, flat or under "configurable"; for None see `Tools`. Of a configuration, only the values of the required keys
    are sent (without a namespace `org_id`, `user_id` and `agent_id`), and the names of the others. On an AsyncClient
    the tool is a coroutine function.

    Raises InvalidArgumentError, a ValueError, if no action is permitted or one is unknown, and ConfigurationError if
    the namespace is not valid.
    """
    told = replace(definitions.manage_definition(actions_permitted, instructions), name=_name(name))
    permitted = told.actions_permitted
    # All actions that the server permits, which may be fewer.
    named = None if set(permitted) == set(definitions.ALL_ACTIONS) else permitted
    send = _sender(store, definitions.MANAGE_MEMORY, namespace, _content, actions_permitted=named)

    def manage_memory(
        content: str | None = None,
        action: str | None = None,
        *,
        id: str | UUID | None = None,  # noqa: A002 - the argument's name in the tool
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> str:
        chosen = definitions.chosen_action(action, id, permitted)
        key = None if id is None else str(id)
        found: str = send({"action": chosen, "content": content, "id": key, "metadata": metadata}, config)
        return found

    return _described(manage_memory, told, store)


@overload
def create_search_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: Client,
    instructions: str = ...,
    response_format: Literal["content"] = ...,
    min_trust: str | None = ...,
    time_zone: str = ...,
    name: str = ...,
) -> SearchMemoryTool[str]: ...


@overload
def create_search_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: Client,
    instructions: str = ...,
    response_format: Literal["content_and_artifact"],
    min_trust: str | None = ...,
    time_zone: str = ...,
    name: str = ...,
) -> SearchMemoryTool[TextAndFacts]: ...


@overload
def create_search_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: AsyncClient,
    instructions: str = ...,
    response_format: Literal["content"] = ...,
    min_trust: str | None = ...,
    time_zone: str = ...,
    name: str = ...,
) -> SearchMemoryTool[Coroutine[Any, Any, str]]: ...


@overload
def create_search_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: AsyncClient,
    instructions: str = ...,
    response_format: Literal["content_and_artifact"],
    min_trust: str | None = ...,
    time_zone: str = ...,
    name: str = ...,
) -> SearchMemoryTool[Coroutine[Any, Any, TextAndFacts]]: ...


def create_search_memory_tool(
    namespace: Iterable[str] | str | None = None,
    *,
    store: Client | AsyncClient,
    instructions: str = definitions.SEARCH_INSTRUCTIONS,
    response_format: str = "content",
    min_trust: str | None = None,
    time_zone: str = "",
    name: str = definitions.SEARCH_MEMORY,
) -> Any:
    """The tool by which a model searches its memories, by meaning and by word. Creating it calls no server.

    It returns a text; with `response_format="content_and_artifact"`, the text and the facts. With `min_trust`, such as
    "agent", it leaves out records whose origin is less trusted. Times are shown in the `time_zone`, such as
    "Europe/Berlin", by default UTC. `namespace` is the same as in `create_manage_memory_tool`.

    Raises InvalidArgumentError, a ValueError, for an unknown format, and ConfigurationError if the namespace is not
    valid.
    """
    told = replace(definitions.search_definition(instructions), name=_name(name))
    chosen = definitions.chosen_format(response_format)
    receive = _content if chosen is ResponseFormat.CONTENT else _content_and_artifact
    how = {"response_format": chosen, "min_trust": min_trust, "time_zone": time_zone}
    send = _sender(store, definitions.SEARCH_MEMORY, namespace, receive, **how)

    def search_memory(
        query: str,
        *,
        limit: int = definitions.LIMIT_DEFAULT,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the argument's name in the tool
        kinds: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> str | TextAndFacts:
        asked = {"query": query, "limit": limit, "offset": offset, "filter": filter, "kinds": kinds}
        found: str | TextAndFacts = send(asked, config)
        return found

    return _described(search_memory, told, store)


def _sender(
    store: Client | AsyncClient,
    tool: str,
    namespace: Iterable[str] | str | None,
    receive: Callable[[ToolOutput], Any],
    **always: Any,
) -> Callable[[dict[str, Any], Mapping[str, Any] | None], Any]:
    """Calls the tool with arguments and a configuration; returns the answer or an awaitable of it."""
    labels = template_labels(namespace)
    keys = template_keys(labels)

    def call(arguments: dict[str, Any], config: Mapping[str, Any] | None) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if value is not None}
        sent = needed_of(config, {*keys, *owner_keys(tool, given)})
        return {"tool": tool, "arguments": given, "config": sent, "namespace": labels or None, **always}

    async def send_async(store: AsyncClient, arguments: dict[str, Any], config: Mapping[str, Any] | None) -> Any:
        return receive(await store.tools.call(**call(arguments, config)))

    if isinstance(store, AsyncClient):
        return partial(send_async, store)
    if isinstance(store, Client):
        return lambda arguments, config: receive(store.tools.call(**call(arguments, config)))
    raise invalid("store", f"must be a Client or an AsyncClient, not {type(store).__name__}")


def _described(function: Callable[..., Any], told: ToolDefinition, store: Client | AsyncClient) -> Any:
    """The function as a tool with the name and schema for a model; a coroutine function on an AsyncClient."""
    tool = _awaited(function) if isinstance(store, AsyncClient) else function
    tool.__name__ = tool.__qualname__ = told.name
    tool.__doc__ = told.description
    # A function, because frameworks look for one; its attributes say what its signature cannot.
    vars(tool).update(
        name=told.name,
        description=told.description,
        parameters=told.parameters,
        schema=partial(_schema, told),
    )
    return tool


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return call


def _schema(told: ToolDefinition, style: str = SchemaStyle.OPENAI) -> dict[str, Any]:
    return definitions.tool_schema(told, style)


def _content(output: ToolOutput) -> str:
    return output.content


def _content_and_artifact(output: ToolOutput) -> TextAndFacts:
    return output.content, list(output.artifact)


def _name(given: object) -> str:
    if not text("name", given):
        raise invalid("name", "must not be empty")
    return str(given)
