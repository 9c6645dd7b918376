"""`mnemon mcp` driven by the official SDK's client: over stdio and streamable HTTP, in both forms of the protocol.

Tests of the tools alone use HTTP. Tests of identities alone start no process.
"""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import mnemon
import pytest
from mcp import Client as McpClient
from mcp.shared.exceptions import MCPError
from mnemon._mcp.identity import Identity

from tests.support.mcp_sessions import (
    command,
    http_process,
    inner_session,
    run_command,
    stdio_session,
    text_of,
    texts_of,
)
from tests.support.ports import HeldPort
from tests.support.server import START_S, clean_environment, server_process

ADA = ("--user", "ada")
TOOLS = {"manage_memory", "search_memory", "search_knowledge", "query_timeline", "recall"}
OF_USERS = {"append_conversation", "read_conversation"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data"), "--knowledge-store-backend", "local") as server:
        with mnemon.Client(server.address()) as client:
            fill(client)
        yield server.address()


@pytest.fixture
def client(address: str) -> Iterator[mnemon.Client]:
    with mnemon.Client(address) as opened:
        opened.facts.delete_many((), subtree=True)
        yield opened


def fill(client: mnemon.Client) -> None:
    client.documents.put("rules", "Refunds take five days.", {"topic": "refunds", "year": 2024})
    client.documents.put("travel", "The night train to Vienna leaves at nine.", {"topic": "travel"})
    client.documents.put("ada-1", "Ada's own note about refunds.", scope=mnemon.Scope(user="ada"))
    client.timeline.add(
        "conversation", "Ada asked for the early train.", user="ada", event_time=datetime(2024, 5, 1, 9, tzinfo=UTC)
    )
    client.timeline.add("task", "Ada must renew her passport.", user="ada", event_time=datetime(2025, 5, 1, tzinfo=UTC))
    client.timeline.add("task", "Bob must water the plants.", user="bob", event_time=datetime(2025, 6, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def url(address: str) -> Iterator[str]:
    with http_process(address, *ADA) as process:
        yield process.url()


@asynccontextmanager
async def session(transport: str, address: str, url: str, mode: str) -> AsyncIterator[McpClient]:
    if transport == "stdio":
        async with stdio_session(address, *ADA, mode=mode) as opened:
            yield opened
    else:
        async with McpClient(url, mode=mode) as opened:
            yield opened


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_model_remembers_and_finds_it_again(
    client: mnemon.Client, address: str, url: str, transport: str, mode: str
) -> None:
    async with session(transport, address, url, mode) as tools:
        created = await tools.call_tool("manage_memory", {"content": "Ada likes green tea."})
        found = await tools.call_tool("search_memory", {"query": "Does Ada like green tea?"})

    (fact,) = client.facts.list(("user", "ada"))
    assert (created.is_error, text_of(created)) == (False, f"created memory {fact.key}")
    assert [memory["value"] for memory in json.loads(text_of(found))] == [{"content": "Ada likes green tea."}]


async def test_a_model_is_told_that_nothing_relevant_was_found(url: str, client: mnemon.Client) -> None:
    client.facts.put(("user", "ada"), "tea", {"content": "Ada drinks green tea without sugar."})
    foreign = {"query": "Which plumber in a green hat cooks soup on Monday before refunds?"}

    async with McpClient(url) as tools:
        listed, note = texts_of(await tools.call_tool("search_memory", foreign))
        assert [fact["key"] for fact in json.loads(listed)] == ["tea"], "the result has its form all the same"
        assert note == "The best results may have nothing to do with the query."
        *found, last = json.loads(text_of(await tools.call_tool("search_knowledge", foreign)))
        assert found
        assert last == {"note": note}
        text_of(await tools.call_tool("search_memory", {"query": "Ada drinks tea without sugar"}))


async def test_the_tools_are_described_as_by_the_server(url: str, client: mnemon.Client) -> None:
    async with McpClient(url) as tools:
        listed = {tool.name: tool for tool in (await tools.list_tools()).tools}

    assert listed.keys() == TOOLS | OF_USERS
    for told in client.tools.list():
        assert (listed[told.name].description, listed[told.name].input_schema) == (told.description, told.parameters)
    assert {name for name, tool in listed.items() if tool.annotations and tool.annotations.read_only_hint} == (
        TOOLS | OF_USERS
    ) - {
        "manage_memory",
        "append_conversation",
    }
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed.values())


async def test_a_memory_is_updated_and_deleted(url: str, client: mnemon.Client) -> None:
    client.facts.put(("user", "ada"), "tea", {"content": "green"})

    async with McpClient(url) as tools:
        updated = await tools.call_tool("manage_memory", {"action": "update", "id": "tea", "content": "black"})
        assert text_of(updated) == "updated memory tea"
        assert client.facts.get(("user", "ada"), "tea").value == {"content": "black"}
        deleted = await tools.call_tool("manage_memory", {"action": "delete", "id": "tea"})
        assert text_of(deleted) == "Deleted memory tea"
        # Such as the number of a line that recall returned.
        unknown = await tools.call_tool("manage_memory", {"action": "delete", "id": "1"})
        assert text_of(unknown).startswith("nothing was deleted: no memory has the id 1. ")
    assert list(client.facts.list(("user", "ada"))) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("manage_memory", {"action": "update", "content": "x"}, "id"),
        ("manage_memory", {"action": "update", "content": "x", "id": "of-bob"}, "of-bob"),
        ("manage_memory", {"content": "x", "namespace": ["user", "bob"]}, "namespace"),
        ("search_memory", {}, "query"),
        ("search_memory", {"query": "x", "filter": {"a": {"$regex": "b"}}}, "$regex"),
        ("search_knowledge", {"query": "x", "limit": 1000}, "limit"),
        ("search_knowledge", {"query": ""}, "query"),
        ("search_knowledge", {"query": "x", "filter": {"unused_key": 1}}, "unused_key"),
        (
            "query_timeline",
            {"since": "last week"},
            'since: must be a time such as 2027-01-31, or an age, such as "2 weeks"',
        ),
        ("recall", {"query": "x", "until": "next Tuesday"}, "until: must be a time such as 2027-01-31"),
        ("recall", {"query": "x", "since": "99999999 weeks"}, "since: is beyond the calendar"),
        ("query_timeline", {"user": "bob"}, "user"),
        (
            "read_conversation",
            {"conversation_id": "c"},
            "conversation_id: is not a known name; known names: 'conversation', 'last'",
        ),
        ("recall", {"kinds": ["event"]}, "query: must be given"),
        ("query_timeline", {"since": "2025-01-02", "until": "2025-01-01"}, ""),
        ("launch_rocket", {}, "launch_rocket"),
        ("launch_rocket", {}, "'manage_memory', 'search_memory', 'search_knowledge', 'query_timeline', 'recall'"),
        ("recall", {"query": "x", "kinds": ["rules"]}, "kinds"),
        ("append_conversation", {"conversation": "c", "turns": []}, "turns"),
        (
            "append_conversation",
            {"conversation": "c", "turns": [{"role": "user", "content": "x"}], "user": "b"},
            "user",
        ),
        ("read_conversation", {"conversation": "c", "last": 0}, "last"),
    ],
    ids=str,
)
async def test_an_error_is_a_result_that_describes_it(
    url: str, client: mnemon.Client, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    client.facts.put(("user", "bob"), "of-bob", {"content": "Bob's own"})

    async with McpClient(url) as tools:
        result = await tools.call_tool(tool, arguments)

    assert result.is_error
    assert sentence in text_of(result)
    assert "Traceback" not in text_of(result)
    assert client.facts.get(("user", "bob"), "of-bob").value == {"content": "Bob's own"}


async def test_knowledge_belongs_to_the_user_unless_it_is_shared(address: str) -> None:
    async with inner_session(address, Identity(user="ada")) as tools:
        own = json.loads(text_of(await tools.call_tool("search_knowledge", {"query": "refunds"})))
    async with inner_session(address, Identity(user="ada", shared_knowledge=True)) as tools:
        shared = json.loads(text_of(await tools.call_tool("search_knowledge", {"query": "refunds", "limit": 2})))
        narrow = await tools.call_tool("search_knowledge", {"query": "refunds", "filter": {"year": 2024}})

    assert [hit["doc_id"] for hit in own] == ["ada-1"]
    assert {hit["doc_id"] for hit in shared} == {"ada-1", "rules"}
    (hit,) = json.loads(text_of(narrow))
    assert hit["passage"] == "Refunds take five days."
    assert hit["metadata"] == {"topic": "refunds", "year": 2024}
    assert 0 < hit["score"] <= 1


async def test_the_timeline_belongs_to_the_user(url: str) -> None:
    passport, train = "Ada must renew her passport.", "Ada asked for the early train."
    async with McpClient(url) as tools:

        async def told(**arguments: Any) -> list[str]:
            answer = await tools.call_tool("query_timeline", arguments)
            return [event["content"] for event in json.loads(text_of(answer))]

        assert await told() == [passport, train]
        assert await told(limit=1) == [passport]
        assert await told(since="2025-01-01") == [passport]
        assert await told(until="2024-12-31T00:00:00+01:00") == [train]
        assert await told(since="2024-05-01", until="2024-05-01") == [train]
        assert await told(event_types=["conversation"]) == [train]
        assert (await told(query="early train"))[0] == train


async def test_a_model_recalls_all_that_is_known_of_its_user(url: str, client: mnemon.Client) -> None:
    client.facts.put(("user", "ada"), "seat", {"content": "Ada sits on the left of the early train."})
    client.facts.put(("user", "bob"), "seat", {"content": "Bob sits on the right of the early train."})
    async with McpClient(url) as tools:

        async def told(**arguments: Any) -> str:
            return text_of(await tools.call_tool("recall", {"query": "Ada, early train", **arguments}))

        both = (await told()).splitlines()
        assert [line.partition(" ")[2][11:] for line in both][:1] == ["Ada asked for the early train."]
        assert any("Ada sits on the left" in line for line in both) and not any("Bob" in line for line in both)
        assert "Ada sits" not in await told(kinds=["event"])
        assert await told(until="2020-01-01") == await told(since="tomorrow") == "Nothing relevant is known."
        assert "Ada sits" in await told(since="yesterday", until="tomorrow")
        lately, before = await told(since="2 hours"), await told(until="2 hours")
        assert ("Ada sits" in lately, "asked for" in lately) == (True, False)
        assert ("Ada sits" in before, "asked for" in before) == (False, True)


async def test_a_search_of_long_events_returns_the_beginning_of_each(address: str, client: mnemon.Client) -> None:
    for number in range(3):
        time = datetime(2025, 5, 1 + number, tzinfo=UTC)
        client.timeline.add("log", f"line {number}: " + "x" * 99_000, user="eve", event_time=time)
    async with inner_session(address, Identity(user="eve")) as tools:
        answer = text_of(await tools.call_tool("query_timeline", {}))
    client.timeline.delete_many(user="eve")
    assert len(answer.encode()) <= 32 << 10
    shown = [event["content"] for event in json.loads(answer)]
    assert [content[:8] for content in shown] == ["line 2: ", "line 1: ", "line 0: "]
    assert all("of 99,008 characters; ask more precisely, with limit 1, to see more of it]" in each for each in shown)


async def test_without_a_user_the_events_of_all_users_are_found(address: str) -> None:
    async with inner_session(address, Identity(namespace=("team",))) as tools:
        events = json.loads(text_of(await tools.call_tool("query_timeline", {})))

    assert events[0]["content"] == "Bob must water the plants."
    assert len(events) == 3


@pytest.mark.parametrize(
    ("identity", "namespace"),
    [
        (Identity(user="ada"), ("user", "ada")),
        (Identity(org="acme", agent="alpha"), ("org", "acme", "alpha")),
        (Identity(namespace=("team", "recipes"), user="ada"), ("team", "recipes")),
    ],
    ids=str,
)
async def test_memories_are_stored_in_the_namespace_of_the_identity(
    client: mnemon.Client, address: str, identity: Identity, namespace: tuple[str, ...]
) -> None:
    async with inner_session(address, identity) as tools:
        result = await tools.call_tool("manage_memory", {"content": "x"})

    assert not result.is_error
    assert list(client.facts.list_namespaces()) == [namespace]


async def test_the_options_of_the_command_set_the_identity_and_the_permitted_actions(
    client: mnemon.Client, address: str
) -> None:
    options = ("--namespace", "{org_id}.{agent_id}.{user_id}", "--org", "o", "--agent", "a", *ADA)
    async with stdio_session(address, *options, "--shared-knowledge", "--action", "create") as tools:
        listed = {tool.name: tool for tool in (await tools.list_tools()).tools}
        created = await tools.call_tool("manage_memory", {"content": "x"})
        (fact,) = client.facts.list(("o", "a", "ada"))
        refused = await tools.call_tool("manage_memory", {"action": "delete", "id": fact.key})
        found = await tools.call_tool("search_knowledge", {"query": "refunds", "limit": 2})

    assert text_of(created) == f"created memory {fact.key}"
    assert listed["manage_memory"].input_schema["properties"]["action"]["enum"] == ["create"]
    assert refused.is_error
    assert client.facts.get(("o", "a", "ada"), fact.key).value == {"content": "x"}
    assert {hit["doc_id"] for hit in json.loads(text_of(found))} == {"ada-1", "rules"}


async def test_a_conversation_of_the_user_is_kept_and_read(client: mnemon.Client, address: str, url: str) -> None:
    client.conversations.append("plan", [{"role": "user", "content": "Of Bob."}], user="bob")
    turns = [{"role": "user", "content": "Let us meet at noon."}, {"role": "assistant", "content": "At noon, then."}]
    async with McpClient(url) as tools:
        added = await tools.call_tool("append_conversation", {"conversation": "plan", "turns": turns})
        read = json.loads(text_of(await tools.call_tool("read_conversation", {"conversation": "plan"})))
        last = json.loads(text_of(await tools.call_tool("read_conversation", {"conversation": "plan", "last": 1})))
        listed = json.loads(text_of(await tools.call_tool("read_conversation", {})))

    assert text_of(added) == "added 2 to plan"
    assert [(turn["role"], turn["content"]) for turn in read] == [
        (turn["role"], turn["content"]) for turn in turns[::-1]
    ]
    assert last[0] == read[0] and "more" in last[1]["note"].lower()
    assert [(each["conversation"], each["turns"]) for each in listed] == [("plan", 2)]
    assert [message.content for message in client.conversations.messages("plan", user="ada")] == [
        "Let us meet at noon.",
        "At noon, then.",
    ]
    async with inner_session(address, Identity(namespace=("notes",))) as tools:
        assert {tool.name for tool in (await tools.list_tools()).tools} == TOOLS
        assert (await tools.call_tool("read_conversation", {})).is_error


async def test_a_call_without_a_namespace_says_what_is_missing(address: str) -> None:
    async with inner_session(address, Identity()) as tools:
        result = await tools.call_tool("manage_memory", {"content": "x"})

    assert result.is_error
    assert "user_id" in text_of(result)


async def test_an_unreachable_server_is_reported_in_a_sentence() -> None:
    port = HeldPort()
    nowhere = port.address
    async with inner_session(nowhere, Identity(user="ada")) as tools:
        result = await tools.call_tool("search_memory", {"query": "tea"})
        with pytest.raises(MCPError, match=nowhere):
            await tools.list_tools()

    assert result.is_error
    assert nowhere in text_of(result)


async def test_concurrent_calls_are_answered(url: str, client: mnemon.Client) -> None:
    async with McpClient(url) as tools:
        created = await asyncio.gather(
            *(tools.call_tool("manage_memory", {"content": f"note {number}"}) for number in range(20))
        )

    assert {text_of(result).partition(" ")[0] for result in created} == {"created"}
    assert len(list(client.facts.list(("user", "ada")))) == 20


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "mnemon.example"}, 421),
        ({"Host": "127.0.0.1.mnemon.example:80"}, 421),
        ({"Origin": "http://mnemon.example"}, 403),
    ],
    ids=str,
)
def test_requests_of_web_pages_are_refused(url: str, headers: dict[str, str], status: int) -> None:
    accept = {"Accept": "application/json, text/event-stream"}

    answer = httpx.post(url, json=INITIALIZE, headers={**accept, **headers}, trust_env=False)

    assert answer.status_code == status


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_the_http_server_stops_on_a_signal_with_clients_still_connected(
    address: str, number: signal.Signals, code: int
) -> None:
    with http_process(address, *ADA) as process:
        async with McpClient(process.url(), mode="legacy") as tools:
            await tools.list_tools()
            assert await asyncio.to_thread(process.end, number) == code

    assert process.output == []
    assert "Traceback" not in "".join(process.errors)


