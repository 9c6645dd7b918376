"""Backups and restorations that are killed: all or nothing, and the next attempt is not hindered."""

import asyncio
from pathlib import Path
from shutil import copytree

import pytest
from mnemon import AsyncClient, Client, UnavailableError
from mnemon.shared.backup_folder import BackupFolder
from mnemon_server.engines.vault_folders import finish_replacements

from tests.support.killed_at import run_killed
from tests.support.server import server_process, whole_server
from tests.support.server_command import run


async def contents_of(data_dir: Path) -> dict[str, str]:
    """The documents of a vault."""
    async with whole_server(data_dir) as server, AsyncClient(str(server.server.address)) as client:
        return {document.doc_id: document.content async for document in client.documents.list()}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder, and a backup from before its last write."""
    folder = tmp_path_factory.mktemp("kept")

    async def make() -> None:
        async with whole_server(folder / "data") as server, AsyncClient(str(server.server.address)) as client:
            await client.documents.put("note", "Before the backup.")
            await client.backups.create(folder / "backup")
            await client.documents.put("note", "After the backup.")

    asyncio.run(make())
    return folder


@pytest.mark.parametrize(
    ("event", "number", "restored"),
    [
        pytest.param("open", 4, False, marks=pytest.mark.slow),  # while the draft is written
        ("os.rename", 1, False),  # before it is called complete
        pytest.param("os.rename", 2, True, marks=pytest.mark.slow),  # before the old vault is moved away
        ("os.rename", 3, True),  # before the new one is in its place
        pytest.param("shutil.rmtree", 1, True, marks=pytest.mark.slow),  # before the old one is removed
    ],
)
def test_a_killed_restoration_has_restored_all_or_nothing(
    kept: Path, tmp_path: Path, event: str, number: int, *, restored: bool
) -> None:
    data = tmp_path / "data"
    copytree(kept / "data", data)
    arguments = ("restore", str(kept / "backup"), "--data-dir", str(data), "--replace")
    run_killed(event, number, data / "tenants", *arguments)

    expected = "Before the backup." if restored else "After the backup."
    assert asyncio.run(contents_of(data)) == {"note": expected}
    assert [each.name for each in (data / "tenants").iterdir() if each.is_dir()] == ["default"]
    assert run(*arguments).returncode == 0
    assert asyncio.run(contents_of(data)) == {"note": "Before the backup."}


@pytest.mark.parametrize(
    ("event", "number"),
    [*(pytest.param("open", number, marks=pytest.mark.slow) for number in (1, 3)), ("os.rename", 1)],
)
def test_a_killed_backup_does_not_exist_and_can_be_made_again(
    kept: Path, tmp_path: Path, event: str, number: int
) -> None:
    copytree(kept / "data", tmp_path / "data")
    arguments = ("backup", str(tmp_path / "kept/monday"), "--data-dir", str(tmp_path / "data"))
    run_killed(event, number, tmp_path / "kept", *arguments)
    assert not (tmp_path / "kept/monday").exists()

    assert run(*arguments).returncode == 0
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["monday"]
    assert run("verify", str(tmp_path)).returncode == 0
    assert list(tmp_path.rglob("copies/*")) == []
    assert run("restore", str(tmp_path / "kept/monday"), "--data-dir", str(tmp_path / "restored")).returncode == 0
    assert asyncio.run(contents_of(tmp_path / "restored")) == {"note": "After the backup."}


@pytest.fixture(scope="module")
def left(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a killed backup leaves behind."""
    folder = tmp_path_factory.mktemp("left")
    run_killed("os.rename", 1, folder, "backup", str(folder / "monday"), "--data-dir", str(kept / "data"))
    assert (folder / ".monday.part/records.db").exists()
    return folder / ".monday.part"


def test_what_a_killed_backup_has_left_is_no_damage_and_goes_with_the_next_backup(
    kept: Path, left: Path, tmp_path: Path
) -> None:
    copytree(left, tmp_path / left.name)
    (tmp_path / left.name / "records.db").write_bytes(b"half")
    copytree(kept / "backup", tmp_path / "sunday")
    for foreign in (".photos.part", ".film.part"):
        (tmp_path / foreign).mkdir()
        (tmp_path / foreign / "of another program").touch()
    (tmp_path / ".song.part").touch()
    assert run("verify", str(tmp_path)).returncode == 0
    with BackupFolder(tmp_path / "tuesday"):
        assert run("backup", str(tmp_path / "wednesday"), "--data-dir", str(kept / "data")).returncode == 0
        assert {each.name for each in tmp_path.iterdir()} == {
            *("sunday", "wednesday", ".tuesday.part", ".photos.part", ".film.part", ".song.part")
        }


async def test_a_start_and_an_erasure_remove_what_killed_backups_have_left_and_name_what_is_being_made(
    left: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept/default"
    copytree(left, kept / left.name)
    copytree(left, tmp_path / "kept/acme" / left.name)
    with BackupFolder(kept / "tuesday"):
        copytree(left, kept / ".wednesday.part")
        async with whole_server(tmp_path / "data", backup_dir=tmp_path / "kept") as server:
            assert [each.name for each in (tmp_path / "kept").glob("*/*")] == [".tuesday.part"]
            copytree(left, kept / left.name)
            async with AsyncClient(str(server.server.address)) as client:
                receipt = await client.erasures.run(user="ada")
        assert [each.name for each in kept.iterdir()] == [".tuesday.part"]
    assert receipt.out_of_reach[0] == "the server's backup tuesday, which is being made"


def test_a_server_that_is_killed_during_a_backup_has_lost_nothing(tmp_path: Path) -> None:
    copies = tmp_path / "data/tenants/default/copies"
    with (
        server_process(tmp_path / "data", "--knowledge-store-backend", "local") as server,
        Client(server.address()) as client,
    ):
        client.documents.put("note", "Kept.")
        with pytest.raises(UnavailableError):
            client.backups.create(tmp_path / "backup", report=lambda progress: server.end())
    assert not (tmp_path / "backup").exists()
    assert copies.exists()
    assert asyncio.run(contents_of(tmp_path / "data")) == {"note": "Kept."}
    assert not copies.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_unfinished_drafts_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".restoring-acme").mkdir()
    (tmp_path / ".restoring-acme/records.db").write_bytes(b"half")
    finish_replacements(tmp_path)
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == []
