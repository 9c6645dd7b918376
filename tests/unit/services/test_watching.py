"""Watches of more tenants than vaults may be open: one that waits keeps no vault from others, and misses nothing."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from mnemon_server.domain.access.bounds import UNBOUNDED
from mnemon_server.domain.access.errors import TenantSuspendedError
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import TooManyVaultsError
from mnemon_server.domain.feed import Batch, Edge, Progress, Started, WatchQuery
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.feed.feed import ChangeFeed
from mnemon_server.services.vaults import OpenVault, VaultPool
from mnemon_server.services.watching import watch

from tests.contract.vault_suite import DIMENSION, write
from tests.support.cases import ordinary
from tests.support.open_vaults import open_vault_with
from tests.support.server import until
from tests.support.vaults import temporary_vault

TENANTS = ("ada", "bob", "cem", "dan")
IDLE_S = 3_600.0


class Disk:
    """The vaults of tenants, which stay as they are while they are closed."""

    def __init__(self, rng: random.Random, make_vault: Callable[[], Vault]) -> None:
        self.vaults: defaultdict[str, Vault] = defaultdict(make_vault)
        self.written: defaultdict[str, list[str]] = defaultdict(list)
        self.open: set[str] = set()
        self._rng = rng

    async def open_vault(self, tenant: str) -> OpenVault:
        vault, offload = self.vaults[tenant], Offload(1, "feed")
        feed = ChangeFeed(
            vault.changes, vault.subscribe, readers=dict.fromkeys(RecordKind, _no_records), offload=offload
        )
        assert tenant not in self.open
        self.open.add(tenant)

        async def close() -> None:
            feed.close()
            await offload.aclose()
            if self._rng.random() < 0.1:
                # As the last step of a job of maintenance.
                self.write(tenant)
            self.open.remove(tenant)

        return open_vault_with(tenant, close, feed=feed)

    def write(self, tenant: str, user: str = "") -> None:
        doc_id = f"{tenant}-{len(self.written[tenant])}"
        self.vaults[tenant].collection(DOCUMENTS).put_document(write(doc_id, scope=Scope(user))).result()
        self.written[tenant].append(doc_id)


class Watch:
    """A watch that is read all the time."""

    def __init__(self, pool: VaultPool, tenant: str, query: WatchQuery) -> None:
        self.seen: list[str] = []
        self.started = asyncio.Event()
        self.progress = 0
        self.task = asyncio.create_task(self._read(pool, tenant, query))

    def has_seen(self, written: list[str]) -> bool:
        """Whether it has seen as much, or ended."""
        return len(self.seen) >= len(written) or self.task.done()

    async def _read(self, pool: VaultPool, tenant: str, query: WatchQuery) -> None:
        async with aclosing(watch(pool, tenant, UNBOUNDED, query, _as_it_is)) as messages:
            async for message in messages:
                match message:
                    case Started():
                        self.started.set()
                    case Batch():
                        self.seen += [change.record_id for change in message.changes]
                    case Progress():
                        self.progress += 1


def _no_records(ids: Sequence[str], **_: Any) -> list[None]:
    return [None for _ in ids]


def _as_it_is(batch: Batch) -> Batch:
    return batch


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@asynccontextmanager
async def opened(
    rng: random.Random, *, open_max: int, room_wait_s: float = 60.0, idle_s: float = IDLE_S
) -> AsyncIterator[tuple[VaultPool, Disk]]:
    with ExitStack() as stack:
        disk = Disk(rng, lambda: stack.enter_context(temporary_vault(dimension=DIMENSION)))
        async with VaultPool(disk.open_vault, open_max=open_max, idle_s=idle_s, room_wait_s=room_wait_s) as pool:
            yield pool, disk
    assert disk.open == set()


@asynccontextmanager
async def watches(pool: VaultPool, *asked: tuple[str, WatchQuery]) -> AsyncIterator[list[Watch]]:
    """Watches that have started."""
    found = [Watch(pool, *each) for each in asked]
    try:
        for each in found:
            await until(lambda each=each: each.task.done() or each.started.is_set())  # type: ignore[misc]
        yield found
    finally:
        for each in found:
            each.task.cancel()
        ended = await asyncio.gather(*(each.task for each in found), return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


@pytest.mark.parametrize("seed", ordinary(range(200)))
async def test_watches_miss_nothing_and_tell_nothing_twice_while_vaults_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    async with opened(rng, open_max=rng.randint(1, 3)) as (pool, disk):
        asked = [
            (tenant, WatchQuery(start=Edge.EARLIEST, batch_max=rng.choice((1, 3, 500))))
            for tenant in TENANTS
            for _ in range(2)
        ]
        async with watches(pool, *asked) as found:

            async def call(tenant: str, writes: int) -> None:
                async with pool.use(tenant):
                    for _ in range(writes):
                        disk.write(tenant)
                        await turns(rng)

            calls = []
            for _ in range(30):
                calls.append(asyncio.create_task(call(rng.choice(TENANTS), rng.choice((0, 1, 1, 2, 5)))))
                await turns(rng)
            await asyncio.gather(*calls)
            for (tenant, _), each in zip(asked, found, strict=True):
                await until(lambda each=each, tenant=tenant: each.has_seen(disk.written[tenant]))  # type: ignore[misc]
            for (tenant, _), each in zip(asked, found, strict=True):
                assert each.seen == disk.written[tenant], seed


async def turns(rng: random.Random) -> None:
    """Lets others go on, for some turns of the event loop."""
    for _ in range(rng.choice((0, 0, 1, 3, 20))):
        await asyncio.sleep(0)


async def test_a_call_waits_for_a_vault_that_becomes_idle(rng: random.Random) -> None:
    async with opened(rng, open_max=1) as (pool, disk):
        async with pool.use("ada"):
            other = asyncio.create_task(pool.use("bob").__aenter__())
            await asyncio.sleep(0)
            assert disk.open == {"ada"}
        await other
        assert disk.open == {"bob"}


async def test_a_call_that_finds_no_idle_vault_in_time_names_the_setting(rng: random.Random) -> None:
    async with opened(rng, open_max=1, room_wait_s=0.01) as (pool, _), pool.use("ada"):
        with pytest.raises(TooManyVaultsError, match="its setting vaults_open_max"):
            async with pool.use("bob"):
                pass


async def test_a_watch_of_a_closed_vault_sends_heartbeats(rng: random.Random) -> None:
    query = WatchQuery(heartbeat_s=0.01)
    async with opened(rng, open_max=1) as (pool, disk), watches(pool, ("ada", query)) as [ada], pool.use("bob"):
        assert disk.open == {"bob"}
        before = ada.progress
        await until(lambda: ada.progress > before + 2)
        assert disk.open == {"bob"}


async def test_an_unwatched_vault_is_closed_first(rng: random.Random) -> None:
    async with opened(rng, open_max=2) as (pool, disk), watches(pool, ("ada", WatchQuery())):
        for tenant in ("bob", "cem"):
            async with pool.use(tenant):
                assert disk.open == {"ada", tenant}


async def test_a_watched_vault_is_opened_again_once_there_is_room(rng: random.Random) -> None:
    async with opened(rng, open_max=1, idle_s=0.05) as (pool, disk), watches(pool, ("ada", WatchQuery())):
        async with pool.use("bob"):
            assert disk.open == {"bob"}
        await until(lambda: disk.open == {"ada"})


async def test_a_watch_of_a_closed_vault_ends_with_its_tenant(rng: random.Random) -> None:
    async with opened(rng, open_max=1) as (pool, _):
        ada = Watch(pool, "ada", WatchQuery())
        await ada.started.wait()
        async with pool.use("bob"):
            await pool.retire("ada")
            with pytest.raises(TenantSuspendedError):
                await ada.task
