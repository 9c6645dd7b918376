"""Measures what the vaults of tenants hold, for the quotas on records and disk."""

import asyncio
from collections.abc import Callable
from time import monotonic

from mnemon_server.domain.errors import IndexWarmingError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.services.access.stored_records import stored_records
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.limits.accounts import Account, Accounts
from mnemon_server.services.vaults import VaultPool

INTERVAL_S = 1.0
PAUSE_PER_S = 50.0
"""After a measurement, a vault is left alone for so many times as long as it took."""

DiskBytes = Callable[[str], int]
"""The size of the files of a tenant's vault. Blocks."""


class SpaceMeter(Periodic):
    """Measures the vaults that are open, of tenants with a quota on records or disk, after they were called.

    So writes cost nothing, and a tenant may exceed its quota by what it writes between two measurements.
    """

    def __init__(
        self, accounts: Accounts, vaults: VaultPool, disk_bytes: DiskBytes, *, interval_s: float = INTERVAL_S
    ) -> None:
        """Measures nothing yet."""
        super().__init__("what a vault holds could not be measured", interval_s=interval_s)
        self._accounts, self._vaults, self._disk_bytes = accounts, vaults, disk_bytes
        self._measured: dict[str, tuple[int, float]] = {}
        """The calls of each tenant at its last measurement, and when the next one may begin."""

    async def _turn(self) -> float | None:
        for tenant in self._vaults.open_tenants:
            account = self._accounts.of_tenant(tenant)
            calls, next_at = self._measured.get(tenant, (-1, 0.0))
            if account.limits_space and monotonic() >= next_at and self._is_active(account, calls):
                # What is in progress is seen next time.
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
