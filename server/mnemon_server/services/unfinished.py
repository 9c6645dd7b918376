"""Completes the erasures that a killed server began, without waiting for a call that opens their vaults."""

import asyncio
from collections.abc import Callable

from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.vaults import VaultPool

INTERVAL_S = 30.0


class ErasureKeeper(Periodic):
    """Opens each vault with an unfinished erasure, and keeps it open until that is completed."""

    def __init__(
        self, vaults: VaultPool, unfinished: Callable[[], list[str]], *, interval_s: float = INTERVAL_S
    ) -> None:
        """Opens nothing yet. `unfinished` names the tenants, and blocks."""
        super().__init__("an erasure could not be completed", interval_s=interval_s)
        self._vaults = vaults
        self._unfinished = unfinished

    async def _turn(self) -> float | None:
        # One after the other, so that other vaults still find room.
        for tenant in await asyncio.to_thread(self._unfinished):
            if tenant not in self._vaults.retired:
                async with self._tolerating(tenant), self._vaults.use(tenant) as vault:
                    await vault.erasure.wait()
        return None
