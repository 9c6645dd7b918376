"""The memory tools as functions: their descriptions, what they refuse, and what they send of a configuration."""

import inspect
from typing import Any
from uuid import UUID

import mnemon
import pytest
from mnemon import AsyncClient, Client, create_manage_memory_tool, create_search_memory_tool
from mnemon._messages.json import object_from_pb
from mnemon.v1 import facts_pb2
from mnemon.v1 import tools_pb2 as pb

from tests.unit.client.scripted_server import scripted_server

ID = "6f2c1d3e-0000-4000-8000-000000000001"
ADA = {"user_id": "ada"}
DONE = pb.CallToolResponse(output=pb.ToolOutput(content="created memory 1"))
MATCH = facts_pb2.FactMatch(fact=facts_pb2.Fact(key="tea"), score={"relevance": 0.5})
FOUND = pb.CallToolResponse(output=pb.ToolOutput(content="[...]", artifact=[MATCH]))
NOWHERE = Client("127.0.0.1:1")
NO_LABEL = "must be text of 1 to 256 bytes without U+0000, and not blank"


@pytest.mark.parametrize(
    ("namespace", "advice"),
    [
        ("user.ada", r"\('user', 'ada'\) or \('user.ada',\)$"),
        ("ada@example.org", r"a tuple of labels: \('ada@example.org',\)$"),
        ("{user_id}.notes", r"\('\{user_id\}', 'notes'\) or"),
    ],
)
def test_a_namespace_as_a_text_with_dots_is_refused_with_both_readings(namespace: str, advice: str) -> None:
    for create in (create_manage_memory_tool, create_search_memory_tool):
        with pytest.raises(mnemon.ConfigurationError, match=advice):
            create(namespace, store=NOWHERE)
    with pytest.raises(mnemon.ConfigurationError, match=advice):
        NOWHERE.tools.call("search_memory", {"query": "tea"}, namespace=namespace)


def test_a_tool_describes_itself_to_a_model() -> None:
    manage = create_manage_memory_tool(store=NOWHERE, instructions="Only food.", actions_permitted=("create", "update"))
    search = create_search_memory_tool(store=NOWHERE, instructions="Ask first.", name="recall")

    assert manage.name == "manage_memory"
    assert manage.description == (
        "Create or update memories that are kept for later conversations. Leave `id` out to create a memory. "
        "Give the `id` of the memory to update.\nOnly food."
    )
    assert manage.parameters["properties"]["action"]["enum"] == ["create", "update"]
    assert search.description.endswith("by meaning and by word.\nAsk first.")
    assert search.schema("anthropic")["name"] == search.name == "recall"
    assert search.schema() == search.schema("openai")
    assert search.schema()["function"]["parameters"] == search.parameters
    with pytest.raises(
        ValueError, match=r"^style: must be one of 'openai', 'openai-responses', 'anthropic', 'gemini', not 'x'"
    ):
        search.schema("x")


def test_a_tool_is_a_function_that_frameworks_can_inspect() -> None:
    manage = create_manage_memory_tool(store=NOWHERE, name="remember")
    search = create_search_memory_tool(store=AsyncClient("127.0.0.1:1"))

    assert inspect.isfunction(manage) and not inspect.iscoroutinefunction(manage)
    assert (manage.__name__, manage.__doc__) == ("remember", manage.description)
    assert list(inspect.signature(manage).parameters) == ["content", "action", "id", "metadata", "config"]
    assert inspect.iscoroutinefunction(search)
    assert list(inspect.signature(search).parameters) == ["query", "limit", "offset", "filter", "kinds", "config"]


@pytest.mark.parametrize("actions", [(), ["purge"], ["create", "CREATE"]])
def test_permitted_actions_are_refused_when_the_tool_is_made(actions: Any) -> None:
    with pytest.raises(ValueError, match=r"^actions_permitted: (may|must) contain") as raised:
        create_manage_memory_tool(store=NOWHERE, actions_permitted=actions)
    assert isinstance(raised.value, mnemon.InvalidArgumentError)


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        ((), "a namespace must have 1 to 16 labels"),
        (("a",) * 17, "a namespace must have 1 to 16 labels"),
        (("u-{user_id}",), "the namespace's label 'u-{user_id}' must be one key in braces, or have no braces"),
        (("{}",), "the namespace's label '{}' must be one key in braces, or have no braces"),
        (("a", ""), f"the namespace's label '' {NO_LABEL}"),
        (("ä" * 129,), f"the namespace's label '{'ä' * 80}' {NO_LABEL}"),
        (("a", 5.5), "the labels of a namespace must be text, not float"),
    ],
)
def test_a_namespace_is_refused_when_the_tool_is_made(namespace: Any, said: str) -> None:
    for create in (create_manage_memory_tool, create_search_memory_tool):
        with pytest.raises(mnemon.ConfigurationError) as raised:
            create(namespace, store=NOWHERE)
        assert (str(raised.value), raised.value.reason) == (said, "CONFIGURATION")
        assert not isinstance(raised.value, ValueError)


