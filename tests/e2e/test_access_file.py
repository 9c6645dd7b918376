"""The file of API keys and tenants: pages are authenticated, and encrypted with a master key if there is one."""

import json
import random
import secrets
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mnemon_server.domain.access import ApiKey, Role
from mnemon_server.domain.access.tenants import Tenant
from mnemon_server.domain.clock import system_clock
from mnemon_server.engines.access_file import COPY_NAME, FILE_NAME, KEY_NAME, AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.master_keys import MasterKeyMissingError, WrongMasterKeyError, parse_master_keys
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.engines.vault_key import KeyLostError

from tests.support.access import make_key
from tests.support.command import run as client_run
from tests.support.server import server_process
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


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("command", ["keys", "repair"])
def test_a_flipped_bit_is_put_back_from_the_second_copy(folder: Path, tmp_path: Path, command: str) -> None:
    expected, rng = listed(folder), random.Random(7)
    for number in range(FLIPS // 2):
        copy = shutil.copytree(folder, tmp_path / f"copy-{number}")
        flip(copy / rng.choice([FILE_NAME, COPY_NAME]), rng.randrange((copy / FILE_NAME).stat().st_size))
        assert run("verify", copy).returncode == 1, number
        if command == "repair":
            planned = run("repair", "--data-dir", copy, "--dry-run")
            assert "can be put back from its second copy" in planned.stdout, (number, planned)
            assert "damaged places: 1; beyond repair: 0" in run("repair", "--data-dir", copy).stdout, number
        assert listed(copy) == expected, number
        assert run("verify", copy).returncode == 0, number


def test_a_copy_of_another_time_brings_no_revoked_key_back(folder: Path, tmp_path: Path) -> None:
    before = shutil.copy(folder / COPY_NAME, tmp_path)
    [key_id] = [line.split()[0] for line in listed(folder).splitlines()]
    assert run("keys", "revoke", key_id, "--tenant", "acme", "--data-dir", folder).returncode == 0
    shutil.copy(before, folder / COPY_NAME)
    for page in range((folder / FILE_NAME).stat().st_size // 4_096):
        copy = shutil.copytree(folder, tmp_path / f"copy-{page}")
        flip(copy / FILE_NAME, page * 4_096 + 200)
        told = f"page {page + 1} of '{copy / FILE_NAME}' is damaged on disk"
        done = run("keys", "list", "--tenant", "acme", "--data-dir", copy)
        assert (done.returncode, done.stdout, told in done.stderr) == (1, "", True), done.stderr
        assert "Traceback" not in done.stderr
        repaired = run("repair", "--data-dir", copy)
        assert (repaired.returncode, told in repaired.stdout) == (1, True), repaired
        assert "new keys with `mnemon-server keys create" in repaired.stdout
        assert run("verify", copy).returncode == 1


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_file_is_put_back_from_its_copy_by_repair_alone(folder: Path, content: bytes | None) -> None:
    expected, kept = listed(folder), (folder / COPY_NAME).read_bytes()
    (folder / FILE_NAME).unlink()
    if content is not None:
        (folder / FILE_NAME).write_bytes(content)
    for command in (
        ("keys", "list", "--tenant", "acme"),
        ("keys", "create", "another", "--tenant", "acme", "--role", "reader"),
        ("serve", "--authentication", "api_key"),
        ("serve",),
    ):
        done = run(*command, "--data-dir", folder)
        assert (done.returncode != 0, "access.db' is missing or empty" in done.stderr) == (True, True), done
        assert "`mnemon-server repair` puts it back from the copy" in done.stderr
    verified, planned = run("verify", folder), run("repair", "--data-dir", folder, "--dry-run")
    assert (verified.returncode, "access.db: the file is missing or empty" in verified.stdout) == (1, True), verified
    assert (planned.returncode, "can be put back from its second copy" in planned.stdout) == (0, True), planned
    assert (folder / COPY_NAME).read_bytes() == kept
    repaired = run("repair", "--data-dir", folder)
    assert (repaired.returncode, "damaged places: 1; beyond repair: 0" in repaired.stdout) == (0, True), repaired
    assert (listed(folder), run("verify", folder).returncode) == (expected, 0)


def test_a_missing_file_whose_copy_is_damaged_is_not_made_anew(folder: Path) -> None:
    (folder / FILE_NAME).unlink()
    flip(folder / COPY_NAME, 5_000)
    repaired = run("repair", "--data-dir", folder)
    told = "move both access.db and access.db.copy away, and make new keys"
    assert (repaired.returncode, told in repaired.stdout) == (1, True), repaired
    assert not (folder / FILE_NAME).exists()
    (folder / COPY_NAME).unlink()
    made = run("keys", "create", "x", "--role", "reader", "--tenant", "acme", "--data-dir", folder)
    assert made.returncode == 0, made.stderr
    assert len(listed(folder).splitlines()) == 1


@pytest.mark.parametrize("places", [(500, 501), (5_000, 5_001), (9_000, 9_000)])
def test_damage_in_both_copies_is_told_and_not_put_back(folder: Path, places: tuple[int, int]) -> None:
    for name, place in zip((FILE_NAME, COPY_NAME), places, strict=True):
        flip(folder / name, place)
    before, told = contents(folder), f"page {places[0] // 4_096 + 1} of '{folder / FILE_NAME}' is damaged on disk"
    for flags in (("--dry-run",), ()):
        repaired = run("repair", "--data-dir", folder, *flags)
        assert (repaired.returncode, told in repaired.stdout) == (1, True), repaired
        assert "damaged places: 2; beyond repair: 2" in repaired.stdout
    for command in (("keys", "list", "--tenant", "acme"), ("serve", "--authentication", "api_key")):
        done = run(*command, "--data-dir", folder)
        assert (done.returncode != 0, told in done.stderr, "Traceback" in done.stderr) == (True, True, False), done
    assert (run("verify", folder).returncode, contents(folder)) == (1, before)


def test_a_change_beside_damage_is_in_the_copy_and_the_damage_is_not(folder: Path) -> None:
    with closing(AccessFile(folder)) as file:
        with file.working() as connection:
            [page] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'api_key_tenant'").fetchone()
        flip(folder / FILE_NAME, page * 4_096 - 9)
        TenantFile(file).adopt(["globex"], system_clock())
    assert run("verify", folder).returncode == 1
    assert '"globex"' in run("tenants", "list", "--json", "--data-dir", folder).stdout
    assert run("verify", folder).returncode == 0


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


def test_names_of_before_cannot_move_the_cursor_or_forge_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, shown = "a\x1b[2J\nb  admin\x9b\u202e", "a\\u001b[2J\\u000ab  admin\\u009b\\u202e"
    now, lists = datetime.now(UTC), (("tenants", "list"), ("keys", "list", "--tenant", "acme"))
    with closing(AccessFile(tmp_path)) as file:
        TenantFile(file).add(Tenant("acme", name, now, now))
        KeyFile(file).add(ApiKey("f" * 16, "acme", name, Role.READER, now), b"digest", tenant_keys_max=9)
    for command in lists:
        [line] = run(*command, "--data-dir", tmp_path).stdout.splitlines()
        assert shown in line
    found = run("tenants", "show", "acme", "--data-dir", tmp_path).stdout
    assert json.loads(found)["display_name"] == name
    assert not {"\x1b", "\x9b", "\u202e"} & set(found)
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "operator"))
    with server_process(tmp_path, "--authentication", "api_key", "--knowledge-store-backend", "local") as server:
        for command in lists:
            assert shown in client_run(server.address(), *command).stdout


def test_a_lost_key_is_told(folder: Path) -> None:
    (folder / KEY_NAME).unlink()
    with pytest.raises(KeyLostError, match=r"access.db cannot be read without access.key"):
        AccessFile(folder)
