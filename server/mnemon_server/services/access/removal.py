"""Removes what deleted tenants leave behind."""

import asyncio
from collections.abc import Callable

from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.vaults import VaultPool

INTERVAL_S = 1.0


class TenantRemover(Periodic):
    """Closes the vaults of deleted tenants and removes their files. Goes on where a killed server stopped.

    A tenant is forgotten last, so its id is free only once nothing of it is left. Its vault stays closed until the id
    is used again: a call that began before the end of its key would make an empty one.
    """

    def __init__(
        self,
        tenants: Tenants,
        vaults: VaultPool,
        remove_files: Callable[[str], None],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """Removes nothing yet. `remove_files` removes the folder of a tenant, and blocks."""
        super().__init__("the files of a deleted tenant could not be removed", interval_s=interval_s)
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
