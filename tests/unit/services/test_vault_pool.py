"""Vaults open on first use, close when idle, and never exceed the allowed number."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError, NotServingError, TooManyVaultsError
from mnemon_server.services.vaults import OpenVault, VaultPool

from tests.support.open_vaults import Index, open_vault_with
from tests.support.turns import Turns


class Folder:
    """Opens vaults. Like the lock of a real folder, it refuses to open one that is still open."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.opened = 0
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.indexes: defaultdict[str, Index] = defaultdict(Index)
        self.timelines: defaultdict[str, Index] = defaultdict(Index)

    async def open_vault(self, tenant: str) -> OpenVault:
        await self.gate.wait()
        if self.broken:
            raise ConfigurationError("the vault cannot be opened")
        assert tenant not in self.open, f"{tenant} was opened twice"
        self.open.append(tenant)
        self.opened += 1

        async def close() -> None:
            await asyncio.sleep(0)
            self.open.remove(tenant)

        return open_vault_with(tenant, close, self.indexes[tenant], self.timelines[tenant])


@asynccontextmanager
async def pool(open_max: int = 2, idle_s: float | None = None) -> AsyncIterator[tuple[VaultPool, Folder]]:
    folder = Folder()
    async with VaultPool(folder.open_vault, open_max=open_max, idle_s=idle_s, room_wait_s=0.01) as vaults:
        yield vaults, folder
    assert folder.open == []


async def test_concurrent_users_open_a_vault_once() -> None:
    async with pool() as (vaults, folder):
        folder.gate.clear()

        async def use() -> str:
            async with vaults.use("ada") as vault:
                return str(vault.documents)

        users = [asyncio.create_task(use()) for _ in range(20)]
        await asyncio.sleep(0)
        folder.gate.set()
        assert await asyncio.gather(*users) == ["ada"] * 20
        assert folder.opened == 1


async def test_users_who_waited_for_a_vault_go_on_one_by_one_between_the_work_of_others() -> None:
    async with pool() as (vaults, folder), Turns() as turns:
        folder.gate.clear()
        began: list[int] = []

        async def use() -> None:
            async with vaults.use("ada"):
                began.append(turns.count)

        users = [asyncio.create_task(use()) for _ in range(20)]
        await asyncio.sleep(0)
        folder.gate.set()
        await asyncio.gather(*users)
        assert len(set(began)) == 20


async def test_the_longest_idle_vault_makes_room_and_reopens_on_demand() -> None:
    async with pool(open_max=2) as (vaults, folder):
        for tenant in ("ada", "bob", "ada", "cem"):
            async with vaults.use(tenant):
                pass
        assert sorted(folder.open) == ["ada", "cem"]
        async with vaults.use("bob"):
            assert sorted(folder.open) == ["bob", "cem"]


async def test_a_vault_in_use_is_never_closed_for_another() -> None:
    async with pool(open_max=1) as (vaults, folder):
        async with vaults.use("ada"):
            with pytest.raises(TooManyVaultsError, match="all 1 vaults"):
                async with vaults.use("bob"):
                    pass
            assert folder.open == ["ada"]
        async with vaults.use("bob"):
            assert folder.open == ["bob"]


async def test_many_tenants_in_turn_never_exceed_the_limit_of_open_vaults() -> None:
    async with pool(open_max=3) as (vaults, folder):

        async def use(tenant: str) -> None:
            async with asyncio.timeout(60):
                while True:
                    try:
                        async with vaults.use(tenant):
                            assert len(folder.open) <= 3
                            await asyncio.sleep(0)
                        return
                    except TooManyVaultsError:
                        await asyncio.sleep(0)

        await asyncio.gather(*(use(f"t{number % 8}") for number in range(200)))


async def test_an_idle_vault_is_closed_after_a_while() -> None:
    async with pool(idle_s=0.05) as (vaults, folder):
        async with vaults.use("ada"):
            pass
        async with asyncio.timeout(60):
            while folder.open:  # noqa: ASYNC110 - a closed vault sends no signal
                await asyncio.sleep(0.01)
        async with vaults.use("ada"):
            assert folder.open == ["ada"]


@pytest.mark.parametrize("kind", ["indexes", "timelines"])
async def test_a_vault_whose_index_is_being_built_stays_open_until_it_is_done(kind: str) -> None:
    async with pool(idle_s=0.05) as (vaults, folder):
        index: Index = getattr(folder, kind)["ada"]
        index.is_warm = False
        for tenant in ("ada", "bob"):
            async with vaults.use(tenant):
                pass
        assert (vaults.is_warm("ada"), vaults.is_warm("bob"), vaults.is_warm("nobody")) == (False, True, True)
        async with asyncio.timeout(60):
            while "bob" in folder.open:  # noqa: ASYNC110 - a closed vault sends no signal
                await asyncio.sleep(0.01)
        assert folder.open == ["ada"]
        index.is_warm = True
        async with asyncio.timeout(60):
            while folder.open:  # noqa: ASYNC110 - a closed vault sends no signal
                await asyncio.sleep(0.01)


async def test_a_vault_that_failed_to_open_is_tried_again() -> None:
    async with pool() as (vaults, folder):
        folder.broken = True
        with pytest.raises(ConfigurationError):
            async with vaults.use("ada"):
                pass
        folder.broken = False
        async with vaults.use("ada") as vault:
            assert str(vault.documents) == "ada"


async def test_a_caller_cancelled_while_it_opens_leaves_nothing_behind() -> None:
    async with pool(open_max=1) as (vaults, folder):
        folder.gate.clear()
        user = asyncio.create_task(vaults.use("ada").__aenter__())
        await asyncio.sleep(0)
        user.cancel()
        with pytest.raises(asyncio.CancelledError):
            await user
        folder.gate.set()
        async with vaults.use("bob"):
            assert folder.open == ["bob"]


@pytest.mark.parametrize("tenant", ["", "../ada", "Ada", "a/b", "a" * 64, "ada\n", "."])
async def test_an_invalid_tenant_id_names_no_folder(tenant: str) -> None:
    async with pool() as (vaults, folder):
        with pytest.raises(InvalidArgumentError, match="tenant"):
            async with vaults.use(tenant):
                pass
        assert folder.opened == 0


async def test_a_closed_pool_opens_nothing() -> None:
    async with pool() as (vaults, _):
        pass
    with pytest.raises(NotServingError):
        async with vaults.use("ada"):
            pass
