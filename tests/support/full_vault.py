"""A vault that holds records of every kind, and queries about all of them, for tests of exports and backups."""

import math
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemon import AsyncClient, ConversationMessage, Fact, Scope

from tests.support.server import eventually

LATER = datetime(2099, 1, 2, tzinfo=UTC)
TIME = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
METADATA = {"whole": 5, "number": 5.0, "text": "5", "yes": True, "list": ["b", "a"], "none": [], "time": TIME}
LONG = " ".join(f"word{i} Ada flies to Vienna" for i in range(150))
"""Several passages."""
QUERIES = ("Where does Ada live?", "green tea", "word77 Vienna", "when is the train", "Grüße 東京")
VOLATILE = {"duration_s", "next_page_token", "commit_time", "pending"}
"""What two answers may differ in though they say the same."""


async def fill(client: AsyncClient) -> None:
    """Stores records of every kind, among them changed, hidden, superseded and deleted ones."""
    await _documents(client)
    await _memories(client)
    await _facts(client)
    await _rules(client)
    await _statements(client)
    await _events(client)
    await _conversations(client)
    await client.grants.add("user:bo", scope=Scope("ada", project="p"), access="write")
    await client.grants.add("key:1f3a5c7e9b0d2f46", namespace=("user", "ada"), expire_time=LATER)
    await until_bridged(client)


async def answers(client: AsyncClient) -> dict[str, Any]:
    """The answers of the client's reading methods, by query."""
    return {question: answer async for question, answer in _asked(client)}


def differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """The differences between answers. Numbers must agree to 1e-6, confidences up to what they fade within minutes."""
    if place.endswith("explanation.confidence"):
        left, right = (re.sub(r"[0-9.]+", "#", str(said)) for said in (left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys() - VOLATILE, key=str):
            if key not in VOLATILE:
                yield from differences(left.get(key), right.get(key), f"{place}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, pair in enumerate(zip(left, right, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(left, float) and isinstance(right, float):
        within = 1e-3 if place.endswith("confidence") else 1e-6
        if not math.isclose(left, right, rel_tol=0, abs_tol=within):
            yield f"{place}: {left!r} is not {right!r}"
    elif left != right:
        yield f"{place}: {left!r} is not {right!r}"


async def _documents(client: AsyncClient) -> None:
    await client.documents.put("note", "Ada prefers window seats.", METADATA, scope=Scope(user="ada", project="p"))
    await client.documents.put(
        "note", "Ada prefers aisle seats by now.", {**METADATA, "whole": 6}, scope=Scope(user="ada")
    )
    await client.documents.put(
        "long", LONG, {"source": "travel"}, scope=Scope("bo", origin="web", origin_name="example.com")
    )
    await client.documents.put("gone", "This is deleted.")
    await client.documents.put("unicode/é", "Grüße aus 東京 \N{WAVING HAND SIGN}\r\n\ttabs")
    await client.documents.delete("gone")


async def _memories(client: AsyncClient) -> None:
    tea = await client.remember("Ada likes green tea.", user="ada", decay="reinforceable", metadata=METADATA)
    await client.memories.reinforce(tea.memory_id)
    await client.memories.update(tea.memory_id, content="Ada likes green tea a lot.", type="preference")
    await client.remember("Ada is in Vienna this week.", user="ada", decay="contextual", is_global=True)
    hidden = await client.remember("Ada lives in Paris.", user="ada", personality="p", persona="formal")
    await client.memories.delete(hidden.memory_id)
    await client.remember("Of its own making.", user="bo", embedding=[3.0, 4.0, *[0.0] * 62])
    await client.remember(LONG, user="bo", origin="import", origin_name="chat.txt")


async def _facts(client: AsyncClient) -> None:
    for value in ({"content": "Ada lives in Rome."}, {"content": "Ada lives in Berlin.", "n": 1}, {"content": LONG}):
        await client.facts.put(("user", "ada"), "home", value, metadata={"category": "place"})
    await client.facts.put(
        ("user", "ada", "work"), "team", {"name": "Core", "tags": ["a", "b"], "deep": {"x": [1, None]}}
    )
    await client.facts.put(
        ("user", "bo"), "home", {"content": "Bo lives in Oslo."}, ttl=timedelta(days=3), origin="tool"
    )
    await client.facts.put(("user", "bo"), "quiet", {"content": "Nobody finds this by its words."}, index=False)
    await client.facts.put(("org", "acme"), "k" * 500, {"title": "green tea", "body": "boiling"}, index=["title"])
    await client.facts.put(("org", "acme"), "vector", {"content": "given"}, embedding=[1.0, *[0.0] * 63])
    old = Fact(("org", "acme"), "old", {"content": "From long ago."}, create_time=TIME, update_time=TIME + timedelta(1))
    assert [result.error async for result in client.facts.put_many([old])] == [None]


async def _rules(client: AsyncClient) -> None:
    await client.rules.add({"name": "base", "priority": 3, "merge": {"content_strategy": "concatenate"}})
    await client.rules.add({"name": "zoe", "extends": "base", "conditions": {"users": ["zoe"]}})
    await client.rules.add({"name": "gone", "extends": "base"})
    await client.rules.update("default", {"description": "The house's own."})
    await client.rules.delete("gone")


async def _statements(client: AsyncClient) -> None:
    known: dict[str, Any] = {"user": "ada", "keywords": ["home", "city"], "source": "user", "metadata": METADATA}
    await client.semantic.add("Ada lives in Berlin.", importance=0.5, create_time=TIME, **known)
    await client.semantic.add(
        "Ada lives in Munich.", importance=0.9, create_time=TIME + timedelta(1), conflict_policy="resolve", **known
    )
    first = await client.semantic.add("Zoe drinks tea in the morning.", user="zoe", importance=0.4)
    second = await client.semantic.add("Zoe drinks tea in the evening.", user="zoe", importance=0.4)
    assert first.memory and second.memory
    await client.conflicts.merge(first.memory.memory_id, second.memory.memory_id)
    await client.semantic.add("Zoe sings.", user="zoe", summary="A singer.", persona="private", origin="web")


async def _conversations(client: AsyncClient) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "trains", "arguments": '{"to": "Vienna"}'}}
    turns = [
        {"role": "user", "name": "Ada", "content": "When is the train to Vienna?", "message_id": "m1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "at 9", "tool_call_id": "t1"},
        {"role": "assistant", "content": [{"type": "text", "text": "At nine."}], "metadata": METADATA},
        {"role": "user", "content": "This is deleted.", "message_id": "gone"},
        ConversationMessage("user", " \n", message_time=TIME, payload="its own form", importance=0.2),
    ]
    await client.conversations.append("trip", turns, user="ada")
    await client.conversations.append("trip", turns[:1], user="ada", persona="formal")
    await client.conversations.delete_messages("trip", "gone", user="ada")
    await client.timeline.add("summary", "Ada asks for a train.", user="ada", event_time=TIME, conversation="trip")


async def _events(client: AsyncClient) -> None:
    for number in range(30):
        await client.timeline.add(
            ("task", "conversation", "emotion")[number % 3],
            f"Ada asked when is the train, and that for the {number}th time.",
            user="ada",
            event_time=TIME + timedelta(hours=7 * (number % 5), minutes=number),
            importance=None if number % 4 == 0 else number / 30,
            metadata=METADATA if number % 7 == 0 else {},
            context="at the station",
        )
    [pruned, *_] = [event async for event in client.timeline.list()]
    await client.timeline.delete_many([pruned.event_id])
    await client.timeline.add(
        "reminder", "Renew the passport.", user="bo", importance=0.0, origin="tool", origin_name="crm"
    )


async def until_bridged(client: AsyncClient) -> None:
    """Waits until the bridge has handled all events."""

    async def is_idle() -> bool:
        return (await client.bridge.status()).queue_depth == 0

    await eventually(is_idle)


async def _asked(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    async for pair in _asked_of_documents(client):
        yield pair
    async for pair in _asked_of_memories(client):
        yield pair
    async for pair in _asked_of_facts(client):
        yield pair
    async for pair in _asked_of_statements(client):
        yield pair
    async for pair in _asked_of_events(client):
        yield pair
    async for pair in _asked_of_conversations(client):
        yield pair
    yield "grants", [grant.to_dict() async for grant in client.grants.list()]


async def _asked_of_documents(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    documents = [document async for document in client.documents.list(view="full")]
    yield "documents", [document.to_dict() for document in documents]
    yield "documents counted", await client.documents.count(filters={"whole": 6})
    for document in documents:
        yield f"document {document.doc_id}", (await client.documents.get(document.doc_id, view="full")).to_dict()
    for query in QUERIES:
        for mode in ("hybrid", "vector", "keyword"):
            yield (
                f"search {mode} {query}",
                (await client.documents.search(query, mode=mode, limit=10, view="full")).to_dict(),
            )


async def _asked_of_memories(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    memories = [memory async for memory in client.memories.list(show_deleted=True)]
    yield "memories", [memory.to_dict() for memory in memories]
    yield "memories of bo", [memory.to_dict() async for memory in client.memories.list(user="bo")]
    yield "memories counted", await client.memories.count(user="ada")
    yield "forecast", [each.to_dict() async for each in client.memories.forecast(TIME.replace(year=2030))]
    for query in QUERIES:
        for mode in ("hybrid", "vector", "keyword"):
            answer = await client.memories.search(query, mode=mode, min_confidence=0.0, explain=True)
            yield f"recall {mode} {query}", answer.to_dict()


async def _asked_of_facts(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    facts = [fact async for fact in client.facts.list(subtree=True, versions=True)]
    yield "facts", [fact.to_dict() for fact in facts]
    yield "namespaces", [list(labels) async for labels in client.facts.list_namespaces()]
    for fact in facts:
        found = await client.facts.get(fact.namespace, fact.key, versions=True)
        yield f"fact {fact.namespace} {fact.key}", found.to_dict()
    for query in QUERIES:
        for mode in ("hybrid", "vector", "keyword"):
            answer = await client.facts.search(query, subtree=True, mode=mode, limit=100)
            yield f"facts {mode} {query}", answer.to_dict()
    where = {"category": "place"}
    yield "facts where", (await client.facts.search(namespace=("user",), subtree=True, where=where)).to_dict()
    call = {"query": "Where does she live?"}
    yield "tool", (await client.tools.call("search_memory", call, config={"user_id": "ada"})).to_dict()


async def _asked_of_statements(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    known = [each async for each in client.semantic.list(show_superseded=True)]
    yield "statements", [each.to_dict() for each in known]
    yield "statements that stand", [each.to_dict() async for each in client.semantic.list()]
    for each in known:
        found = await client.semantic.get(each.memory_id, view="full")
        yield f"statement {each.memory_id}", found.to_dict()
        conflicts = (await client.conflicts.detect(each.memory_id)).to_dict()
        yield f"conflicts of {each.memory_id}", conflicts
    for query in QUERIES:
        answer = await client.semantic.search(query, limit=50, min_similarity=0.0)
        yield f"similar {query}", answer.to_dict()
    yield "decisions", [each.to_dict() async for each in client.conflicts.list_decisions()]
    yield "rules", await client.rules.export()
    page = await client.rules.list_page(order="matching")
    yield "rules as asked", page.to_dict()
    yield "rule", (await client.rules.resolve("zoe")).to_dict()


async def _asked_of_events(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    events = [event async for event in client.timeline.list()]
    yield "events", [event.to_dict() for event in events]
    yield "summary", (await client.timeline.summarize()).to_dict()
    for event in events[:5]:
        yield f"event {event.event_id}", (await client.timeline.get(event.event_id)).to_dict()
    window = await client.timeline.search(since=TIME, until=TIME + timedelta(days=9), user="ada", limit=7)
    yield "window", window.to_dict()


async def _asked_of_conversations(client: AsyncClient) -> AsyncIterator[tuple[str, Any]]:
    listed = [conversation async for conversation in client.conversations.list()]
    yield "conversations", [conversation.to_dict() for conversation in listed]
    said = [message async for message in client.conversations.messages("trip", user="ada")]
    # Positions are the vault's.
    yield "messages", [replace(message, sequence=0).to_dict() for message in said]
    last = await client.conversations.messages_page("trip", user="ada", newest_first=True, page_size=2)
    yield "last messages", [replace(message, sequence=0).to_dict() for message in last.messages]
