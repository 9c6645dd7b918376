"""Tenants: who is served, from one change to the next."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from mnemon_server.domain.access.errors import TenantExistsError, TenantNotFoundError, TenantSuspendedError
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.access.tenants import TenantChange
from mnemon_server.domain.errors import InvalidArgumentError, InvalidOperationError
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.access.unknown import UnknownError

from tests.support.server import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER_S = 0.2
"""By then, whoever does not wait has gone on."""


def opened(folder: Path) -> Tenants:
    return Tenants(TenantFile(AccessFile(folder)), clock=lambda: NOW)


async def test_a_tenant_that_a_credential_names_begins_unless_it_was_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as tenants:
        await tenants.begin(["acme", "acme", "globex"])
        await tenants.begin(["acme"])
        page = await tenants.list(after=0, limit=9)
        assert [each.tenant for each in page.items] == ["acme", "globex"]
        await tenants.change("acme", TenantChange(is_suspended=True, reason="moved away"))
        for ends in (tenants.delete, tenants.forget):
            await ends("acme")
            await tenants.begin(["acme"])
            with pytest.raises(TenantSuspendedError, match="was deleted"):
                tenants.require_known("acme", begins=True)
        assert not await tenants.exists("acme")


async def test_a_tenant_that_a_token_names_is_looked_for_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as tenants:
        for begins in (False, True):
            with pytest.raises(UnknownError, match="'acme' does not exist") as unknown:
                tenants.require_known("acme", begins=begins)
            await unknown.value.look()
        tenants.require_known("acme", begins=False)


async def test_a_tenant_is_served_until_it_is_suspended_or_deleted_and_again_once_it_is_created(tmp_path: Path) -> None:
    changes: list[str] = []
    async with opened(tmp_path) as tenants:
        tenants.listeners.append(lambda: changes.append("change"))
        tenants.require_served("never named")
        await tenants.create("acme", "Acme Ltd.")
        tenants.require_served("acme")
        with pytest.raises(InvalidOperationError, match="suspend it, then delete it"):
            await tenants.delete("acme")
        await tenants.change("acme", TenantChange(is_suspended=True, reason="unpaid"))
        with pytest.raises(TenantSuspendedError, match="is suspended: unpaid"):
            tenants.require_served("acme")
        assert changes
        await tenants.delete("acme", allow_missing=True)
        assert tenants.deleted == ("acme",)
        for _ in range(2):
            with pytest.raises(TenantSuspendedError, match="was deleted"):
                tenants.require_served("acme")
            await tenants.forget("acme")
        assert tenants.deleted == ()
        await tenants.create("acme", "another one")
        tenants.require_served("acme")


async def test_what_cannot_be_done_to_a_tenant_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as tenants:
        await tenants.create("acme", "Acme Ltd.")
        with pytest.raises(TenantExistsError):
            await tenants.create("acme", "again")
        with pytest.raises(InvalidArgumentError, match="tenant"):
            await tenants.create("Not a tenant", "")
        with pytest.raises(InvalidArgumentError, match="reason"):
            await tenants.change("acme", TenantChange(is_suspended=True))
        with pytest.raises(TenantNotFoundError):
            await tenants.change("other", TenantChange(display_name="x"))
        with pytest.raises(TenantNotFoundError):
            await tenants.delete("other")
        await tenants.delete("other", allow_missing=True)
        with pytest.raises(InvalidArgumentError, match="tenant: must be 1 to 63"):
            await tenants.delete("", allow_missing=True)
        with pytest.raises(InvalidOperationError, match="can only be suspended"):
            await tenants.delete("default")
        await tenants.change("acme", TenantChange(is_suspended=True, reason="unpaid"))
        await tenants.delete("acme")
        await tenants.delete("acme")
        with pytest.raises(InvalidOperationError, match="was deleted"):
            await tenants.change("acme", TenantChange(is_suspended=False))


async def test_quotas_of_its_own_are_those_that_were_set_last(tmp_path: Path) -> None:
    async with opened(tmp_path) as tenants:
        await tenants.create("acme", "", Quotas(open_streams=2))
        await tenants.create("other", "")
        assert tenants.quotas == {"acme": Quotas(open_streams=2)}
        await tenants.change("acme", TenantChange(quotas=UNLIMITED))
        assert tenants.quotas == {}


async def test_pages_of_tenants_join_to_all_of_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as tenants:
        names = [f"tenant-{number}" for number in range(5)]
        for name in names:
            await tenants.create(name, "")
        found, position = [], 0
        while True:
            page = await tenants.list(after=position, limit=2)
            found += [tenant.tenant for tenant in page.items]
            if page.next_position is None:
                break
            assert len(page.items) == 2
            position = page.next_position
        assert found == names
        assert (await tenants.list(after=0, limit=5)).next_position is None


class SlowFile(AccessFile):
    """A file that answers once its gate is open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0

    @contextmanager
    def working(self) -> Iterator[apsw.Connection]:
        self.asked += 1
        self.gate.wait()
        with super().working() as connection:
            yield connection


@pytest.mark.parametrize("opened", [lambda file: Tenants(TenantFile(file)), lambda file: KeyRing(KeyFile(file))])
async def test_what_is_being_read_at_the_end_is_read_before_the_file_is_closed(
    tmp_path: Path, opened: Callable[[AccessFile], Tenants | KeyRing], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(SlowFile(tmp_path)) as file, closing(AccessFile(tmp_path)) as other:
        async with opened(file):
            file.gate.clear()
            TenantFile(other).adopt(["acme"], NOW)
            asked = file.asked
            await until(lambda: file.asked > asked)
            asyncio.get_running_loop().call_later(LATER_S, file.gate.set)
        file.close()
        # Every thread that reads has come to its end.
        await asyncio.get_running_loop().shutdown_default_executor()
    assert "failed" not in caplog.text
