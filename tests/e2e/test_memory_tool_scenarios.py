"""The scenarios of the memory tools, called as programs call them, against a real server."""

import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import mnemon
import pytest
import pytest_asyncio
from mnemon import AsyncClient, create_manage_memory_tool, create_search_memory_tool

from tests.support.server import whole_server

ADA, BOB = {"user_id": "ada"}, {"user_id": "bob"}
CREATED = re.compile(r"created memory (\S+)")


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """The client of a server on an empty folder."""
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as connected:
        yield connected


async def create(client: AsyncClient, content: str, config: dict[str, Any] = ADA, **options: Any) -> str:
    """The id of a new memory."""
    returned = await create_manage_memory_tool(store=client, **options)(content=content, config=config)
    match = CREATED.fullmatch(returned)
    assert match
    return match[1]


async def found(client: AsyncClient, query: str, config: dict[str, Any] = ADA, **arguments: Any) -> list[Any]:
    """What the search tool returns to a model."""
    answer = await create_search_memory_tool(store=client)(query=query, config=config, **arguments)
    return list(json.loads(answer))


async def contents(client: AsyncClient, query: str, config: dict[str, Any] = ADA, **arguments: Any) -> list[str]:
    """The texts of the results."""
    return [fact["value"]["content"] for fact in await found(client, query, config, **arguments)]


# Requirement: manage_memory tool


async def test_create_a_new_fact(client: AsyncClient) -> None:
    manage = create_manage_memory_tool(store=client)
    returned = await manage(content="Ada likes her tea without milk.", action="create", config=ADA)

    match = CREATED.fullmatch(returned)
    assert match
    assert str(UUID(match[1])) == match[1]
    [fact] = await found(client, "tea")
    assert (fact["key"], fact["value"]) == (match[1], {"content": "Ada likes her tea without milk."})
    # The same words again make another memory: a model may mean to repeat itself.
    again = await manage(content="Ada likes her tea without milk.", action="create", config=ADA)
    assert again != returned
    # Without an action, the result is the same.
    assert CREATED.fullmatch(await manage(content="Ada has a cat.", config=ADA))
    with pytest.raises(ValueError, match="id"):
        await manage(content="Ada has a dog.", action="create", id=match[1], config=ADA)


async def test_update_an_existing_fact(client: AsyncClient) -> None:
    manage = create_manage_memory_tool(store=client)
    key = await create(client, "Ada lives in Turin.")

    returned = await manage(content="Ada lives in London.", action="update", id=key, config=ADA)

    assert returned == f"updated memory {key}"
    assert await contents(client, "where does Ada live") == ["Ada lives in London."]
    with pytest.raises(ValueError, match="id"):
        await manage(content="Ada lives in Paris.", action="update", config=ADA)
    with pytest.raises(mnemon.FactNotFoundError):
        await manage(content="Ada lives in Paris.", action="update", id="unknown", config=ADA)
    assert await contents(client, "where does Ada live") == ["Ada lives in London."]
    # The previous content is stored beside it.
    fact = await client.facts.get(("user", "ada"), key, versions=True)
    assert [version.value for version in fact.versions] == [{"content": "Ada lives in Turin."}]


async def test_delete_a_fact(client: AsyncClient) -> None:
    manage = create_manage_memory_tool(store=client)
    key = await create(client, "Ada's phone number is 4711.")

    assert await manage(action="delete", id=key, config=ADA) == f"Deleted memory {key}"

    assert await found(client, "phone number") == []
    with pytest.raises(mnemon.FactNotFoundError):
        await client.facts.get(("user", "ada"), key)
    with pytest.raises(ValueError, match="id"):
        await manage(action="delete", config=ADA)
    # It is already gone, which is no error, but the model must not tell that it has removed something.
    assert (await manage(action="delete", id=key, config=ADA)).startswith("nothing was deleted: ")


