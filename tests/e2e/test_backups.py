"""Backups of a server in use, restored on another folder."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from mnemon import (
    AsyncClient,
    DocumentNotFoundError,
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidCursorError,
)
from mnemon.shared.backup_folder import BackupFolder
from mnemon.v1.backup_pb2 import CreateBackupRequest

from tests.support import command
from tests.support.full_vault import answers, differences, fill
from tests.support.server import eventually, until, whole_server
from tests.support.server_command import run


def restore(backup: Path, data_dir: Path, *options: str) -> None:
    """Restores a backup, which must succeed."""
    done = run("restore", str(backup), "--data-dir", str(data_dir), *options)
    assert done.returncode == 0, done.stderr


def manifest(backup: Path) -> dict[str, Any]:
    """The manifest of a backup."""
    content: dict[str, Any] = json.loads((backup / "manifest.json").read_bytes())
    return content


def stored_bytes(backup: Path) -> int:
    """The size of what a backup holds of records.db and the timeline."""
    return sum(file["stored"]["size"] for file in manifest(backup)["files"] if file["stored"])


def names_in(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(each.name for each in folder.iterdir())


@asynccontextmanager
async def served(data_dir: Path, **settings: Any) -> AsyncIterator[AsyncClient]:
    """A client of a server on a folder, with segments of ten events."""
    async with (
        whole_server(data_dir, timeline_segment_max_events=10, **settings) as server,
        AsyncClient(str(server.server.address)) as client,
    ):
        yield client


async def test_a_restored_backup_answers_as_the_vault_did(tmp_path: Path) -> None:
    backup, seen = tmp_path / "backup", list[tuple[int, int]]()
    async with served(tmp_path / "data") as client:
        await fill(client)
        [done async for done in client.timeline.compact()]
        expected = await answers(client)
        made = await client.backups.create(
            backup, report=lambda progress: seen.append((progress.done_bytes, progress.total_bytes))
        )
        await client.documents.put("later", "This came after the backup.")

    assert seen[-1][0] == seen[-1][1] > 0
    assert made.size_bytes == sum(each.stat().st_size for each in backup.rglob("*") if each.is_file())
    assert made.sequence == manifest(backup)["sequence"]
    assert sum(file["path"].startswith("timeline/") for file in manifest(backup)["files"]) >= 1
    assert list((tmp_path / "data").rglob("copies/*")) == []

    restore(backup, tmp_path / "restored")
    async with served(tmp_path / "restored") as client:
        assert list(differences(expected, await answers(client))) == []
        with pytest.raises(DocumentNotFoundError):
            await client.documents.get("later")
    assert run("verify", str(tmp_path / "restored")).returncode == 0


async def test_a_backup_under_load_is_a_state_that_existed(tmp_path: Path) -> None:
    """Each writer numbers its writes, so a state that existed has no gaps, and all that was acknowledged before."""
    acknowledged = [0] * 6
    async with served(tmp_path / "data") as client:
        stop = asyncio.Event()

        async def write(writer: int) -> None:
            for number in itertools.count(1):
                if stop.is_set():
                    return
                text = f"write {number} of writer {writer}: " + "the keeper counts ships " * 40
                await client.documents.put(f"{writer}/{number}", text)
                await client.timeline.add("count", f"event {number}", user="ada", event_id=f"{writer}/{number}")
                # One that came before is replaced, so that pages in the middle of the file change, too.
                await client.documents.put(f"{writer}/last", f"{number}")
                acknowledged[writer] = number

        writers = [asyncio.create_task(write(writer)) for writer in range(len(acknowledged))]
        before, base = [], None
        for number in range(3):
            await until(lambda least=4 * (number + 1): min(acknowledged) >= least)
            before.append(list(acknowledged))
            made = tmp_path / f"backup-{number}"
            await client.backups.create(made, base=base)
            base = made
        stop.set()
        await asyncio.gather(*writers)

    for number, least in enumerate(before):
        restore(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}")
        assert run("verify", str(tmp_path / f"restored-{number}")).returncode == 0
        async with served(tmp_path / f"restored-{number}") as client:
            ids = {document.doc_id async for document in client.documents.list()}
            events = {event.event_id async for event in client.timeline.list()}
            for writer in range(len(acknowledged)):
                stored = numbers_of(writer, ids)
                assert stored == list(range(1, len(stored) + 1))
                assert len(stored) >= least[writer]
                recorded = numbers_of(writer, events)
                assert recorded == list(range(1, len(recorded) + 1))
                # A writer has at most one write that is not followed by the next.
                last = int((await client.documents.get(f"{writer}/last")).content)
                assert len(stored) >= len(recorded) >= last >= len(stored) - 1


def numbers_of(writer: int, ids: set[str]) -> list[int]:
    """The numbers of a writer's writes, ascending."""
    found = (name.split("/") for name in ids if name.startswith(f"{writer}/"))
    return sorted(int(number) for _, number in found if number.isdigit())


