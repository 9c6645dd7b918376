"""The memory tools as LangChain tools: in a graph with a scripted model, and called directly."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any, Literal

import mnemon
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from mnemon import AsyncClient, Client
from mnemon.langgraph import (
    AsyncMnemonStore,
    MemoryToolError,
    MnemonStore,
    create_manage_memory_tool,
    create_search_memory_tool,
)
from pydantic import BaseModel

ADA: RunnableConfig = {"configurable": {"user_id": "ada"}}
NAMESPACE = ("{user_id}", "memories")


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as opened:
        opened.facts.delete_many((), subtree=True)
        yield opened


@pytest.fixture
async def asyncio_client(address: str, client: Client) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(address) as opened:
        yield opened


def called(tool: str, arguments: dict[str, Any], call_id: str = "1") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": call_id, "type": "tool_call"}])


def agent(script: list[AIMessage], tools: list[StructuredTool], store: Any = None) -> CompiledStateGraph[Any]:
    """An agent with the tools, whose model follows the script."""
    model = GenericFakeChatModel(messages=iter(script))

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", think)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(store=store)


async def said_by_tools(graph: CompiledStateGraph[Any], config: RunnableConfig = ADA) -> list[ToolMessage]:
    answer = await graph.ainvoke({"messages": [("user", "Remember that I like green tea.")]}, config)
    assert answer["messages"][-1].content == "Done."
    return [message for message in answer["messages"] if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("kind", ["client", "asyncio client", "store", "asyncio store", "graph", "asyncio graph"])
async def test_an_agent_remembers_and_finds_it_again(client: Client, asyncio_client: AsyncClient, kind: str) -> None:
    stores: dict[str, Any] = {
        "client": client,
        "asyncio client": asyncio_client,
        "store": MnemonStore(client),
        "asyncio store": AsyncMnemonStore(asyncio_client),
    }
    of_graph = {"graph": MnemonStore(client), "asyncio graph": AsyncMnemonStore(asyncio_client)}.get(kind)
    store = stores.get(kind)
    tools = [create_manage_memory_tool(NAMESPACE, store=store), create_search_memory_tool(NAMESPACE, store=store)]
    script = [
        called("manage_memory", {"content": "Ada likes green tea."}),
        called("search_memory", {"query": "Which tea does she drink?"}),
        AIMessage("Done."),
    ]

    created, found = await said_by_tools(agent(script, tools, of_graph))

    (fact,) = client.facts.list(("ada", "memories"))
    assert created.content == f"created memory {fact.key}"
    (memory,) = json.loads(str(found.content))
    assert (memory["key"], memory["value"]) == (fact.key, {"content": "Ada likes green tea."})
    assert memory["namespace"] == ["ada", "memories"]


async def test_the_search_returns_the_facts_as_its_artifact(client: Client) -> None:
    client.facts.put(("ada", "memories"), "tea", {"content": "Ada likes green tea."})
    search = create_search_memory_tool(NAMESPACE, store=client, response_format="content_and_artifact")

    (found,) = await said_by_tools(agent([called("search_memory", {"query": "tea"}), AIMessage("Done.")], [search]))

    (match,) = found.artifact
    assert isinstance(match, mnemon.FactMatch)
    assert (match.key, match.value) == ("tea", {"content": "Ada likes green tea."})
    assert json.loads(str(found.content))[0]["key"] == "tea"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"action": "update", "content": "x"}, "id"),
        ({"action": "update", "content": "x", "id": "of-nobody"}, "of-nobody"),
        ({"action": "create", "content": "x", "id": "mine"}, "id"),
        ({"action": "forget", "content": "x"}, "action"),
        ({"content": "x", "namespace": ["bob"]}, "'namespace' is not an argument"),
        ({}, "content"),
    ],
    ids=str,
)
async def test_a_mistake_of_the_model_is_reported_to_it(
    client: Client, arguments: dict[str, Any], sentence: str
) -> None:
    manage = create_manage_memory_tool(NAMESPACE, store=client)

    (answer,) = await said_by_tools(agent([called("manage_memory", arguments), AIMessage("Done.")], [manage]))

    assert answer.status == "error"
    assert sentence in str(answer.content)
    assert list(client.facts.list((), subtree=True)) == []


def test_a_mistake_of_the_model_can_be_raised_instead(client: Client) -> None:
    manage = create_manage_memory_tool(NAMESPACE, store=client, actions_permitted=("create", "update"))
    manage.handle_tool_error = False

    with pytest.raises(MemoryToolError, match="action") as refused:
        manage.invoke({"action": "delete", "id": "x"}, ADA)
    assert isinstance(refused.value, ValueError)


async def test_a_search_without_a_query_is_reported_to_the_model(client: Client) -> None:
    search = create_search_memory_tool(NAMESPACE, store=client)

    (answer,) = await said_by_tools(agent([called("search_memory", {"limit": 3}), AIMessage("Done.")], [search]))

    assert (answer.status, "query" in str(answer.content)) == ("error", True)


async def test_each_call_uses_the_namespace_of_its_own_configuration(client: Client) -> None:
    manage = create_manage_memory_tool(NAMESPACE, store=client)

    for user in ("ada", "bob"):
        config: RunnableConfig = {"configurable": {"user_id": user, "thread_id": "7"}}
        await manage.ainvoke({"content": f"{user} was here"}, config)

    assert sorted(client.facts.list_namespaces()) == [("ada", "memories"), ("bob", "memories")]


async def test_a_namespace_with_missing_keys_is_the_applications_error(client: Client) -> None:
    manage = create_manage_memory_tool(NAMESPACE, store=client)

    with pytest.raises(mnemon.ConfigurationError, match=r"user_id.*thread_id"):
        await agent([called("manage_memory", {"content": "x"})], [manage]).ainvoke(
            {"messages": [("user", "Hi")]}, {"configurable": {"thread_id": "7"}}
        )


def test_a_template_that_is_not_valid_is_refused_when_the_tool_is_made(client: Client) -> None:
    with pytest.raises(mnemon.ConfigurationError, match="user-"):
        create_manage_memory_tool(("user-{user_id}",), store=client)


def test_without_actions_no_tool_is_made() -> None:
    with pytest.raises(ValueError, match="actions_permitted"):
        create_manage_memory_tool(NAMESPACE, actions_permitted=())


def test_without_a_store_the_tool_says_what_it_needs() -> None:
    with pytest.raises(mnemon.ConfigurationError, match="MnemonStore"):
        create_search_memory_tool(NAMESPACE).invoke({"query": "tea"}, ADA)


async def test_a_tool_on_an_asyncio_store_is_awaited(asyncio_client: AsyncClient) -> None:
    search = create_search_memory_tool(NAMESPACE, store=asyncio_client)

    with pytest.raises(TypeError, match="ainvoke"):
        search.invoke({"query": "tea"}, ADA)
    assert await search.ainvoke({"query": "tea"}, ADA) == "[]"


def test_the_tool_is_described_to_a_model_as_by_the_client(client: Client) -> None:
    manage = create_manage_memory_tool(
        NAMESPACE, store=client, instructions="Only recipes.", actions_permitted=("create", "delete"), name="recipes"
    )

    plain = mnemon.create_manage_memory_tool(
        NAMESPACE, store=client, instructions="Only recipes.", actions_permitted=("create", "delete"), name="recipes"
    )
    assert convert_to_openai_tool(manage) == plain.schema("openai")
    assert "Only recipes." in manage.description


class Taste(BaseModel):
    """A thing that someone likes."""

    what: str
    strength: Literal[1, 2, 3] = 2
    since: date | None = None


class Tastes(BaseModel):
    """A list of tastes."""

    tastes: list[Taste]


@pytest.mark.parametrize("kind", ["blocking", "awaited", "graph"])
async def test_the_tools_work_on_a_store_of_another_kind(kind: str) -> None:
    memory = InMemoryStore()
    store = None if kind == "graph" else memory
    manage = create_manage_memory_tool(NAMESPACE, store=store)
    search = create_search_memory_tool(NAMESPACE, store=store, time_zone="Pacific/Kiritimati")
    if kind == "graph":
        script = [
            called("manage_memory", {"content": "Ada likes tea."}),
            called("search_memory", {"query": "tea"}),
            AIMessage("Done."),
        ]
        created, found = (
            str(message.content) for message in await said_by_tools(agent(script, [manage, search], memory))
        )
    else:
        created = await invoked(manage, kind, {"content": "Ada likes tea."})
        found = await invoked(search, kind, {"query": "tea", "limit": 3})

    [item] = memory.search(("ada", "memories"))
    assert (created, item.value) == (f"created memory {item.key}", {"content": "Ada likes tea."})
    [shown] = json.loads(found)
    assert (shown["namespace"], shown["key"], shown["value"]) == (["ada", "memories"], item.key, item.value)
    assert sorted(shown) == ["created_at", "key", "namespace", "score", "updated_at", "value"]
    assert shown["created_at"].endswith("+14:00")
    with pytest.raises(mnemon.InvalidArgumentError, match="time_zone: must be a time zone"):
        create_search_memory_tool(NAMESPACE, store=store, time_zone="Mars/Olympus")


@pytest.mark.parametrize("kind", ["blocking", "awaited"])
async def test_memories_of_another_store_are_changed_and_removed(kind: str) -> None:
    store = InMemoryStore()
    manage = create_manage_memory_tool(NAMESPACE, store=store)
    store.put(("ada", "memories"), "tea", {"content": "old", "kept": 1, "dropped": 2})

    change = {"content": "new", "metadata": {"mood": "good", "dropped": None}}
    assert await invoked(manage, kind, {"action": "update", "id": "tea", **change}) == "updated memory tea"
    updated = store.get(("ada", "memories"), "tea")
    assert updated is not None
    assert updated.value == {"content": "new", "kept": 1, "mood": "good"}
    assert await invoked(manage, kind, {"action": "delete", "id": "tea"}) == "Deleted memory tea"
    assert store.search(("ada",)) == []

    for wrong, sentence in [
        ({"action": "delete", "id": "tea"}, "nothing was deleted: no memory has the id tea."),
        ({"action": "update", "id": "tea", "content": "x"}, "tea"),
        ({"action": "create", "id": "tea", "content": "x"}, "id"),
        ({"action": "delete"}, "id"),
        ({"action": "create"}, "content"),
        ({"content": "x", "metadata": "y"}, "metadata: must be an object"),
        ({"content": "x", "colour": "red"}, "colour"),
    ]:
        assert sentence in await invoked(manage, kind, wrong)
    assert store.search(("ada",)) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"query": "x", "limit": 0}, "limit"),
        ({"query": "x", "filter": {"content": {"$regex": "x"}}}, "Unsupported operator"),
        ({}, "query"),
    ],
)
async def test_a_search_of_another_store_reports_errors_to_the_model(arguments: Any, sentence: str) -> None:
    store = InMemoryStore()
    store.put(("ada", "memories"), "tea", {"content": "tea"})

    assert sentence in await invoked(create_search_memory_tool(NAMESPACE, store=store), "awaited", arguments)


async def test_a_search_of_another_store_returns_its_items_as_the_artifact() -> None:
    store = InMemoryStore()
    store.put(("ada", "memories"), "tea", {"content": "tea" * 20_000})
    search = create_search_memory_tool(NAMESPACE, store=store, response_format="content_and_artifact")

    (message,) = await said_by_tools(agent([called("search_memory", {"query": "tea"}), AIMessage("Done.")], [search]))

    assert [(item.key, len(item.value["content"])) for item in message.artifact] == [("tea", 60_000)]
    assert len(message.content) <= 32 << 10
    [shown] = json.loads(message.content)
    assert shown["value"]["content"].endswith("of 60,000 characters; only a program can read the rest]")


@pytest.mark.parametrize(
    ("namespace", "identity", "where"),
    [
        (NAMESPACE, {"user_id": "ada"}, ("ada", "memories")),
        (None, {"user_id": "ada", "agent_id": "a"}, ("user", "ada", "agent", "a")),
        (None, {"org_id": "o", "user_id": "ada", "agent_id": "a"}, ("org", "o", "a", "user", "ada")),
    ],
)
async def test_the_namespace_in_another_store_is_the_same_as_on_a_server(
    client: Client, namespace: Any, identity: dict[str, str], where: tuple[str, ...]
) -> None:
    store = InMemoryStore()
    for backend in (store, client):
        create_manage_memory_tool(namespace, store=backend).invoke({"content": "x"}, {"configurable": identity})

    assert store.list_namespaces() == [where]
    assert list(client.facts.list_namespaces()) == [where]


@pytest.mark.parametrize("identity", [{}, {"user_id": "a.b"}, {"user_id": 5.5}])
async def test_a_namespace_with_missing_keys_is_not_reported_to_the_model(identity: dict[str, Any]) -> None:
    manage = create_manage_memory_tool(NAMESPACE, store=InMemoryStore())

    with pytest.raises(mnemon.ConfigurationError, match="user_id"):
        manage.invoke({"content": "x"}, {"configurable": identity})


@pytest.mark.parametrize("given", [{"what": "tea", "since": "2024-01-31"}, '{"what": "tea", "since": "2024-01-31"}'])
async def test_content_of_a_schema_is_checked_and_stored_as_its_json(client: Client, given: Any) -> None:
    store = InMemoryStore()
    whole = {"what": "tea", "strength": 2, "since": "2024-01-31"}
    for backend in (store, client):
        manage = create_manage_memory_tool(NAMESPACE, schema=Taste, store=backend)
        assert "created memory" in await invoked(manage, "awaited", {"content": given})
        assert "strength" in await invoked(manage, "awaited", {"content": {"what": "tea", "strength": 9}})
        assert "what" in await invoked(manage, "awaited", {"content": {}})

    assert [item.value for item in store.search(("ada", "memories"))] == [{"content": whole}]
    assert [json.loads(str(fact.value["content"])) for fact in client.facts.list(("ada", "memories"))] == [whole]


def test_a_model_gets_the_schema_of_the_content() -> None:
    tool = convert_to_openai_tool(create_manage_memory_tool(NAMESPACE, schema=Tastes, store=InMemoryStore()))
    parameters = tool["function"]["parameters"]

    # LangChain inlines references, and would not find their target below the content.
    assert parameters["properties"]["content"]["properties"]["tastes"]["items"]["required"] == ["what"]
    assert "What to remember" in parameters["properties"]["content"]["description"]
    assert parameters["properties"]["action"]["enum"] == ["create", "update", "delete"]
    deleting = create_manage_memory_tool(NAMESPACE, schema=Taste, actions_permitted=["delete"], store=InMemoryStore())
    assert "content" not in deleting.args


async def invoked(tool: StructuredTool, kind: str, arguments: dict[str, Any]) -> str:
    """The text that the tool returns."""
    return str(tool.invoke(arguments, ADA) if kind == "blocking" else await tool.ainvoke(arguments, ADA))
