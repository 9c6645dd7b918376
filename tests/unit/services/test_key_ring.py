"""API keys: when a secret is valid, and what of it is kept."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from mnemon_server.domain.access import Credentials, Principal, Role
from mnemon_server.domain.access.errors import KeyNotFoundError
from mnemon_server.domain.errors import (
    ConfigurationError,
    InvalidArgumentError,
    InvalidOperationError,
    UnauthenticatedError,
)
from mnemon_server.engines import access_file
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.sqlite.pages.database import connect
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.services.access import keys
from mnemon_server.services.access.keys import KeyRing, new_key_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAIT_S = 60
RANDOM = slice(20, 63)
"""The random part of a secret."""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 30, 45, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


async def test_a_key_is_valid_until_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    async with KeyRing(KeyFile(AccessFile(tmp_path)), clock=clock) as ring:
        made = await ring.create("ada", "a robot", Role.WRITER, timedelta(hours=1))
        principal = Principal("ada", f"key:{made.key.key_id}", Role.WRITER, clock.now + timedelta(hours=1))
        clock.advance(timedelta(minutes=59))
        assert ring.authenticate(made.secret) == principal
        clock.advance(timedelta(minutes=1))
        with pytest.raises(UnauthenticatedError, match=f"{made.key.key_id} has expired"):
            ring.authenticate(made.secret)


async def test_a_secret_names_the_tenant_of_its_key_for_proxies_and_no_other_text_is_valid(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        for tenant, role in (("acme-2_b", Role.READER), ("", Role.OPERATOR)):
            made = await ring.create(tenant, "a robot", role)
            rotated = await ring.rotate(tenant, made.key.key_id)
            for secret in (made.secret, rotated.secret):
                assert secret == f"mn_{made.key.key_id}_{secret[RANDOM]}{tenant and '_'}{tenant}"
                assert ring.authenticate(secret).tenant == tenant
                for other in (secret[: RANDOM.stop], f"{secret[: RANDOM.stop]}_globex", f"{secret}_", f"{secret}b"):
                    if other != secret:
                        with pytest.raises(UnauthenticatedError):
                            ring.authenticate(other)
            assert secret not in repr(rotated)


async def test_the_secret_before_a_rotation_is_valid_until_the_overlap_ends_and_older_ones_are_not(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with KeyRing(KeyFile(AccessFile(tmp_path)), clock=clock) as ring:
        first = await ring.create("ada", "a robot", Role.READER)
        second = await ring.rotate("ada", first.key.key_id, timedelta(hours=2))
        assert second.key.previous_expires_at == clock.now + timedelta(hours=2)
        assert ring.authenticate(first.secret) == ring.authenticate(second.secret)
        third = await ring.rotate("ada", first.key.key_id)
        with pytest.raises(UnauthenticatedError):
            ring.authenticate(first.secret)
        assert ring.authenticate(second.secret) == ring.authenticate(third.secret)
        clock.advance(timedelta(days=1))
        with pytest.raises(UnauthenticatedError):
            ring.authenticate(second.secret)
        assert ring.authenticate(third.secret).tenant == "ada"


async def test_a_rotation_that_is_refused_changes_nothing_and_one_without_overlap_ends_the_secret(
    tmp_path: Path,
) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        first = await ring.create("ada", "a robot", Role.READER)
        with pytest.raises(InvalidArgumentError, match="overlap"):
            await ring.rotate("ada", first.key.key_id, timedelta(days=31))
        assert ring.authenticate(first.secret).tenant == "ada"
        second = await ring.rotate("ada", first.key.key_id, timedelta(0))
        assert second.key.previous_expires_at is None
        with pytest.raises(UnauthenticatedError):
            ring.authenticate(first.secret)
        assert ring.authenticate(second.secret).tenant == "ada"


async def test_a_key_says_at_once_when_it_was_used(tmp_path: Path) -> None:
    clock = Clock()
    async with KeyRing(KeyFile(AccessFile(tmp_path)), clock=clock) as ring:
        made = await ring.create("ada", "a robot", Role.READER)
        assert [key.last_used_at for key in ring.list("ada", after=0, limit=9).items] == [None]
        ring.authenticate(made.secret)
        minute = clock.now.replace(second=0, microsecond=0)
        assert [key.last_used_at for key in ring.list("ada", after=0, limit=9).items] == [minute]


async def test_the_use_of_a_key_is_stored_from_time_to_time_while_the_server_runs(tmp_path: Path) -> None:
    clock, store = Clock(), KeyFile(file := AccessFile(tmp_path))
    async with KeyRing(store, clock=clock, refresh_s=3_600) as ring:
        made = await ring.create("ada", "a robot", Role.READER)
        ring.authenticate(made.secret)
        for waited, stored in ((keys.USES / 2, None), (keys.USES / 2, clock.now.replace(second=0))):
            clock.advance(waited)
            await ring._turn()
            [key] = [each.key for each in store.read()]
            assert key.last_used_at == stored
    file.close()


async def test_only_what_begins_like_a_key_is_taken_for_one(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        made = await ring.create("ada", "a robot", Role.READER)
        assert ring.identify(Credentials(made.secret)) == made.key.principal
        for other in ("", "mn", "a.b.c", made.secret.upper(), f" {made.secret}"):
            assert ring.identify(Credentials(other)) is None
        with pytest.raises(UnauthenticatedError):
            ring.identify(Credentials("mn_"))


async def test_a_caller_is_the_same_until_keys_change(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path)), refresh_s=3_600) as ring:
        made = await ring.create("ada", "a robot", Role.READER)
        caller = ring.authenticate(made.secret)
        await ring._turn()
        assert ring.authenticate(made.secret) is caller


async def test_while_the_file_does_not_change_its_keys_are_not_asked_for(tmp_path: Path) -> None:
    asked: list[str] = []

    class Asked(KeyFile):
        def version(self) -> int:
            asked.append("version")
            return super().version()

    path = tmp_path / access_file.FILE_NAME
    async with KeyRing(Asked(AccessFile(tmp_path)), refresh_s=3_600) as ring:
        # As long as the file was written just now, its time does not tell a further change. A minute later is just now.
        os.utime(path, (written := time.time() + 60, written))
        for _ in range(2):
            asked.clear()
            await ring._turn()
            assert asked
        os.utime(path, (written := time.time() - 60, written))
        await ring._turn()
        asked.clear()
        await ring._turn()
        assert not asked
        async with KeyRing(KeyFile(AccessFile(tmp_path))) as other:
            made = await other.create("ada", "a robot", Role.READER)
        await ring._turn()
        assert ring.authenticate(made.secret) == made.key.principal


async def test_a_key_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        for role, ttl in ((Role.OPERATOR, None), (Role.READER, timedelta(0))):
            with pytest.raises(InvalidArgumentError):
                await ring.create("ada", "a robot", role, ttl)
        with pytest.raises(KeyNotFoundError):
            await ring.rotate("ada", new_key_id())
        assert ring.is_empty


async def test_keys_and_the_minute_of_their_last_use_survive_a_restart_and_no_secret_is_in_the_file(
    tmp_path: Path,
) -> None:
    clock = Clock()
    store = KeyFile(file := AccessFile(tmp_path))
    async with KeyRing(store, clock=clock) as ring:
        made = await ring.create("ada", "a robot", Role.ADMIN)
        ring.authenticate(made.secret)
    file.close()
    async with KeyRing(KeyFile(AccessFile(tmp_path)), clock=clock) as ring:
        [key] = ring.list("ada", after=0, limit=10).items
        assert key.last_used_at == clock.now.replace(second=0)
        assert ring.authenticate(made.secret).role is Role.ADMIN
        assert ring.list("bob", after=0, limit=10).items == ()
    check_file(tmp_path, made.secret)


def check_file(folder: Path, secret: str) -> None:
    """Only its owner reads the files in the folder, and the secret cannot be learned from them."""
    names = {access_file.FILE_NAME, access_file.COPY_NAME, access_file.KEY_NAME, f"{access_file.FILE_NAME}.lock"}
    assert {file.name for file in folder.iterdir()} == names
    with closing(open_access(folder)) as connection:
        held = connection.execute("SELECT * FROM api_key").fetchall()
    assert secret[RANDOM] not in str(held)
    assert secret[RANDOM].encode() not in b"".join(file.read_bytes() for file in folder.iterdir())
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def open_access(folder: Path) -> apsw.Connection:
    """A connection of another process, which never waits."""
    keys = VaultKeyFile(folder, name=access_file.KEY_NAME)
    return connect(folder / access_file.FILE_NAME, keys, busy_timeout_ms=0)


async def test_pages_of_keys_join_to_all_of_them(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        made = [(await ring.create("ada", f"key {number}", Role.READER)).key.key_id for number in range(5)]
        await ring.create("bob", "another", Role.READER)
        found, after = [], 0
        while (page := ring.list("ada", after=after, limit=2)).next_position is not None:
            found += page.items
            after = page.next_position
        assert [key.key_id for key in (*found, *page.items)] == made


async def test_a_tenant_has_a_bounded_number_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 2)
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        for _ in range(2):
            await ring.create("ada", "a robot", Role.READER)
        with pytest.raises(InvalidOperationError, match="2 keys"):
            await ring.create("ada", "a robot", Role.READER)
        await ring.create("bob", "a robot", Role.READER)


async def test_only_its_own_tenant_can_revoke_a_key(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        made = await ring.create("ada", "a robot", Role.READER)
        with pytest.raises(KeyNotFoundError):
            await ring.revoke("bob", made.key.key_id)
        await ring.revoke("bob", made.key.key_id, allow_missing=True)
        assert ring.authenticate(made.secret)
        await ring.revoke("ada", made.key.key_id)
        with pytest.raises(UnauthenticatedError):
            ring.authenticate(made.secret)


async def test_nothing_is_remembered_about_a_key_that_was_revoked(tmp_path: Path) -> None:
    async with KeyRing(KeyFile(AccessFile(tmp_path))) as ring:
        made = [await ring.create("ada", "a robot", Role.READER) for _ in range(3)]
        for each in made:
            ring.authenticate(each.secret)
        for each in made[1:]:
            await ring.revoke("ada", each.key.key_id)
        assert ring._used.keys() == {made[0].key.key_id}


def test_a_file_of_an_earlier_layout_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / access_file.FILE_NAME
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE api_key (key_id)")
        connection.pragma("application_id", access_file.APPLICATION_ID)
        connection.pragma("user_version", 6)
    content = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"an earlier version .* `mnemon-server keys create`"):
        AccessFile(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(100)])
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / access_file.FILE_NAME
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        AccessFile(tmp_path)
    assert path.read_bytes() == content


def test_threads_read_and_write_at_the_same_time(tmp_path: Path) -> None:
    file = AccessFile(tmp_path)
    keys, tenants = KeyFile(file), TenantFile(file)
    with ThreadPoolExecutor() as threads:
        reads = [threads.submit(lambda: [keys.read() for _ in range(200)]) for _ in range(2)]
        for number in range(200):
            tenants.adopt([f"tenant-{number}"], NOW)
        assert all(not any(each.result()) for each in reads)
    assert len(tenants.read(after=0, limit=500)) == 200
    file.close()


def test_a_write_waits_for_a_read_of_another_process_and_lets_other_threads_go_on(tmp_path: Path) -> None:
    file, other = AccessFile(tmp_path), open_access(tmp_path)
    tenants = TenantFile(file)
    tenants.adopt(["ada"], NOW)
    reading = other.execute("SELECT tenant FROM tenant")
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(tenants.adopt, ["bob"], NOW)
        wait_for_a_writer(tmp_path)
        assert list(reading) == [("ada",)]
        writing.result()
    assert [row.tenant.tenant for row in tenants.read(after=0, limit=9)] == ["ada", "bob"]
    file.close()


def wait_for_a_writer(folder: Path) -> None:
    """Until a writer waits for the readers of a file: then SQLite admits no other readers."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            with closing(open_access(folder)) as third:
                third.execute("SELECT tenant FROM tenant").fetchall()
        except apsw.BusyError:
            return
    pytest.fail("no writer came")


def test_a_program_that_opens_the_file_waits_for_a_write_of_another_one(tmp_path: Path) -> None:
    AccessFile(tmp_path).close()
    with closing(open_access(tmp_path)) as other, ThreadPoolExecutor() as threads:
        other.execute("BEGIN EXCLUSIVE")
        opening = threads.submit(AccessFile, tmp_path)
        with pytest.raises(TimeoutError):
            opening.result(0.2)
        other.execute("COMMIT")
        opening.result().close()
