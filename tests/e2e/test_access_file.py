"""The file of API keys and tenants: pages are authenticated, and encrypted with a master key if there is one."""

import random
import secrets
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from mnemon_server.engines.access_file import FILE_NAME, KEY_NAME, AccessFile
from mnemon_server.engines.master_keys import MasterKeyMissingError, WrongMasterKeyError, parse_master_keys
from mnemon_server.engines.sqlite.pages.database import connect
from mnemon_server.engines.vault_key import KeyLostError, VaultKeyFile

from tests.support.killed_at import run_killed
from tests.support.server_command import run

FLIPS = 24
NAMES = (b"a robot of Ada", b"acme", b"users.ada")


@pytest.fixture
def master(tmp_path: Path) -> Path:
    file = tmp_path / "master.key"
    file.touch(0o600)
    file.write_text(secrets.token_hex(32))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a key."""
    data = tmp_path / "data"
    created = ("create", NAMES[0].decode(), "--role", "writer", "--tenant", "acme", "--namespace", "users.ada")
    assert run("keys", *created, "--data-dir", data).returncode == 0
    return data


def listed(folder: Path, *flags: str) -> str:
    done = run("keys", "list", "--tenant", "acme", "--data-dir", folder, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_plain(folder: Path) -> None:
    """Makes the file what an earlier version wrote."""
    path = folder / FILE_NAME
    with closing(connect(path, VaultKeyFile(folder, name=KEY_NAME), flags=6 | apsw.SQLITE_OPEN_URI)) as connection:
        connection.execute("VACUUM INTO ?", (f"file:{path}.plain?key=",))
    path.with_name(f"{FILE_NAME}.plain").replace(path)
    (folder / KEY_NAME).unlink()


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_no_flipped_bit_changes_who_may_do_what(folder: Path, tmp_path: Path) -> None:
    expected, rng, refused = listed(folder), random.Random(7), 0
    for number in range(FLIPS):
        copy = shutil.copytree(folder, tmp_path / f"copy-{number}")
        content = bytearray((copy / FILE_NAME).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (copy / FILE_NAME).write_bytes(content)
        done = run("keys", "list", "--tenant", "acme", "--data-dir", copy)
        refused += done.returncode
        assert done.returncode or done.stdout == expected, (number, done.stdout)
        assert run("verify", copy).returncode == 1, number
    assert refused


def test_with_a_master_key_the_file_cannot_be_read_without_it(folder: Path, master: Path) -> None:
    before = listed(folder)
    keys = parse_master_keys(master.read_text(), "the test")
    AccessFile(folder, keys).close()
    assert listed(folder, "--master-key-file", str(master)) == before
    done = run("keys", "list", "--data-dir", folder)
    assert (done.returncode, "no master key is set" in done.stderr) == (1, True)
    with pytest.raises(MasterKeyMissingError):
        AccessFile(folder)
    with pytest.raises(WrongMasterKeyError):
        AccessFile(folder, parse_master_keys("5e" * 32, "the test"))
    assert not any(name in contents(folder) for name in NAMES)


@pytest.mark.parametrize("killed", [False, True])
def test_the_file_of_an_earlier_version_is_encrypted(folder: Path, killed: bool) -> None:  # noqa: FBT001
    before = listed(folder)
    make_plain(folder)
    assert all(name in contents(folder) for name in NAMES)
    if killed:
        run_killed("os.rename", 2, folder, "keys", "list", "--data-dir", str(folder))
        assert (folder / FILE_NAME).read_bytes().startswith(b"SQLite format 3")
    assert listed(folder) == before
    assert not any(name in contents(folder) for name in NAMES)
    assert {path.name for path in folder.iterdir()} == {FILE_NAME, KEY_NAME, f"{FILE_NAME}.lock"}


def test_a_lost_key_is_told(folder: Path) -> None:
    (folder / KEY_NAME).unlink()
    with pytest.raises(KeyLostError, match=r"access.db cannot be read without access.key"):
        AccessFile(folder)
