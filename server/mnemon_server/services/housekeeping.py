"""Background work on the vaults of all tenants."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from time import monotonic

from mnemon_server.domain.archive import ArchiveHeader, ExportSelection
from mnemon_server.domain.errors import IndexWarmingError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.limits.accounts import Account, Accounts
from mnemon_server.services.vaults import OpenVault, VaultPool

SOON_S, LATER_S = 1.0, 30.0
"""The seconds between turns: of jobs that callers may notice, and of all other jobs."""
SHADOW_POLL_S = 0.2
PAUSE_PER_S = 50.0
"""After a measurement, a vault is left alone for this many times as long as that took."""


class ErasureKeeper(Periodic):
    """Completes the erasures that a killed server began, without waiting for a call that opens their vaults."""

    def __init__(self, vaults: VaultPool, unfinished: Callable[[], Iterable[str]]) -> None:
        """Opens nothing yet. `unfinished` names the tenants, and blocks."""
        super().__init__("an erasure could not be completed", interval_s=LATER_S)
        self._vaults = vaults
        self._unfinished = unfinished

    async def _turn(self) -> float | None:
        # One after the other, so that other vaults still find room.
        for tenant in await asyncio.to_thread(self._unfinished):
            if tenant not in self._vaults.retired:
                async with self._tolerating(tenant), self._vaults.use(tenant) as vault:
                    await vault.erasure.wait()
        return None


class ShadowKeeper(Periodic):
    """Has every vault embedded with the shadow model, even if no call uses it: opens one after the other, each until
    nothing is missing.
    """

    def __init__(self, vaults: VaultPool, tenants: Callable[[], Iterable[str]]) -> None:
        """Opens nothing yet. `tenants` returns the tenants that have a vault, and blocks."""
        super().__init__("a vault could not be embedded with the shadow model", interval_s=LATER_S)
        self._vaults = vaults
        self._tenants = tenants
        self._done: set[str] = set()

    async def _turn(self) -> float | None:
        for tenant in await asyncio.to_thread(self._tenants):
            if tenant not in self._done | self._vaults.retired:
                async with self._tolerating(tenant), self._vaults.use(tenant) as vault:
                    if not vault.is_shadow_current():
                        # The next turn comes soon, before the pool closes the vault.
                        return SHADOW_POLL_S
                    self._done.add(tenant)
        return None


class TenantRemover(Periodic):
    """Closes the vaults of deleted tenants and removes their files. Goes on where a killed server stopped.

    A tenant is forgotten last, so its id is free only once nothing of it is left. Its vault stays closed until the id
    is used again: a call that began before the end of its key would make an empty one.
    """

    def __init__(self, tenants: Tenants, vaults: VaultPool, remove_files: Callable[[str], None]) -> None:
        """Removes nothing yet. `remove_files` removes the folder of a tenant, and blocks."""
        super().__init__("the files of a deleted tenant could not be removed", interval_s=SOON_S)
        self._tenants = tenants
        self._vaults = vaults
        self._remove_files = remove_files

    async def _turn(self) -> float | None:
        # Together: one tenant's last calls must not delay the others.
        ended = await asyncio.gather(*map(self._remove, self._tenants.deleted), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
        for tenant in self._vaults.retired.difference(self._tenants.deleted):
            if await self._tenants.exists(tenant):
                self._vaults.readmit(tenant)
        return None

    async def _remove(self, tenant: str) -> None:
        await self._vaults.retire(tenant)
        await asyncio.to_thread(self._remove_files, tenant)
        await self._tenants.forget(tenant)


class SpaceMeter(Periodic):
    """Measures the open vaults of tenants with a quota on records or disk, after they were called.

    So writes cost nothing, and a tenant may exceed its quota by what it writes between two measurements.
    """

    def __init__(self, accounts: Accounts, vaults: VaultPool, disk_bytes: Callable[[str], int]) -> None:
        """Measures nothing yet. `disk_bytes` is the size of the files of a tenant's vault, and blocks."""
        super().__init__("what a vault holds could not be measured", interval_s=SOON_S)
        self._accounts, self._vaults, self._disk_bytes = accounts, vaults, disk_bytes
        self._measured: dict[str, tuple[int, float]] = {}
        """The calls of each tenant at its last measurement, and when the next one may begin."""

    async def _turn(self) -> float | None:
        for tenant in self._vaults.open_tenants:
            account = self._accounts.of_tenant(tenant)
            calls, next_at = self._measured.get(tenant, (-1, 0.0))
            if account.limits_space and monotonic() >= next_at and self._is_active(account, calls):
                # Counted before, so that calls in progress lead to another measurement.
                calls, began = account.usage.calls, monotonic()
                async with self._tolerating(tenant):
                    await self._measure(tenant, account)
                self._measured[tenant] = calls, monotonic() + PAUSE_PER_S * (monotonic() - began)
        return None

    def _is_active(self, account: Account, calls: int) -> bool:
        """Whether it may have changed; a vault that is not used must become idle."""
        usage = account.usage
        return usage.calls != calls or bool(usage.concurrent_calls or usage.open_streams)

    async def _measure(self, tenant: str, account: Account) -> None:
        disk_bytes = await asyncio.to_thread(self._disk_bytes, tenant)
        try:
            async with self._vaults.use(tenant) as vault:
                counts = await stored_records(vault)
        except IndexWarmingError:
            return
        # Versions take room on disk, and are no further records.
        records = sum(count for kind, count in counts.items() if kind is not RecordKind.VERSION)
        account.usage.records, account.usage.disk_bytes = records, disk_bytes


async def stored_records(vault: OpenVault) -> Mapping[RecordKind, int]:
    """Counts records by kind, without deleted and expired ones, as the header of an export does.

    Raises:
        IndexWarmingError: the timeline is not loaded yet.
    """
    async with aclosing(vault.archive.export(ExportSelection(), vectors=False)) as messages:
        header = await anext(messages)
    assert isinstance(header, ArchiveHeader)  # noqa: S101 - an export begins with it
    return header.counts