def test_stdout_carries_only_the_protocol_and_the_end_of_stdin_ends_the_command(address: str) -> None:
    calls = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    calls.append({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    with subprocess.Popen(
        command(address),
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("".join(json.dumps(call) + "\n" for call in calls) + "no JSON\n[]\n")
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(4)]
        process.stdin.close()
        rest, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(START_S) == 0

    given = [*map(json.loads, lines)]
    assert sorted(each["error"]["code"] for each in given if each["id"] is None) == [-32700, -32600]
    answers = {answer["id"]: answer for answer in given}
    assert answers[1]["result"]["serverInfo"]["name"] == "mnemon"
    assert {tool["name"] for tool in answers[2]["result"]["tools"]} == TOOLS
    assert (rest, errors) == ("", "")


def test_an_address_in_use_gives_one_clear_line(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_command(address, "--transport", "http", "--port", port)

    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--user", "a" * 257), "--user must be"),
        (("--namespace", "team..recipes"), "label ''"),
        (("--namespace", "{user_id}.notes"), "give --user, too"),
        (("--namespace", "{team}.notes", *ADA), "{team}, which nothing fills"),
    ],
)
def test_an_identity_without_a_namespace_for_memories_is_refused_at_start(
    address: str, options: tuple[str, ...], said: str
) -> None:
    done = run_command(address, *options)

    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_user_that_is_not_a_label_is_allowed_if_memories_are_elsewhere() -> None:
    Identity(namespace=("team", "recipes"), user="a" * 257).check()
