"""`mnemon-server verify` reads everything and names damaged records by collection and id."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from mnemon import AsyncClient
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier, find_records
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.support.databases import open_database
from tests.support.full_vault import fill
from tests.support.server import eventually, run_command, whole_server

DAMAGES: dict[str, tuple[str, str, str]] = {
    # The damaging SQL, and the table and problem that must be named.
    "content, still text": (
        "UPDATE document SET content = 'B' || substr(content, 2) WHERE id = 'note'",
        "document",
        "digest",
    ),
    "content, no text": (
        "UPDATE memory SET content = CAST(x'ff' || content AS TEXT) WHERE hidden = 0",
        "memory",
        "UTF-8",
    ),
    "metadata": ("UPDATE document SET metadata = replace(metadata, ':', ';') WHERE id = 'note'", "document", "JSON"),
    "index of metadata": ("DELETE FROM document_metadata WHERE key = 'whole'", "document", "metadata index"),
    "scope": ("UPDATE semantic SET user = 'bda' WHERE user = 'ada'", "semantic", "digest"),
    "vector, shorter": ("UPDATE fact_passage SET vector = CAST(substr(vector, 5) AS BLOB)", "fact", "components"),
    "vector, no number": (
        "UPDATE memory_passage SET vector = CAST(x'ffffff7f' || substr(vector, 5) AS BLOB)",
        "memory",
        "vector",
    ),
    "words": ("DELETE FROM document_compound_fts_docsize", "document", "keyword index"),
    "event log": ("UPDATE event SET details = '(' || details WHERE type = 'memory:fact:created'", "event", "JSON"),
    "event log, text": ("UPDATE event SET record_id = CAST(x'ff' AS TEXT) WHERE sequence = 1", "event", "UTF-8"),
    "decision": ("UPDATE decision SET content = replace(content, ':', ';')", "decision", "digest"),
    "rule": ("UPDATE rule SET content = substr(content, 2) WHERE id = 'base'", "rule", "digest"),
    "fact's value": ("UPDATE fact SET fact_value = replace(fact_value, 'Oslo', 'Osln')", "fact", "digest"),
    "lost record": ("DELETE FROM fact WHERE fact_key = 'quiet'", "fact_", "does not exist"),
    "event of the timeline": (
        "UPDATE timeline_event SET body = CAST(x'0a' || body AS BLOB)",
        "timeline_event",
        "",
    ),
    "small text": ("UPDATE value SET text = CAST(x'ff' AS TEXT) WHERE key = 'rules.version'", "value", "UTF-8"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a server that was stopped."""
    folder = tmp_path_factory.mktemp("sound")

    async def filled() -> None:
        async with (
            whole_server(folder, timeline_segment_max_events=8) as server,
            AsyncClient(str(server.server.address)) as client,
        ):
            await fill(client)

            async def is_sealed() -> bool:
                # A file that the records do not name yet would be discarded.
                status = await client.timeline.status()
                return status.unsealed_count < status.event_count

            await eventually(is_sealed)

    asyncio.run(filled())
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    return copytree(sound, tmp_path / "data")


def verify(folder: Path) -> tuple[int, dict[str, Any]]:
    done = run_command("verify", str(folder), "--json")
    return done.returncode, json.loads(done.stdout)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("tea", encoding="utf-8")
    done = run_command("verify", str(tmp_path))
    assert (done.returncode, "there are no records in" in done.stderr) == (2, True), done


def test_a_sound_folder_is_read_and_left_as_it_is(sound: Path) -> None:
    before = contents(sound)
    done = run_command("verify", str(sound))
    assert (done.returncode, done.stdout) == (0, "vaults: 1; damaged places: 0\n"), done.stderr
    assert "Next" not in done.stderr
    assert contents(sound) == before


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_named_by_its_location(folder: Path, case: str) -> None:
    statement, table, problem = DAMAGES[case]
    [file] = find_records(folder)
    connection = open_database(file)
    connection.execute(statement)
    assert connection.changes() > 0
    connection.close()
    with RecordsVerifier(file, VaultKeyFile(file.parent)) as verifier:
        found = [damage for step in verifier.run() for damage in step.damages]
    assert any(each.table.startswith(table) and problem in each.problem for each in found), found
    assert all(each.row for each in found if each.table == table), found


def test_the_command_names_damage_and_fails(folder: Path) -> None:
    [file] = folder.rglob("records.db")
    connection = open_database(file)
    connection.execute("UPDATE document SET content = 'B' || substr(content, 2) WHERE id = 'note'")
    connection.close()
    [segment, *_] = sorted(folder.rglob("*.segment"))
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    code, said = verify(folder)
    assert (code, said["sound"], said["vaults"]) == (1, False, 1)
    tables = {(each.get("table"), each.get("row")) for each in said["damages"]}
    assert ("document", "'note'") in tables
    assert any(each["file"].endswith(".segment") for each in said["damages"])
    told = run_command("verify", str(folder)).stderr
    [step] = said["next_steps"]
    assert step in told and f"`mnemon-server repair --data-dir {folder} --dry-run`" in step


def test_a_file_that_cannot_be_opened_is_damage_and_others_are_read(folder: Path) -> None:
    [file] = folder.rglob("records.db")
    other = copytree(file.parent, file.parent.with_name("other")) / "records.db"
    raw = bytearray(other.read_bytes())
    raw[100:108] = b"\xff" * 8
    other.write_bytes(raw)
    connection = open_database(file)
    connection.execute("UPDATE document SET metadata = CAST(x'ff' AS TEXT) WHERE id = 'note'")
    connection.close()
    code, said = verify(folder)
    assert (code, said["vaults"]) == (1, 2)
    assert {(each["file"], each.get("row")) for each in said["damages"]} >= {
        ("tenants/other/records.db", None),
        ("tenants/default/records.db", "'note'"),
    }


async def test_the_folder_of_a_running_server_is_read_and_the_server_continues(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as client:
        await fill(client)
        code, said = await asyncio.to_thread(verify, tmp_path)
        assert (code, said["damages"]) == (0, [])
        await client.documents.put("later", "The server goes on.")
        assert (await client.documents.get("later")).content == "The server goes on."
