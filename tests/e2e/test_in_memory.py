"""A server that keeps records in memory has everything that another one has, and leaves nothing behind."""

import tempfile
from pathlib import Path

import mnemon
import pytest
from mnemon_server.engines.temporary_folder import PREFIX
from mnemon_server.engines.vault_folders import vaults_folder

from tests.support.killable import KillableServer
from tests.support.server import until, whole_server

TEXT = "Ada hid the key under the doormat"
FLAGS = ("--knowledge-store-backend", "in_memory")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return places


def left_in(places: Path) -> list[Path]:
    return [*places.glob(f"{PREFIX}*")]


async def test_an_idle_vault_is_closed_and_opens_again_with_its_records(tmp_path: Path, places: Path) -> None:
    data_dir = tmp_path / "data"
    async with (
        whole_server(data_dir, knowledge_store_backend="in_memory", vault_idle_s=0.1) as connected,
        mnemon.AsyncClient(str(connected.server.address)) as client,
    ):
        await client.documents.put("note", TEXT)
        await client.timeline.add("count", TEXT, user="ada", event_id="e")
        [folder] = left_in(places)
        # While it is open, its log is beside it.
        log = vaults_folder(folder) / "default" / "records.db-wal"
        await until(lambda: not log.exists())
        assert (await client.documents.get("note")).content == TEXT
        assert (await client.timeline.get("e")).content == TEXT
    assert left_in(places) == []
    assert not data_dir.exists()


def test_what_a_killed_server_leaves_cannot_be_read_and_goes_with_the_next_start(tmp_path: Path, places: Path) -> None:
    server = KillableServer(tmp_path, *FLAGS)
    server.start()
    with mnemon.Client(server.address) as client:
        client.documents.put("note", TEXT)
    server.kill()
    [left] = left_in(places)
    contents = [path.read_bytes() for path in left.rglob("*") if path.is_file()]
    assert any(contents)
    assert not any(TEXT.encode() in content for content in contents)
    # Without a master key, this file holds the key of a vault in the clear.
    assert (vaults_folder(left) / "default" / "vault.key").read_text().startswith("mnemon-vault-key/2 ")
    server.start()
    assert left not in left_in(places)
    with mnemon.Client(server.address) as client:
        assert client.documents.count() == 0
    server.terminate()
    assert left_in(places) == []
    assert not server.data_dir.exists()
