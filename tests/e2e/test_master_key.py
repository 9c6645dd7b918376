"""With a master key, a stranger who has all files of a vault, or a backup, can read nothing of it."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mnemon import AsyncClient
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.master_keys import MasterKeyMissingError, WrongMasterKeyError

from tests.support.databases import files_below
from tests.support.full_vault import answers, differences, fill
from tests.support.killed_at import run_killed
from tests.support.server import run_command, until, whole_server

TEXTS = (b"Ada likes", b"green tea", b"aisle seats", b"when is the train", b"at the station", b"Zoe drinks")
"""Long enough not to be in encrypted bytes by chance."""
SETTINGS: dict[str, Any] = {"timeline_segment_max_events": 8}


def key_file(path: Path, *keys: str) -> Path:
    path.touch(0o600)
    path.write_text("# the current one comes first\n" + "\n".join(keys) + "\n")
    return path


def readable(folder: Path) -> dict[str, list[str]]:
    """The texts that are in the bytes of files, by file."""
    found = {}
    for path, content in files_below(folder):
        if texts := [text.decode() for text in TEXTS if text in content]:
            found[str(path.relative_to(folder))] = texts
    return found


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[AsyncClient]:
    async with (
        whole_server(folder, **SETTINGS, **settings) as server,
        AsyncClient(str(server.server.address)) as client,
    ):
        yield client


async def asked(folder: Path, **settings: Any) -> dict[str, Any]:
    async with served(folder, **settings) as client:
        return await answers(client)


async def filled(folder: Path, **settings: Any) -> dict[str, Any]:
    async with served(folder, **settings) as client:
        await fill(client)
        return await answers(client)


async def encrypted(folder: Path, file: Path) -> dict[str, Any]:
    """Serves a folder until nothing in it can be read."""
    async with served(folder, master_key_file=file) as client:
        await until(lambda: not readable(folder))
        return await answers(client)


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [difference for difference in differences(one, other) if "score" not in difference]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder without a master key, and what it answers."""
    folder = tmp_path_factory.mktemp("plain") / "data"
    return folder, asyncio.run(filled(folder))


async def test_nothing_can_be_read_without_the_master_key_and_everything_with_it(tmp_path: Path) -> None:
    key, data = key_file(tmp_path / "key", secrets.token_hex(32)), tmp_path / "data"
    expected = await filled(data, master_key_file=key)
    assert list(data.rglob("*.segment"))
    assert readable(data) == {}
    assert unlike(expected, await asked(data, master_key_file=key)) == []
    assert readable(data) == {}
    with pytest.raises(MasterKeyMissingError, match="no master key is set: set master_key_file"):
        await asked(data)
    other = key_file(tmp_path / "other", secrets.token_hex(32))
    with pytest.raises(WrongMasterKeyError, match="that is not the one which is set"):
        await asked(data, master_key_file=other)
    done = run_command("verify", str(data))
    assert (done.returncode, "no master key is set" in done.stdout) == (1, True)
    done = run_command("verify", str(data), "--master-key-file", str(key))
    assert (done.returncode, done.stdout) == (0, "vaults: 1; damaged places: 0\n")


async def test_a_backup_can_only_be_restored_with_the_master_key(tmp_path: Path) -> None:
    key, data = key_file(tmp_path / "key", secrets.token_hex(32)), tmp_path / "data"
    expected, given = await filled(data, master_key_file=key), ("--master-key-file", str(key))
    backup = str(tmp_path / "backup")
    assert "no master key is set" in run_command("backup", backup, "--data-dir", str(data)).stderr
    assert run_command("backup", backup, "--data-dir", str(data), *given).returncode == 0
    assert readable(Path(backup)) == {}
    new = ("restore", backup, "--data-dir", str(tmp_path / "new"))
    refused = run_command(*new)
    assert (refused.returncode, "no master key is set" in refused.stderr) == (1, True)
    assert not list((tmp_path / "new").rglob("records.db"))
    assert run_command(*new, *given).returncode == 0
    assert unlike(expected, await asked(tmp_path / "new", master_key_file=key)) == []
    assert readable(tmp_path / "new") == {}


async def test_a_folder_gets_a_master_key_and_a_new_one_takes_its_place(
    plain: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    source, expected = plain
    data = shutil.copytree(source, tmp_path / "data")
    first, second = secrets.token_hex(32), secrets.token_hex(32)
    old = key_file(tmp_path / "old", first)
    assert unlike(expected, await encrypted(data, old)) == []
    both = key_file(tmp_path / "both", second, first)
    assert unlike(expected, await asked(data, master_key_file=both)) == []
    new = key_file(tmp_path / "new", second)
    assert unlike(expected, await asked(data, master_key_file=new)) == []
    with pytest.raises(WrongMasterKeyError):
        await asked(data, master_key_file=old)
    assert readable(data) == {}


@pytest.mark.parametrize(
    ("event", "number", "place"),
    [
        ("os.rename", 1, "vault.key.new"),  # before the encrypted key takes the place of the other
        pytest.param("open", 1, "vault.key.new", marks=pytest.mark.slow),
        pytest.param("open", 2, "records.mark", marks=pytest.mark.slow),  # right after that
    ],
)
async def test_a_key_that_was_not_encrypted_in_time_is_encrypted_by_the_next_start(
    plain: tuple[Path, dict[str, Any]], tmp_path: Path, event: str, number: int, place: str
) -> None:
    source, expected = plain
    data, key = shutil.copytree(source, tmp_path / "data"), key_file(tmp_path / "key", secrets.token_hex(32))
    command = ("backup", str(tmp_path / "backup"), "--data-dir", str(data), "--master-key-file", str(key))
    run_killed(event, number, data / "tenants/default" / place, *command)
    assert unlike(expected, await encrypted(data, key)) == []
    with pytest.raises(MasterKeyMissingError):
        await asked(data)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"master_key": "abc"}, "64 hexadecimal digits"),
        ({"master_key_command": "echo the KMS is away >&2; exit 3"}, "exit code 3: the KMS is away"),
        ({"master_key_command": "true"}, "master_key_command must give a master key"),
        ({"master_key_file": Path("nowhere")}, "nowhere cannot be read"),
    ],
)
async def test_a_master_key_that_cannot_be_had_is_told(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        await asked(tmp_path, **settings)


async def test_the_key_can_come_from_a_command_or_the_environment(tmp_path: Path) -> None:
    key = secrets.token_hex(32)
    ways: Sequence[dict[str, Any]] = ({"master_key_command": f"echo {key}"}, {"master_key": key})
    for way in ways:
        async with served(tmp_path, **way) as client:
            await client.documents.put("d", "Ada")
    with pytest.raises(MasterKeyMissingError):
        await asked(tmp_path)