def test_other_arguments_of_a_factory_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="response_format: must be one of 'content', 'content_and_artifact'"):
        create_search_memory_tool(store=NOWHERE, response_format="json")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="store: must be a Client or an AsyncClient, not dict"):
        create_manage_memory_tool(store={})  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="name: must not be empty"):
        create_manage_memory_tool(store=NOWHERE, name="")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "delete", "id": ""}, "action: must be one of 'create', 'update', not 'delete'"),
        ({"action": "CREATE"}, "action: must be one of 'create', 'update', not 'CREATE'"),
        ({"action": "create", "id": ID}, "id: must be left out to create a memory: it gets an id of its own"),
        ({"id": ID}, "id: must be left out to create a memory: it gets an id of its own"),
        ({"action": "update", "content": "x"}, "id: must name the memory to update"),
    ],
)
async def test_a_call_is_refused_before_sending_for_its_first_error(arguments: dict[str, Any], said: str) -> None:
    permitted = ("create", "update")
    manage = create_manage_memory_tool(store=NOWHERE, actions_permitted=permitted)
    with pytest.raises(ValueError) as raised:
        manage(**arguments, config={"user_id": 5})
    assert str(raised.value) == said
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(ValueError) as raised:
            await create_manage_memory_tool(store=client, actions_permitted=permitted)(**arguments)
    assert str(raised.value) == said


def test_a_call_sends_its_arguments_and_the_keys_of_the_namespace() -> None:
    with scripted_server(lambda *_: DONE) as (address, server), Client(address) as client:
        manage = create_manage_memory_tool(("{user_id}", "notes"), store=client, actions_permitted=["update", "create"])
        config = {"user_id": "ada", "key": "secret", "configurable": {"user_id": "ada", "thread": object()}, 7: "x"}
        assert manage("tea", config=config) == "created memory 1"
        manage("tea", "update", id=UUID(ID), config={"configurable": ADA})

    created, updated = server.requests
    assert (created.tool, object_from_pb(created.arguments)) == (
        "manage_memory",
        {"action": "create", "content": "tea"},
    )
    assert list(created.context.namespace) == ["{user_id}", "notes"]
    assert list(created.context.actions_permitted) == [pb.MEMORY_ACTION_UPDATE, pb.MEMORY_ACTION_CREATE]
    assert object_from_pb(created.context.config) == {
        "user_id": "ada",
        "key": None,
        "configurable": {"user_id": "ada", "thread": None},
    }
    assert object_from_pb(updated.arguments) == {"action": "update", "content": "tea", "id": ID}
    assert "" != created.request_id != updated.request_id != ""


def test_without_a_namespace_the_default_keys_are_sent() -> None:
    with scripted_server(lambda *_: DONE) as (address, server), Client(address) as client:
        manage = create_manage_memory_tool(store=client)
        manage("tea", config={"org_id": "o", "user_id": "u", "agent_id": "a", "api_key": "secret"})
        manage("tea")
        create_manage_memory_tool("notes", store=client)("tea", config={"user_id": object()})

    usual, none, fixed = (request.context for request in server.requests)
    assert object_from_pb(usual.config) == {"org_id": "o", "user_id": "u", "agent_id": "a", "api_key": None}
    assert not usual.namespace
    # The tool permits everything here. The server may permit less.
    assert not usual.actions_permitted
    assert object_from_pb(none.config) == {}
    assert (list(fixed.namespace), object_from_pb(fixed.config)) == (["notes"], {})


@pytest.mark.parametrize("value", [None, 5.5, True, object(), ["ada"]])
def test_an_invalid_label_is_reported_by_its_type_only(value: object) -> None:
    manage = create_manage_memory_tool(store=NOWHERE)
    for config in ({"user_id": value}, {"configurable": {"user_id": value}}):
        with pytest.raises(mnemon.ConfigurationError) as raised:
            manage("tea", config=config)
        assert str(raised.value) == f"the configuration's 'user_id' must be text, not {type(value).__name__}"


def test_a_value_that_is_not_unicode_is_reported_without_it() -> None:
    with pytest.raises(mnemon.ConfigurationError, match="the configuration's 'user_id' must be valid Unicode"):
        create_manage_memory_tool(store=NOWHERE)("tea", config={"user_id": "\ud800"})


async def test_on_an_asyncio_client_the_tools_are_awaited() -> None:
    with scripted_server(lambda *_: DONE, lambda *_: FOUND) as (address, server):
        async with AsyncClient(address) as client:
            assert await create_manage_memory_tool(store=client)("tea", config=ADA) == "created memory 1"
            search = create_search_memory_tool(store=client, response_format="content_and_artifact")
            text, facts = await search("tea", config=ADA)
    assert (text, [match.key for match in facts]) == ("[...]", ["tea"])
    assert object_from_pb(server.requests[0].context.config) == ADA
