"""Damage in the vault of one tenant is told to that tenant; all others are served."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import mnemon
import pytest
from mnemon import AsyncClient
from mnemon_server.domain.errors import RecordDamagedError

from tests.support.access import guarded_server, make_key
from tests.support.cases import exhaustive
from tests.support.databases import open_database
from tests.support.server import Connection, eventually, health_of, server_process, whole_server
from tests.support.server_command import run

DEFAULT, ACME = "default", "acme"
ONCE_S = 4.5
"""A deadline that leaves no time for the pause before a second attempt."""


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "first page": (lambda vault: flip(vault / "records.db", 1_000), "page 1 of records.db"),
    "key": (lambda vault: (vault / "vault.key").write_bytes(b"x" * 100), "vault.key is damaged"),
    "no key": (lambda vault: (vault / "vault.key").unlink(), "vault.key, which is missing"),
}
"""An accident of the files of a vault, and the error that its callers get."""


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """The secret of an admin of each of two tenants."""
    return {tenant: make_key(tmp_path, "admin", tenant=tenant) for tenant in (DEFAULT, ACME)}


def client_of(server: Connection, key: str) -> AsyncClient:
    return AsyncClient(str(server.server.address), api_key=key)


async def fill(folder: Path, keys: dict[str, str], **settings: object) -> None:
    async with guarded_server(folder, **settings) as server:
        for key in keys.values():
            async with client_of(server, key) as client:
                await client.documents.put("one", "Ada likes tea.")


@pytest.mark.parametrize("case", DAMAGES)
@pytest.mark.parametrize("tenant", [exhaustive(DEFAULT), ACME])
async def test_only_the_tenant_with_the_damage_is_refused(
    tmp_path: Path, keys: dict[str, str], tenant: str, case: str
) -> None:
    damage, told = DAMAGES[case]
    vault = tmp_path / "tenants" / tenant
    await fill(tmp_path, keys)
    damage(vault)
    async with guarded_server(tmp_path) as server:
        assert await health_of(server) == "SERVING"
        for each, key in keys.items():
            async with client_of(server, key) as client:
                if each != tenant:
                    assert (await client.documents.get("one")).content == "Ada likes tea."
                    continue
                with pytest.raises(mnemon.RecordDamagedError, match=told):
                    await client.documents.get("one")


@pytest.mark.parametrize("gone", ["folder", "records", "content"])
async def test_a_vault_that_is_gone_is_told_and_does_not_begin_anew(
    tmp_path: Path, keys: dict[str, str], gone: str
) -> None:
    await fill(tmp_path, keys)
    vault = tmp_path / "tenants" / ACME
    kept = shutil.copytree(vault, tmp_path / "kept")
    match gone:
        case "folder":
            shutil.rmtree(vault)
        case "records":
            (vault / "records.db").unlink()
        case "content":
            (vault / "records.db").write_bytes(b"")
    verified, repaired = run("verify", tmp_path), run("repair", "--data-dir", tmp_path)
    assert (verified.returncode, "acme/records.db: the file is missing" in verified.stdout) == (
        1,
        True,
    )
    assert (repaired.returncode, "damaged places: 1; beyond repair: 1" in repaired.stdout) == (1, True)
    async with guarded_server(tmp_path) as server, client_of(server, keys[ACME]) as client:
        for call in (client.documents.get("one"), client.documents.put("two", "Ada likes coffee.")):
            with pytest.raises(mnemon.RecordDamagedError, match="restore BACKUP --tenant acme"):
                await call
    shutil.rmtree(vault, ignore_errors=True)
    kept.rename(vault)
    async with guarded_server(tmp_path) as server, client_of(server, keys[ACME]) as client:
        assert (await client.documents.get("one")).content == "Ada likes tea."


async def test_without_keys_a_server_does_not_start_with_an_empty_vault_in_place_of_the_one_that_is_gone(
    tmp_path: Path,
) -> None:
    async with whole_server(tmp_path):
        pass
    shutil.rmtree(tmp_path / "tenants")
    with pytest.raises(RecordDamagedError, match="the vault of the tenant 'default' is gone"):
        async with whole_server(tmp_path):
            pass
    assert run("verify", tmp_path).returncode == 1
    (tmp_path / "vaults" / DEFAULT).unlink()
    async with whole_server(tmp_path):
        assert run("verify", tmp_path).returncode == 0


@pytest.mark.parametrize("what", ["data folder", "vault", "replaced", "removed"])
async def test_nothing_is_acknowledged_into_a_folder_that_is_not_there_any_more(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "data"
    vault = folder / "tenants" / DEFAULT
    async with (
        whole_server(folder, health_check_interval_s=0.05) as server,
        AsyncClient(str(server.server.address)) as client,
    ):
        await client.documents.put("one", "Ada likes tea.")
        moved = folder if what == "data folder" else vault
        if what == "removed":
            shutil.rmtree(vault)
        else:
            moved.rename(tmp_path / "elsewhere")
        if what == "replaced":
            shutil.copytree(tmp_path / "elsewhere", vault)
        for write in (
            client.documents.put("two", "Ada likes coffee.", timeout=ONCE_S),
            client.remember("Ada likes milk.", user="ada", timeout=ONCE_S),
            client.timeline.add("message", "hello", user="ada", timeout=ONCE_S),
        ):
            with pytest.raises(mnemon.UnavailableError, match="is not where it was opened"):
                await write
        await eventually(lambda: has_health(server, "NOT_SERVING"))
        if what in ("data folder", "vault"):
            shutil.rmtree(moved, ignore_errors=True)  # a task in the background may have begun a folder there
            (tmp_path / "elsewhere").rename(moved)
            await eventually(lambda: has_health(server, "SERVING"))
            await client.documents.put("three", "Ada likes water.")
            assert [each.doc_id async for each in client.documents.list()] == ["one", "three"]


async def test_no_vault_begins_in_a_data_folder_that_is_not_there_any_more(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    keys = {tenant: make_key(folder, "admin", tenant=tenant) for tenant in (DEFAULT, ACME)}
    await fill(folder, keys)
    async with (
        guarded_server(folder) as server,
        client_of(server, keys[DEFAULT]) as default,
        client_of(server, keys[ACME]) as client,
    ):
        assert (await default.documents.get("one")).content == "Ada likes tea."
        folder.rename(elsewhere)
        for call in (
            client.documents.put("two", "Ada likes coffee.", timeout=ONCE_S),
            client.documents.get("one", timeout=ONCE_S),
        ):
            with pytest.raises(mnemon.UnavailableError, match="is not where it was opened"):
                await call
        for name in ("vaults", "audit", f"tenants/{ACME}"):
            assert not (folder / name).exists(), name
        shutil.rmtree(folder, ignore_errors=True)  # a task in the background may have begun a folder there
        elsewhere.rename(folder)
        await client.documents.put("two", "Ada likes coffee.")
        assert [each.doc_id async for each in client.documents.list()] == ["one", "two"]


async def has_health(server: Connection, status: str) -> bool:
    return await health_of(server) == status


async def test_no_key_is_made_in_a_folder_that_is_not_there_any_more(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    key = make_key(folder, "admin")
    async with guarded_server(folder) as server, client_of(server, key) as client:
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(mnemon.UnavailableError, match=r"access\.db is not where it was opened"):
            await client.keys.add("a robot", role="writer", timeout=ONCE_S)
        (tmp_path / "elsewhere").rename(folder)
        assert (await client.keys.add("a robot", role="writer")).key.name == "a robot"


async def test_a_vault_that_was_moved_leaves_the_others_served(tmp_path: Path, keys: dict[str, str]) -> None:
    await fill(tmp_path, keys)
    async with (
        guarded_server(tmp_path, health_check_interval_s=0.05) as server,
        client_of(server, keys[ACME]) as client,
        client_of(server, keys[DEFAULT]) as other,
    ):
        assert (await client.documents.get("one")).content == "Ada likes tea."
        (tmp_path / "tenants" / ACME).rename(tmp_path / "elsewhere")
        with pytest.raises(mnemon.UnavailableError, match="is not where it was opened"):
            await client.documents.put("two", "Ada likes coffee.", timeout=ONCE_S)
        await other.documents.put("two", "Ada likes coffee.")
        assert await health_of(server) == "SERVING"


@pytest.mark.parametrize("name", [".", "records.db", "records.mark", "vault.key"])
async def test_no_symbolic_link_within_the_data_folder_is_followed(
    tmp_path: Path, keys: dict[str, str], name: str
) -> None:
    await fill(tmp_path, keys)
    path = tmp_path / "tenants" / ACME / name
    target = path.rename(tmp_path / "elsewhere")
    path.symlink_to(target)
    named = str(path.relative_to(tmp_path))
    verified, repaired = run("verify", tmp_path), run("repair", "--data-dir", tmp_path)
    for done in (verified, repaired):
        assert (done.returncode, named in done.stdout, "symbolic link" in done.stdout) == (1, True, True), done
    made = run("backup", tmp_path / "backup", "--data-dir", tmp_path, "--tenant", ACME)
    assert (made.returncode, "is a symbolic link" in made.stderr, (tmp_path / "backup").exists()) == (1, True, False)
    async with guarded_server(tmp_path) as server, client_of(server, keys[ACME]) as client:
        with pytest.raises(mnemon.ConfigurationError, match="is a symbolic link"):
            await client.documents.get("one")
        async with client_of(server, keys[DEFAULT]) as other:
            assert (await other.documents.get("one")).content == "Ada likes tea."


async def test_the_data_folder_itself_may_be_a_symbolic_link(tmp_path: Path) -> None:
    disk, folder = tmp_path / "disk", tmp_path / "data"
    disk.mkdir()
    folder.symlink_to(disk)
    key = make_key(folder, "admin")
    for _ in range(2):
        async with guarded_server(folder) as server, client_of(server, key) as client:
            await client.documents.put("one", "Ada likes tea.")
    assert run("backup", tmp_path / "backup", "--data-dir", folder).returncode == 0
    assert run("restore", tmp_path / "backup", "--data-dir", folder, "--replace").returncode == 0
    assert run("verify", folder).returncode == 0
    assert run("repair", "--data-dir", folder).returncode == 0


async def test_a_timeline_that_cannot_be_loaded_is_told_and_everything_else_is_served(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as client:
        await client.documents.put("one", "Ada likes tea.")
        await client.timeline.add("message", "hello", user="ada")
    records = tmp_path / "tenants" / DEFAULT / "records.db"
    with closing(open_database(records)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'timeline_dead'").get
    flip(records, page * 4_096 - 200)
    # In its own process, because the test servers wait until the timeline is loaded.
    with server_process(tmp_path, "--knowledge-store-backend", "local") as process:
        async with AsyncClient(await asyncio.to_thread(process.address)) as client:
            await client.wait_until_ready()
            assert (await client.documents.get("one")).content == "Ada likes tea."
            with pytest.raises(mnemon.UnavailableError, match=f"page {page} of records.db"):
                await client.timeline.add("message", "hello again", user="ada", timeout=ONCE_S)