async def test_configurable_permitted_actions(client: AsyncClient) -> None:
    key = await create(client, "Ada plays chess.")
    careful = create_manage_memory_tool(store=client, actions_permitted=("create", "update"))

    with pytest.raises(ValueError, match="action"):
        await careful(action="delete", id=key, config=ADA)
    assert await contents(client, "chess") == ["Ada plays chess."]
    assert "delete" not in json.dumps(careful.parameters)
    assert await careful(content="Ada plays go.", action="update", id=key, config=ADA) == f"updated memory {key}"

    # The action is checked before the id, and the id before the content.
    with pytest.raises(ValueError, match="action"):
        await careful(action="delete", config=ADA)
    # Without create, the first permitted action is the default.
    forgetting = create_manage_memory_tool(store=client, actions_permitted=("delete",))
    assert await forgetting(id=key, config=ADA) == f"Deleted memory {key}"
    with pytest.raises(ValueError, match="actions_permitted"):
        create_manage_memory_tool(store=client, actions_permitted=())


async def test_custom_instructions(client: AsyncClient) -> None:
    instructions = "Only remember what the user says about food."
    manage = create_manage_memory_tool(store=client, instructions=instructions)
    search = create_search_memory_tool(store=client, instructions="Search before you cook.")

    assert manage.description.endswith(instructions)
    assert manage.schema("openai")["function"]["description"] == manage.description
    assert manage.schema("anthropic")["description"] == manage.description
    assert search.description.endswith("Search before you cook.")
    listed = await client.tools.list(manage_instructions=instructions)
    assert listed[0].description == manage.description


# Requirement: search_memory tool


async def test_text_query_search(client: AsyncClient) -> None:
    for content in ("Ada prefers dark mode.", "Ada dislikes early meetings.", "The dark side of the moon."):
        await create(client, content)
    await create(client, "Bob prefers dark mode, too.", BOB)

    results = await found(client, "preference for dark mode", limit=10)

    first = results[0]
    assert set(first) == {"namespace", "key", "value", "created_at", "updated_at", "score"}
    assert (first["namespace"], first["value"]) == (["user", "ada"], {"content": "Ada prefers dark mode."})
    assert [fact["score"] for fact in results] == sorted((fact["score"] for fact in results), reverse=True)
    assert all(fact["namespace"] == ["user", "ada"] for fact in results)
    # By word if the meaning is distant, and by meaning and word together.
    assert (await contents(client, "moon"))[0] == "The dark side of the moon."
    # The pages follow one order.
    texts = [fact["value"]["content"] for fact in results]
    assert await contents(client, "preference for dark mode", limit=1, offset=1) == texts[1:2]
    assert await create_search_memory_tool(store=client)(query="anything", config={"user_id": "nobody"}) == "[]"
    for wrong in ({"query": " "}, {"query": "x", "limit": 0}, {"query": "x", "offset": -1}):
        with pytest.raises(ValueError, match=r"query|limit|offset"):
            await create_search_memory_tool(store=client)(**wrong, config=ADA)


async def test_filtered_search(client: AsyncClient) -> None:
    namespace = ("user", "ada")
    await client.facts.put(namespace, "a", {"content": "Ada likes jazz.", "category": "preference", "year": 2020})
    await client.facts.put(namespace, "b", {"content": "Ada heard jazz.", "category": "event", "year": 2024})
    await client.facts.put(namespace, "c", {"content": "Ada plays jazz."}, metadata={"category": "preference"})

    async def keys(where: dict[str, Any]) -> set[str]:
        return {fact["key"] for fact in await found(client, "jazz", filter=where)}

    assert await keys({"category": "preference"}) == {"a", "c"}
    assert await keys({"category": {"$eq": "event"}}) == {"b"}
    assert await keys({"category": {"$ne": "preference"}}) == {"b"}
    assert await keys({"year": {"$gt": 2020}}) == {"b"}
    assert await keys({"year": {"$gte": 2020, "$lt": 2024}}) == {"a"}
    assert await keys({"year": {"$lte": 2024}, "category": "event"}) == {"b"}
    assert await keys({"category": {"$in": ["event", "other"]}}) == {"b"}
    assert await keys({"category": {"$nin": ["event"]}}) == {"a", "c"}
    with pytest.raises(ValueError, match=r"\$like"):
        await keys({"category": {"$like": "e%"}})
    # Nearer memories that do not match cannot hide the one that does.
    await client.facts.put(namespace, "rare", {"content": "A sentence with jazz in it.", "category": "rare"})
    for number in range(40):
        await client.facts.put(namespace, f"x{number}", {"content": f"jazz jazz {number}", "category": "common"})
    assert await keys({"category": "rare"}) == {"rare"}


