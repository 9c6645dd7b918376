"""`mnemon-server rekey` gives a vault another key: who has the former one can read nothing any more."""

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mnemon import AsyncClient
from mnemon_server.engines.master_keys import MasterKeys, parse_master_keys
from mnemon_server.engines.sqlite.pages.database import WrongKeyError, has_fingerprint
from mnemon_server.engines.vault_key import VaultKey, VaultKeyFile

from tests.support.full_vault import answers, differences, fill
from tests.support.killed_at import run_killed
from tests.support.server import whole_server
from tests.support.server_command import run

SETTINGS: dict[str, Any] = {"timeline_segment_max_events": 8, "bridge_enabled": False}
MASTER = "5e" * 32
VAULT = Path("tenants/default")


async def asked(folder: Path, **settings: Any) -> dict[str, Any]:
    settings = {**SETTINGS, "master_key": MASTER, **settings}
    async with whole_server(folder, **settings) as server, AsyncClient(str(server.server.address)) as client:
        return await answers(client)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The data folder of a server with a master key that was stopped, and what it answered."""
    folder = tmp_path_factory.mktemp("vault")

    async def filled() -> dict[str, Any]:
        settings = {**SETTINGS, "master_key": MASTER, "bridge_enabled": True}
        async with whole_server(folder, **settings) as server, AsyncClient(str(server.server.address)) as client:
            await fill(client)
        return await asked(folder)

    return folder, asyncio.run(filled())


@pytest.fixture
def data(vault: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(vault[0], tmp_path / "data")


@pytest.fixture
def master(tmp_path: Path) -> Path:
    file = tmp_path / "master.key"
    file.touch(0o600)
    file.write_text(MASTER)
    return file


def keys() -> MasterKeys:
    return parse_master_keys(MASTER, "the test")


def key_of(data: Path) -> VaultKey:
    key = VaultKeyFile(data / VAULT, keys()).find()
    assert key is not None
    return key


def encrypted_with(data: Path, key: VaultKey) -> set[bool]:
    """Whether segments are encrypted with a key: what is true of any of them."""
    return {has_fingerprint(path, key) for path in (data / VAULT / "timeline").glob("*.segment")}


async def test_whoever_has_the_former_key_can_read_nothing(
    vault: tuple[Path, dict[str, Any]], data: Path, master: Path
) -> None:
    former, kept = key_of(data), (data / VAULT / "vault.key").read_bytes()
    done = run("rekey", "--data-dir", data, "--master-key-file", master)
    assert (done.returncode, done.stdout) == (0, "the vault of default has another key\n"), done.stderr
    key = key_of(data)
    assert (key.secret != former.secret, key.master) == (True, former.master)
    assert encrypted_with(data, former) == {False}
    assert encrypted_with(data, key) == {True}
    assert [*differences(vault[1], await asked(data))] == []
    assert run("verify", data, "--master-key-file", master).returncode == 0
    (data / VAULT / "vault.key").write_bytes(kept)
    with pytest.raises(WrongKeyError):
        await asked(data)


@pytest.mark.parametrize(
    ("event", "number", "place"),
    [
        ("os.rename", 1, ".restored-default"),  # the former vault is aside, and the new one is not there yet
        pytest.param("os.rename", 1, ".restoring-default/vault.key", marks=pytest.mark.slow),
        pytest.param("open", 1, ".restoring-default/timeline", marks=pytest.mark.slow),
        pytest.param("os.rename", 1, "default", marks=pytest.mark.slow),
        pytest.param("shutil.rmtree", 1, ".replaced-default", marks=pytest.mark.slow),
    ],
)
async def test_a_kill_leaves_the_former_key_or_the_new_one(
    vault: tuple[Path, dict[str, Any]], data: Path, master: Path, event: str, number: int, place: str
) -> None:
    former = key_of(data)
    command = ("rekey", "--data-dir", str(data), "--master-key-file", str(master))
    run_killed(event, number, data / "tenants" / place, *command)
    assert [*differences(vault[1], await asked(data))] == []
    assert (key_of(data) == former) == (".restoring" in place)
    assert sorted(path.name for path in (data / "tenants").iterdir()) == ["LOCK", "default"]
    assert run("rekey", "--data-dir", data, "--master-key-file", master).returncode == 0
    assert [*differences(vault[1], await asked(data))] == []


async def test_a_vault_without_a_master_key_gets_another_key_too(tmp_path: Path) -> None:
    async with whole_server(tmp_path, **SETTINGS) as server, AsyncClient(str(server.server.address)) as client:
        await client.documents.put("d", "Ada likes tea.")
        done = await asyncio.to_thread(run, "rekey", "--data-dir", tmp_path)
        assert (done.returncode, "nothing has changed: stop it" in done.stderr) == (1, True)
    before = (tmp_path / VAULT / "vault.key").read_bytes()
    shutil.copytree(tmp_path / VAULT, tmp_path / "tenants/acme")
    assert run("rekey", "--data-dir", tmp_path, "--tenant", "default").returncode == 0
    assert (tmp_path / VAULT / "vault.key").read_bytes() != before
    assert (tmp_path / "tenants/acme/vault.key").read_bytes() == before
    async with whole_server(tmp_path, **SETTINGS) as server, AsyncClient(str(server.server.address)) as client:
        assert (await client.documents.get("d")).content == "Ada likes tea."


def test_a_damaged_vault_keeps_its_key(data: Path, master: Path) -> None:
    # Each opening writes both slots of records.mark, which may differ if the server stopped right after a commit.
    changing = {"LOCK", "records.mark"}
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name not in changing}
    segment = sorted((data / VAULT / "timeline").glob("*.segment"))[0]
    content = bytearray(segment.read_bytes())
    content[len(content) // 3] ^= 1
    for damage in (partial(segment.write_bytes, content), segment.unlink):
        damage()
        done = run("rekey", "--data-dir", data, "--master-key-file", master)
        assert (done.returncode, "'timeline' is damaged" in done.stderr) == (1, True), done.stderr
        segment.write_bytes(before[segment])
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in (data / "tenants").iterdir()} == {"LOCK", "default"}
