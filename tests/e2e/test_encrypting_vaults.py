"""Folders of an earlier version are encrypted: all or nothing, whenever the process is killed."""

import asyncio
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from mnemon import AsyncClient

from tests.support.databases import contents_of
from tests.support.full_vault import answers, differences
from tests.support.kept_vault import unpack
from tests.support.killed_at import run_killed
from tests.support.server import run_command, whole_server

MARKER = b"Ada prefers aisle seats by now."
slow = partial(pytest.param, marks=pytest.mark.slow)


async def asked(folder: Path) -> dict[str, Any]:
    async with whole_server(folder) as server, AsyncClient(str(server.server.address)) as client:
        return await answers(client)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asyncio.run(asked(unpack(1, tmp_path_factory.mktemp("uninterrupted"))))


def unlike(expected: dict[str, Any], answers: dict[str, Any]) -> list[str]:
    """Differences other than scores, which change a little while words are re-indexed after the start."""
    return [difference for difference in differences(expected, answers) if "score" not in difference]


def raw(folder: Path) -> bytes:
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "timeline")
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("event", "number", "place"),
    [
        ("open", 2, "records.db.encrypting"),  # before the compared copy is synced
        ("os.rename", 1, "records.db.encrypting"),  # before the copy takes the place of the file
        slow("open", 1, "vault.key.new"),  # before there is a key
        slow("os.rename", 1, "vault.key.new"),  # before the key has its name
        slow("open", 1, "records.db.encrypting"),  # before the copy is begun
        slow("open", 1, "records.mark"),  # after all that
    ],
)
def test_a_killed_conversion_goes_on_with_the_next_start(
    expected: dict[str, Any], tmp_path: Path, event: str, number: int, place: str
) -> None:
    folder = unpack(1, tmp_path)
    vault = folder / "tenants/default"
    assert MARKER in raw(vault)
    run_killed(event, number, vault / place, "backup", str(tmp_path / "backup"), "--data-dir", str(folder))
    assert (MARKER in raw(vault)) is (place != "records.mark")

    assert unlike(expected, asyncio.run(asked(folder))) == []
    assert MARKER not in raw(vault)
    assert MARKER in contents_of(vault)
    assert not list(vault.rglob("*.encrypting*"))
    done = run_command("verify", str(folder))
    assert (done.returncode, done.stdout) == (0, "1 vaults; 0 places are damaged\n"), done.stderr


def test_a_backup_brings_its_key_along(expected: dict[str, Any], tmp_path: Path) -> None:
    folder, backup = unpack(1, tmp_path), tmp_path / "backup"
    assert run_command("backup", str(backup), "--data-dir", str(folder)).returncode == 0
    assert MARKER not in raw(backup)
    assert run_command("restore", str(backup), "--data-dir", str(tmp_path / "new")).returncode == 0
    assert unlike(expected, asyncio.run(asked(tmp_path / "new"))) == []


def test_a_folder_without_its_key_is_refused_by_the_command_and_by_verify(tmp_path: Path) -> None:
    folder = unpack(1, tmp_path)
    assert run_command("backup", str(tmp_path / "first"), "--data-dir", str(folder)).returncode == 0
    copytree(folder, tmp_path / "kept")
    (folder / "tenants/default/vault.key").unlink()
    sentence = "records.db cannot be read without vault.key, which is missing beside it"
    done = run_command("backup", str(tmp_path / "second"), "--data-dir", str(folder))
    assert done.returncode == 1
    assert sentence in done.stderr
    done = run_command("verify", str(folder))
    assert done.returncode == 1
    assert sentence in done.stdout
