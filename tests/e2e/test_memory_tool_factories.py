"""The memory tools as functions: blocking and asyncio, on a server and on an embedded vault, all behave the same."""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import mnemon
import pytest
import pytest_asyncio
from mnemon import AsyncClient, AsyncMnemon, Client, Mnemon, create_manage_memory_tool, create_search_memory_tool

from tests.support.repository import ROOT

ADA, BOB = {"user_id": "ada"}, {"user_id": "bob"}
NOTES = ("{user_id}", "notes")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Mnemon(tmp_path_factory.mktemp("vault"), embedding_model="hashing") as opened:
        yield opened


@pytest.fixture(params=["server", "embedded"])
def store(request: pytest.FixtureRequest, address: str) -> Iterator[Client]:
    """A store without memories."""
    if request.param == "server":
        with Client(address) as connected:
            connected.facts.delete_many((), subtree=True)
            yield connected
        return
    opened = request.getfixturevalue("embedded")
    opened.facts.delete_many((), subtree=True)
    yield opened


@pytest_asyncio.fixture(params=["server", "embedded"])
async def async_store(request: pytest.FixtureRequest, address: str, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """The same for asyncio."""
    if request.param == "server":
        async with AsyncClient(address) as connected:
            await connected.facts.delete_many((), subtree=True)
            yield connected
        return
    async with AsyncMnemon(tmp_path, embedding_model="hashing") as opened:
        yield opened


def id_of(created: str) -> str:
    """The id that the answer to a creation names."""
    assert created.startswith("created memory ")
    return created.removeprefix("created memory ")


def test_a_memory_is_created_found_updated_and_deleted(store: Client) -> None:
    manage, search = create_manage_memory_tool(store=store), create_search_memory_tool(store=store)

    key = id_of(manage(content="Ada likes tea.", action="create", metadata={"category": "drink"}, config=ADA))
    [found] = json.loads(search(query="tea", filter={"category": "drink"}, config=ADA))
    value = {"content": "Ada likes tea.", "category": "drink"}
    assert (found["namespace"], found["key"], found["value"]) == (["user", "ada"], key, value)
    assert search(query="tea", filter={"category": "food"}, config=ADA) == "[]"
    changes = {"content": "Ada likes coffee.", "metadata": {"category": None}}
    assert manage(action="update", id=key, **changes, config=ADA) == f"updated memory {key}"
    [found] = json.loads(search("coffee", config={"configurable": ADA}))
    assert found["value"] == {"content": "Ada likes coffee."}
    assert found["updated_at"] > found["created_at"]
    assert manage(action="delete", id=key, config=ADA) == f"Deleted memory {key}"
    assert manage(action="delete", id=key, config=ADA).startswith("nothing was deleted: ")
    assert search("coffee", config=ADA) == "[]"


def test_a_tool_cannot_reach_memories_of_another_user(store: Client) -> None:
    manage = create_manage_memory_tool(NOTES, store=store)
    search = create_search_memory_tool(NOTES, store=store)
    key = id_of(manage("Ada's secret.", config=ADA))

    assert search("secret", config=BOB) == "[]"
    with pytest.raises(mnemon.FactNotFoundError):
        manage("Mine now.", "update", id=key, config=BOB)
    assert manage(action="delete", id=key, config=BOB).startswith("nothing was deleted: ")
    assert store.facts.get(("ada", "notes"), key).value == {"content": "Ada's secret."}


def test_a_search_returns_the_facts_on_request(store: Client) -> None:
    manage = create_manage_memory_tool(store=store)
    search = create_search_memory_tool(store=store, response_format="content_and_artifact")
    for number in range(4):
        store.facts.put(("user", "ada"), f"key-{number}", {"content": f"tea number {number}", "n": number})

    text, facts = search("tea", limit=2, offset=1, filter={"n": {"$gte": 1}}, config=ADA)

    assert isinstance(facts, list) and len(facts) == 2
    assert [each["key"] for each in json.loads(text)] == [match.key for match in facts]
    assert {match.value["n"] for match in facts} <= {1, 2, 3}
    # A model's update keeps what a program stored beside the content.
    manage("coffee", "update", id="key-3", config=ADA)
    assert store.facts.get(("user", "ada"), "key-3").value == {"content": "coffee", "n": 3}
    with pytest.raises(ValueError, match=r"\$like"):
        search("tea", filter={"n": {"$like": 1}}, config=ADA)
    with pytest.raises(ValueError, match="query"):
        search(" ", config=ADA)


def test_a_namespace_with_missing_keys_is_reported_with_the_known_keys(store: Client) -> None:
    manage = create_manage_memory_tool(NOTES, store=store)
    config = {"thread_id": "7", "api_key": "secret", "configurable": {"checkpoint": object()}}

    with pytest.raises(mnemon.ConfigurationError) as raised:
        manage("Lost.", config=config)
    assert str(raised.value) == ("the configuration lacks 'user_id'; its keys are 'api_key', 'checkpoint', 'thread_id'")
    with pytest.raises(mnemon.ConfigurationError, match="it has no keys"):
        manage("Lost.")
    with pytest.raises(mnemon.ConfigurationError, match="'org_id', 'user_id' or 'agent_id'; its keys are 'thread_id'"):
        create_search_memory_tool(store=store)("lost", config={"thread_id": "7"})
    assert list(store.facts.list(subtree=True)) == []


def test_a_tool_cannot_do_what_the_server_does_not_permit(tmp_path: Path) -> None:
    with Mnemon(tmp_path, embedding_model="hashing", tool_actions_permitted=("create", "update")) as store:
        assert store.tools.list()[0].actions_permitted == ("create", "update")
        manage = create_manage_memory_tool(store=store)
        key = id_of(manage("Ada likes tea.", config=ADA))
        with pytest.raises(ValueError, match="action"):
            manage(action="delete", id=key, config=ADA)
        assert store.facts.get(("user", "ada"), key).value == {"content": "Ada likes tea."}


async def test_on_asyncio_the_tools_are_coroutine_functions_and_run_concurrently(async_store: AsyncClient) -> None:
    manage = create_manage_memory_tool(NOTES, store=async_store)
    search = create_search_memory_tool(NOTES, store=async_store, response_format="content_and_artifact")
    assert inspect.iscoroutinefunction(manage) and inspect.iscoroutinefunction(search)

    created = await asyncio.gather(*(manage(f"tea number {number}", config=ADA) for number in range(10)))

    keys = set(map(id_of, created))
    assert len(keys) == 10
    text, facts = await search("tea", config=ADA)
    assert {each["key"] for each in json.loads(text)} == {match.key for match in facts} == keys
    key = keys.pop()
    assert await manage("coffee", "update", id=key, config=ADA) == f"updated memory {key}"
    assert await manage(action="delete", id=key, config=ADA) == f"Deleted memory {key}"
    with pytest.raises(mnemon.FactNotFoundError):
        await manage("coffee", "update", id=key, config=ADA)
    with pytest.raises(ValueError, match="id: must name the memory to update"):
        await manage("coffee", "update", config=ADA)
    with pytest.raises(mnemon.ConfigurationError, match="lacks 'user_id'"):
        await manage("coffee", config={"org_id": "acme"})


def test_the_example_of_the_readme_runs_as_printed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(address) as store:
        store.facts.delete_many((), subtree=True)
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## Memory that a model uses\n")
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:1]

    exec(example.replace("127.0.0.1:50051", address), {})  # noqa: S102

    required, found = capsys.readouterr().out.splitlines()
    assert required == "['content']"
    assert [each["value"]["content"] for each in json.loads(found)] == ["Ada takes no tea."]
