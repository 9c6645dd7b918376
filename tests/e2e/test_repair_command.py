"""`mnemon-server repair` makes anew what is derived, and names what is lost."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from mnemon import AsyncClient
from mnemon_server.engines.sqlite.upkeep.verification import find_records

from tests.support.databases import open_database
from tests.support.full_vault import answers, differences, fill
from tests.support.killed_at import run_killed
from tests.support.server import whole_server
from tests.support.server_command import run

SETTINGS: dict[str, Any] = {"timeline_segment_max_events": 8, "bridge_enabled": False}
PAGE = 4_096
INDEXES = (
    "document_compound_fts_data",
    "document_compound_fts_config",
    "document_metadata",
    "semantic_related",
    "sqlite_autoindex_document_1",
    "fact_sequence",
)
"""Tables, and indexes of SQLite, that are derived from others."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The data folder of a server that was stopped, and what it answered."""
    folder = tmp_path_factory.mktemp("sound")

    async def filled() -> dict[str, Any]:
        settings = {**SETTINGS, "bridge_enabled": True}
        async with whole_server(folder, **settings) as server, AsyncClient(str(server.server.address)) as client:
            await fill(client)
        return await asked(folder)

    return folder, asyncio.run(filled())


@pytest.fixture
def folder(sound: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of it."""
    return copytree(sound[0], tmp_path / "data")


async def asked(folder: Path) -> dict[str, Any]:
    async with whole_server(folder, **SETTINGS) as server, AsyncClient(str(server.server.address)) as client:
        return await answers(client)


def repair(folder: Path, *flags: str) -> tuple[int, list[str]]:
    done = run("repair", "--data-dir", folder, *flags)
    assert done.returncode < 2, done.stderr
    return done.returncode, done.stdout.splitlines()


def verified(folder: Path) -> str:
    return run("verify", folder).stdout.splitlines()[-1]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def damage_tree(folder: Path, name: str) -> None:
    """Damages a page of a table or an index."""
    [file] = find_records(folder)
    with closing(open_database(file)) as connection:
        number = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = ?", (name,)).get
    flip(file, number * PAGE - 200)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


def vault(folder: Path) -> Path:
    return folder / "tenants/default"


def cut_key(folder: Path) -> None:
    flip(vault(folder) / "vault.key", 30)


def damage_mark(folder: Path) -> None:
    flip(vault(folder) / "records.mark", 8)


def damage_text(folder: Path) -> None:
    flip(vault(folder) / "timeline-index/text.db", PAGE + 9)


def damage_snapshot(folder: Path) -> None:
    place = vault(folder) / "index/document/00000001.graph"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"not a graph")


BESIDE: dict[str, tuple[Callable[[Path], None], str]] = {
    "key": (cut_key, "vault.key"),
    "mark": (damage_mark, "records.mark"),
    "words of events": (damage_text, "timeline-index/text.db"),
    "graph": (damage_snapshot, "index/document/00000001.graph"),
}


async def test_whatever_is_derived_is_made_anew(sound: tuple[Path, dict[str, Any]], folder: Path) -> None:
    for name in INDEXES:
        damage_tree(folder, name)
    for damage, _ in BESIDE.values():
        damage(folder)
    before = files(folder)
    code, lines = repair(folder, "--dry-run")
    assert (code, files(folder)) == (0, before)
    assert all("can be re" in line for line in lines[:-1]), lines
    code, lines = repair(folder)
    assert (code, lines[-1].endswith("; beyond repair: 0")) == (0, True), lines
    for _, name in BESIDE.values():
        assert any(line.startswith(f"tenants/default/{name}: ") for line in lines), (name, lines)
    assert verified(folder) == "vaults: 1; damaged places: 0"
    assert [*differences(sound[1], await asked(folder))] == []
    assert repair(folder) == (0, ["damaged places: 0; beyond repair: 0"])


def test_records_that_are_damaged_are_named_and_nothing_of_them_is_changed(folder: Path) -> None:
    damage_tree(folder, "document")
    damage_tree(folder, "document_metadata")
    damage_text(folder)
    records = vault(folder) / "records.db"
    before = records.read_bytes()
    code, lines = repair(folder)
    assert (code, records.read_bytes()) == (1, before)
    assert any("the table document cannot be read to its end" in line for line in lines), lines
    assert sum("cannot be repaired: restore a backup" in line for line in lines) > 1
    assert not any(line.endswith(("-wal", ".encrypting")) for line in files(folder))


async def test_events_of_a_damaged_or_missing_segment_are_counted(folder: Path) -> None:
    first, second, *_ = sorted((vault(folder) / "timeline").glob("*.segment"))
    content = first.read_bytes()
    # The only page of its table, with all of its eight events.
    flip(first, 3 * PAGE + PAGE // 2)
    second.unlink()
    assert "damaged places: 2" in verified(folder)
    before = files(folder)
    code, foretold = repair(folder, "--dry-run")
    assert (code, first.read_bytes() == content, files(folder) == before) == (1, False, True), foretold
    assert any(line.startswith(f"tenants/default/timeline/{second.name}: the file is missing") for line in foretold)
    code, lines = repair(folder)
    assert code == 1
    assert "tenants/default/timeline: lost events: 16; cannot be repaired: restore a backup of the vault" in lines, (
        lines
    )
    assert [line.replace("; can be ", "; ") for line in foretold] == lines
    assert verified(folder) == "vaults: 1; damaged places: 0"
    async with whole_server(folder, **SETTINGS) as server, AsyncClient(str(server.server.address)) as client:
        assert sum(each.event_count for each in (await client.timeline.status()).lost) == 16


@pytest.mark.slow
async def test_a_repair_that_was_killed_changed_nothing_and_the_next_one_does_it(
    sound: tuple[Path, dict[str, Any]], folder: Path
) -> None:
    damage_tree(folder, "document_metadata")
    records = vault(folder) / "records.db"
    before = records.read_bytes()
    run_killed("os.rename", 1, records.with_name("records.db.encrypting"), "repair", "--data-dir", str(folder))
    assert records.read_bytes() == before
    assert repair(folder)[0] == 0
    assert [*differences(sound[1], await asked(folder))] == []


def test_all_tenants_are_repaired_or_one(folder: Path) -> None:
    copytree(vault(folder), folder / "tenants/acme")
    for tenant in ("acme", "default"):
        flip(folder / "tenants" / tenant / "timeline-index/text.db", PAGE + 9)
    assert repair(folder, "--tenant", "acme")[1][-1].startswith("damaged places: 1;")
    _, lines = repair(folder)
    assert [line.partition(":")[0] for line in lines[:-1]] == ["tenants/default/timeline-index/text.db"]


async def test_a_folder_that_is_served_is_refused(tmp_path: Path) -> None:
    async with whole_server(tmp_path, **SETTINGS):
        done = await asyncio.to_thread(run, "repair", "--data-dir", tmp_path)
    assert (done.returncode, "nothing has changed: stop it" in done.stderr) == (2, True), done.stderr