async def test_configurable_response_format(client: AsyncClient) -> None:
    key = await create(client, "Ada has a bicycle.")
    search = create_search_memory_tool(store=client, response_format="content_and_artifact")

    text, matches = await search(query="bicycle", config=ADA)

    [fact] = json.loads(text)
    [match] = matches
    assert (fact["key"], match.fact.key) == (key, key)
    assert (match.fact.namespace, match.fact.value) == (("user", "ada"), {"content": "Ada has a bicycle."})
    assert match.score == pytest.approx(fact["score"])
    assert match.fact.create_time == datetime.fromisoformat(fact["created_at"])
    assert isinstance(await create_search_memory_tool(store=client)(query="bicycle", config=ADA), str)
    with pytest.raises(ValueError, match="response_format"):
        create_search_memory_tool(store=client, response_format="xml")  # type: ignore[call-overload]


# Requirement: Namespace isolation for multi-tenant


@pytest.mark.parametrize(
    ("config", "namespace"),
    [
        ({"org_id": "acme", "agent_id": "alpha", "user_id": "u"}, ("org", "acme", "alpha", "user", "u")),
        ({"configurable": {"user_id": "u-123", "thread_id": "7"}}, ("user", "u-123")),
    ],
)
async def test_runtime_namespace_resolution(
    client: AsyncClient, config: dict[str, Any], namespace: tuple[str, ...]
) -> None:
    key = await create(client, "A secret of theirs.", config)

    assert (await client.facts.get(namespace, key)).value == {"content": "A secret of theirs."}
    assert await contents(client, "secret", config) == ["A secret of theirs."]
    assert await contents(client, "secret", {"user_id": "somebody-else"}) == []


async def test_namespace_templating(client: AsyncClient) -> None:
    template = ("{user_id}", "memories")
    manage = create_manage_memory_tool(template, store=client)
    search = create_search_memory_tool(template, store=client)
    key = CREATED.fullmatch(await manage(content="Ada knows Latin.", config=ADA))[1]  # type: ignore[index]

    assert (await client.facts.get(("ada", "memories"), key)).value == {"content": "Ada knows Latin."}
    assert [fact["key"] for fact in json.loads(await search(query="Latin", config=ADA))] == [key]
    assert await search(query="Latin", config=BOB) == "[]"
    # Braces in a value are not a template.
    odd = {"configurable": {"user_id": "{agent_id}", "agent_id": "x"}}
    await manage(content="Odd.", config=odd)
    below = client.facts.list_namespaces(prefix=("{agent_id}",))
    assert [tuple(labels) async for labels in below] == [("{agent_id}", "memories")]
    with pytest.raises(mnemon.ConfigurationError, match="user_id") as raised:
        await manage(content="Lost.", config={"thread_id": "7", "org_id": "acme"})
    assert {"thread_id", "org_id"} <= set(re.findall(r"'(\w+)'", str(raised.value)))
    with pytest.raises(mnemon.ConfigurationError, match="user_id"):
        await create_manage_memory_tool(store=client)(content="Lost.", config={"thread_id": "7"})
    with pytest.raises(mnemon.ConfigurationError):
        create_manage_memory_tool(("user-{user_id}",), store=client)
