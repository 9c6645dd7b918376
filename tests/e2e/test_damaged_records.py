"""A record whose bytes were damaged on disk is reported as damaged, and everything else still works."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import AsyncClient

from tests.support.databases import open_database
from tests.support.server import whole_server

Call = Callable[[AsyncClient], Awaitable[Any]]


async def listed(pages: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in pages]


CASES: dict[str, tuple[str, str, str, Call, Call]] = {
    # The damaging SQL, the kind and id of the damaged record (empty: that of `ids`), a read of it, a read of others.
    "content": (
        "UPDATE document SET content = CAST(x'ff' || content AS TEXT) WHERE id = 'one'",
        "document",
        "one",
        lambda client: client.documents.get("one"),
        lambda client: client.documents.get("two"),
    ),
    "metadata": (
        "UPDATE document SET metadata = replace(metadata, ':', ';') WHERE id = 'one'",
        "document",
        "one",
        lambda client: listed(client.documents.list()),
        lambda client: client.documents.search("two", mode="keyword"),
    ),
    "scope": (
        "UPDATE document SET project = CAST(x'c3' AS TEXT) WHERE id = 'one'",
        "document",
        "one",
        lambda client: client.documents.put("one", "written anew"),
        lambda client: client.documents.put("two", "written anew"),
    ),
    "vector": (
        "UPDATE document_passage SET vector = substr(vector, 2) WHERE position = 1",
        "document",
        "one",
        lambda client: client.documents.get("one", view="full"),
        lambda client: client.documents.search("tea", mode="vector"),
    ),
    "change": (
        "UPDATE event SET details = '(' || details WHERE type = 'memory:fact:created' AND details GLOB '*one*'",
        "event",
        "",
        lambda client: listed(client.changes.list()),
        lambda client: listed(client.changes.list(types=["knowledge:indexed"])),
    ),
    "text of a change": (
        "UPDATE event SET record_id = CAST(x'ff' AS TEXT) WHERE type = 'memory:created'",
        "event",
        "",
        lambda client: listed(client.changes.list(types=["memory:created"])),
        lambda client: listed(client.changes.list(types=["knowledge:indexed"])),
    ),
    "decision": (
        "UPDATE decision SET content = replace(content, ':', ';')",
        "decision",
        "",
        lambda client: listed(client.conflicts.list_decisions()),
        lambda client: client.semantic.search("Ada lives in Bern.", min_similarity=0.0),
    ),
    "rule": (
        "UPDATE rule SET content = substr(content, 2) WHERE id = 'mine'",
        "rule",
        "mine",
        lambda client: client.rules.get("mine"),
        lambda client: client.documents.get("two"),
    ),
    "fact value": (
        "UPDATE fact SET fact_value = replace(fact_value, '{', '[') WHERE fact_key = 'one'",
        "fact",
        "",
        lambda client: client.facts.get(("user", "ada"), "one"),
        lambda client: client.facts.get(("user", "ada"), "two"),
    ),
    "decay policy": (
        "UPDATE memory SET decay_policy = 'stablf'",
        "memory",
        "",
        lambda client: listed(client.memories.list()),
        lambda client: client.facts.get(("user", "ada"), "two"),
    ),
}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[AsyncClient]:
    async with whole_server(folder, bridge_enabled=False) as server, AsyncClient(str(server.server.address)) as client:
        yield client


async def fill(client: AsyncClient) -> None:
    for key in ("one", "two"):
        await client.documents.put(key, f"Ada likes tea number {key}.", {"number": key})
        await client.facts.put(("user", "ada"), key, {"content": f"Ada likes tea number {key}."})
    await client.remember("Ada likes tea.", user="ada", decay="contextual")
    await client.rules.add({"name": "mine"})
    for place in ("Berlin", "Bern"):
        await client.semantic.add(f"Ada lives in {place}.", user="ada", keywords=["home"], conflict_policy="resolve")


def damage(folder: Path, statement: str) -> None:
    """Damages a record as a failing disk would."""
    [file] = folder.rglob("records.db")
    connection = open_database(file)
    connection.execute(statement)
    assert connection.changes() == 1
    connection.close()


@pytest.mark.parametrize("case", CASES)
async def test_damage_is_reported_and_other_records_are_read(tmp_path: Path, case: str) -> None:
    statement, collection, record_id, read, read_others = CASES[case]
    async with opened(tmp_path) as client:
        await fill(client)
    damage(tmp_path, statement)
    async with opened(tmp_path) as client:
        with pytest.raises(mnemon.RecordDamagedError, match=f"the record '{record_id}.*' of '{collection}' is damaged"):
            await read(client)
        await read_others(client)
        await client.documents.put("three", "Everything goes on.")
        assert await client.documents.count() == 3