async def test_an_incremental_backup_has_what_changed(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as client:
        await fill(client)
        await client.backups.create(tmp_path / "full")
        await client.documents.put("seat", "Ada moved to the back row.")
        await client.backups.create(tmp_path / "first", base=tmp_path / "full")
        await client.timeline.add("reminder", "Water the plants.", user="ada")
        [done async for done in client.timeline.compact()]
        await client.backups.create(tmp_path / "second", base=tmp_path / "first")
        await client.backups.create(tmp_path / "third", base=tmp_path / "second")
        expected = await answers(client)

    full, *parts = (stored_bytes(tmp_path / name) for name in ("full", "first", "second", "third"))
    assert max(parts) < full / 2
    restore(tmp_path / "third", tmp_path / "restored")
    async with served(tmp_path / "restored") as client:
        assert list(differences(expected, await answers(client))) == []

    (tmp_path / "first").rename(tmp_path / "elsewhere")
    assert run("verify", str(tmp_path / "second")).returncode == 0
    (tmp_path / "aside").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "aside/first")
    done = run("restore", str(tmp_path / "third"), "--data-dir", str(tmp_path / "no"))
    assert (done.returncode, "is not beside it" in done.stderr) == (1, True)
    assert not (tmp_path / "no/tenants/default").exists()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a full backup, and an incremental one based on it."""
    folder = tmp_path_factory.mktemp("backups")

    async def make() -> None:
        async with served(folder / "data") as client:
            await fill(client)
            [done async for done in client.timeline.compact()]
            await client.backups.create(folder / "full")
            await client.documents.put("seat", "Ada moved to the back row.")
            await client.backups.create(folder / "next", base=folder / "full")

    asyncio.run(make())
    return folder


@pytest.mark.parametrize("name", ["full/records.db", "full/timeline", "full/manifest.json", "next/records.db.changed"])
def test_damage_is_found_and_names_the_file(sound: Path, tmp_path: Path, name: str) -> None:
    for backup in ("full", "next"):
        copytree(sound / backup, tmp_path / backup)
    file = tmp_path / name
    if file.is_dir():
        file = min(file.iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    verified = run("verify", str(tmp_path))
    assert "A damaged backup cannot be repaired" in verified.stderr and "Next" not in verified.stderr
    assert (verified.returncode, file.name in verified.stdout) == (1, True)
    done = run("restore", str(tmp_path / "next"), "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, file.name in done.stderr) == (1, True)
    assert not (tmp_path / "data/tenants/default").exists()


@pytest.mark.parametrize("damaged", ["a-copy", "full"])
def test_of_two_copies_of_a_base_the_sound_one_is_restored_and_the_damaged_one_named(
    sound: Path, tmp_path: Path, damaged: str
) -> None:
    for source, target in (("full", "full"), ("full", "a-copy"), ("next", "next")):
        copytree(sound / source, tmp_path / target)
    file = tmp_path / damaged / "records.db"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    done = run("restore", str(tmp_path / "next"), "--data-dir", str(tmp_path / "data"))

    assert done.returncode == 0, done.stderr
    assert (str(file) in done.stderr) == (damaged == "a-copy")
    assert run("verify", str(tmp_path / "data")).returncode == 0


def test_a_sound_backup_is_verified_byte_by_byte(sound: Path) -> None:
    done = run("verify", str(sound), "--json")
    assert (done.returncode, json.loads(done.stdout)["backups"]) == (0, 2)
    assert "timeline" in done.stderr and "timeline" not in run("verify", str(sound / "full")).stderr


async def test_a_restored_vault_has_a_new_epoch_and_keeps_what_is_not_about_it(tmp_path: Path) -> None:
    async with served(tmp_path / "data", timeline_segment_max_age_s=0.001) as client:
        await fill(client)
        await client.documents.put("once", "Stored once.", request_id="request-1")
        page = await client.changes.list_page(page_size=5)
        info = await client.server_info()
        await client.backups.create(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "data", "--replace")

    async with served(tmp_path / "data") as client:
        with pytest.raises(InvalidCursorError):
            await client.changes.list_page(page.cursor)
        assert (await client.server_info()).vault_id != info.vault_id
        receipt = await client.documents.put("once", "Stored once.", request_id="request-1")
        assert receipt.revision == 1
        await client.timeline.add("reminder", "After the restoration.", user="ada")
        # A restored vault can be backed up, and that restored, as well.
        await client.backups.create(tmp_path / "again", base=tmp_path / "backup")
        expected = await answers(client)
    restore(tmp_path / "again", tmp_path / "elsewhere", "--tenant", "acme")
    (tmp_path / "elsewhere/tenants/acme").rename(tmp_path / "elsewhere/tenants/default")
    async with served(tmp_path / "elsewhere") as client:
        assert list(differences(expected, await answers(client))) == []


async def test_restore_refuses_what_would_lose_data(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as client:
        await client.documents.put("kept", "This must stay.")
        await client.backups.create(tmp_path / "backup")
        await client.documents.put("newer", "And this.")
        done = run("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"), "--replace")
        assert (done.returncode, "stop it" in done.stderr) == (1, True)
    done = run("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, "--replace" in done.stderr) == (1, True)
    async with served(tmp_path / "data") as client:
        assert (await client.documents.get("newer")).content == "And this."


async def test_a_damaged_vault_is_replaced_only_if_its_erasures_may_be_forgotten(tmp_path: Path) -> None:
    arguments = "restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"), "--replace"
    records = tmp_path / "data/tenants/default/records.db"
    async with served(tmp_path / "data") as client:
        await client.documents.put("note", "From the backup.")
        await client.backups.create(tmp_path / "backup")
    for content in (b"damaged" * 10_000, b"", None):
        if content is None:
            records.unlink()
        else:
            records.write_bytes(content)
        done = run(*arguments)
        assert (done.returncode, "--forget-erasures" in done.stderr) == (1, True)
        assert (records.read_bytes() if records.exists() else None) == content
        assert run(*arguments, "--forget-erasures").returncode == 0
        async with served(tmp_path / "data") as client:
            assert (await client.documents.get("note")).content == "From the backup."


async def test_the_server_keeps_backups_under_names(tmp_path: Path) -> None:
    async with served(tmp_path / "data", backup_dir=tmp_path / "kept") as client:
        await client.documents.put("note", "Ada prefers window seats.")
        full = await client.backups.create_on_server("monday")
        await client.documents.put("note", "Ada prefers aisle seats.")
        await client.backups.create_on_server("tuesday", base="monday")
        with pytest.raises(FailedPreconditionError, match="exists already"):
            await client.backups.create_on_server("monday")
        nameless = [(name, "") for name in ("", ".", "../monday", ".hidden")]
        for name, base in (*nameless, ("wednesday", "sunday"), ("wednesday", "../tuesday")):
            with pytest.raises(InvalidArgumentError, match="name"):
                await client.backups.create_on_server(name, base=base)
    folder = tmp_path / "kept/default"
    assert sorted(each.name for each in folder.iterdir()) == ["monday", "tuesday"]
    assert manifest(folder / "tuesday")["base"]["backup_id"] == full.backup_id
    assert {each.stat().st_mode & 0o077 for each in folder.rglob("*")} == {0}
    restore(folder / "tuesday", tmp_path / "restored")
    async with served(tmp_path / "restored") as client:
        assert (await client.documents.get("note")).content == "Ada prefers aisle seats."


@pytest.mark.parametrize("arguments", [("",), ("", "--on-server"), ("monday", "--base", "")])
def test_a_backup_without_a_name_is_refused_by_the_commands(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    asked = command.run("127.0.0.1:1", "backup", *arguments)
    assert (asked.returncode, "must not be empty" in asked.stderr) == (2, True), asked.stderr
    if arguments == ("",):
        copied = run("backup", *arguments, "--data-dir", str(tmp_path))
        assert (copied.returncode, "'FOLDER': must not be empty" in copied.stderr) == (2, True), copied.stderr


async def test_what_cannot_be_backed_up_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with served(tmp_path / "other") as client:
        await client.backups.create(tmp_path / "foreign")
    async with served(tmp_path / "data") as client:
        with pytest.raises(FailedPreconditionError, match="backup_dir"):
            await client.backups.create_on_server("monday")
        with pytest.raises(InvalidArgumentError, match="same vault"):
            await client.backups.create(tmp_path / "backup", base=tmp_path / "foreign")
        with pytest.raises(FileExistsError):
            await client.backups.create(tmp_path / "foreign")
    async with served(tmp_path / "nowhere", knowledge_store_backend="in_memory") as client:
        with pytest.raises(FailedPreconditionError, match="in memory"):
            await client.backups.create(tmp_path / "backup")
    assert names_in(tmp_path) == ["data", "foreign", "other"]


async def test_events_that_are_pruned_during_a_backup_are_in_it_and_leave_the_vault(tmp_path: Path) -> None:
    """The backup reads sealed files through links, so pruning must not write to these."""
    async with served(tmp_path / "data", erasure_delay_s=0.05) as client:
        for number in range(30):
            await client.timeline.add("count", f"secret {number}", user="ada", event_id=f"{number}")
        [done async for done in client.timeline.compact()]
        messages = client.backups._messages(CreateBackupRequest(), None, None)
        with BackupFolder(tmp_path / "backup") as files:
            first = await anext(messages)
            await client.timeline.delete_many([f"{number}" for number in range(30)])

            async def is_erased() -> bool:
                return (await client.timeline.status()).removal_pending_count == 0

            await eventually(is_erased)
            files.write(first.chunk.path, first.chunk.data)
            async for message in messages:
                if message.HasField("chunk"):
                    files.write(message.chunk.path, message.chunk.data)
            files.commit()
    segments = list((tmp_path / "data/tenants/default/timeline").iterdir())
    assert not any(b"secret" in segment.read_bytes() for segment in segments)
    restore(tmp_path / "backup", tmp_path / "restored")
    async with served(tmp_path / "restored") as client:
        assert len([event async for event in client.timeline.list()]) == 30
    assert run("verify", str(tmp_path / "restored")).returncode == 0
