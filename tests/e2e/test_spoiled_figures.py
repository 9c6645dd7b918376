"""A vault into which an archive once imported too large numbers works again after the migration."""

import json
import logging
from pathlib import Path

import apsw
import pytest
from mnemon import AsyncClient
from mnemon.v1 import archive_pb2
from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.engines.sqlite.migrations import MIGRATIONS

from tests.support.databases import open_database
from tests.support.full_vault import TIME, fill
from tests.support.rpcs import rpcs
from tests.support.server import whole_server

OLD_FORMAT = 5
FIGURE_MAX = 2**53 - 1


def spoil(file: Path) -> None:
    """The numbers that imports could write before they were refused."""
    connection = open_database(file)
    with connection:
        for number, collection in enumerate(COLLECTIONS):
            connection.execute(f"UPDATE {collection.name} SET revision = ?", (2**63 - 1 - number % 2,))
        connection.execute(
            "UPDATE value SET text = ? || substr(text, instr(text, ' ')) WHERE key = 'rules.version'", (str(2**63 - 1),)
        )
        [(position, content), *_] = connection.execute("SELECT position, content FROM decision").fetchall()
        spoiled = json.loads(content) | {"conflict_count": 2**40}
        spoiled["signals"][0]["time_delta_us"] = 10**20
        connection.execute("UPDATE decision SET content = ? WHERE position = ?", (json.dumps(spoiled), position))
    connection.close()


def repair(file: Path) -> None:
    """The effect of opening a file of format 5, independent of later formats."""
    connection = open_database(file)
    with connection:
        MIGRATIONS[OLD_FORMAT - 1](connection)
    connection.close()


def spoiled(folder: Path) -> list[Path]:
    """The files in a folder, with such numbers."""
    files = list(folder.rglob("records.db"))
    for file in files:
        spoil(file)
    return files


def revisions(file: Path) -> set[int]:
    connection = open_database(file, flags=apsw.SQLITE_OPEN_READONLY)
    found = {row[0] for each in COLLECTIONS for row in connection.execute(f"SELECT revision FROM {each.name}")}
    connection.close()
    return found


async def test_everything_works_again_and_the_log_says_what_was_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as client:
        await fill(client)
        [memory, *_] = [memory async for memory in client.memories.list()]
    [file] = spoiled(tmp_path)
    assert revisions(file) == {2**63 - 1, 2**63 - 2}

    caplog.set_level(logging.WARNING, logger="mnemon_server")
    repair(file)
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as client:
        receipt = await client.rules.add({"name": "after"})
        assert receipt.registry_version == FIGURE_MAX + 1
        await client.rules.delete("after")
        await client.rules.load([{"name": "loaded"}])
        updated = await client.memories.update(memory.memory_id, content="Changed.")
        assert updated.revision == FIGURE_MAX + 1
        await client.memories.delete(memory.memory_id)
        await client.documents.put("note", "changed")
        await client.facts.put(("user", "ada"), "home", {"content": "changed"})
        decisions = [decision async for decision in client.conflicts.list_decisions()]
        assert 2**31 - 1 in [decision.conflict_count for decision in decisions]
        await client.semantic.add("Ada lives in Munich.", user="ada", create_time=TIME, conflict_policy="resolve")
        await client.rules.reset()
        [export] = [rpc for rpc in rpcs() if rpc.method.name == "ExportRecords"]
        parts = await export.call(server.channel, archive_pb2.ExportRecordsRequest())
        assert max(record.revision for part in parts for record in part.records.records) == FIGURE_MAX
    for said in ("the version of the merge rules", f"the revision of '{memory.memory_id}' in memory", "the decision"):
        assert said in caplog.text
