"""Opens the vaults of all tenants so that they are embedded with the shadow model, even if no call uses them."""

import asyncio
from collections.abc import Callable, Iterable

from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.vaults import VaultPool

INTERVAL_S = 30.0
POLL_S = 0.2


class ShadowKeeper(Periodic):
    """Opens each vault once, one after the other, and keeps it open until nothing is missing."""

    def __init__(
        self, vaults: VaultPool, tenants: Callable[[], Iterable[str]], *, interval_s: float = INTERVAL_S
    ) -> None:
        """Opens nothing yet. `tenants` names those that have a vault, and blocks."""
        super().__init__("a vault could not be embedded with the shadow model", interval_s=interval_s)
        self._vaults = vaults
        self._tenants = tenants
        self._done: set[str] = set()

    async def _turn(self) -> float | None:
        for tenant in await asyncio.to_thread(self._tenants):
            if tenant not in self._done | self._vaults.retired:
                async with self._tolerating(tenant), self._vaults.use(tenant) as vault:
                    if not vault.is_shadow_current():
                        # The next turn comes soon, before the pool closes the vault.
                        return POLL_S
                    self._done.add(tenant)
        return None
