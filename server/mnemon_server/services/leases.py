"""The holds of calls and watchers on a tenant's vault."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mnemon_server.domain.access.bounds import Bounds

if TYPE_CHECKING:
    from mnemon_server.services.vaults import Entry, OpenVault, VaultPool


class VaultLease:
    """Keeps a vault open for the length of a block."""

    __slots__ = ("_bounds", "_entry", "_pool", "_tenant")

    def __init__(self, pool: "VaultPool", tenant: str, bounds: Bounds | None) -> None:
        self._pool = pool
        self._tenant = tenant
        self._bounds = bounds
        self._entry: Entry | None = None

    async def __aenter__(self) -> "OpenVault":
        entry = self._entry = self._pool.acquire_open(self._tenant) or await self._pool.acquire(self._tenant)
        return entry.opening.result().shown_to(self._bounds)

    async def __aexit__(self, *exception: object) -> None:
        if self._entry is not None:
            self._pool.release(self._entry)


class WatchedVault:
    """A vault that a watcher uses whenever it reads: `async with watched as vault`.

    It is lost, and the block must end, if it was closed for another tenant while the watcher rested, or if other
    records exist for the watcher now: a grant or a quarantine has begun or ended.
    """

    def __init__(self, pool: "VaultPool", tenant: str, bounds: Bounds) -> None:
        self._pool = pool
        self._tenant = tenant
        self._bounds = bounds
        self._seen = bounds
        """What the watcher saw when the block began."""
        self._entry: Entry | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the block must end."""
        return self._entry is None or self._entry.opening.result().seen_by(self._bounds) != self._seen

    async def __aenter__(self) -> "OpenVault":
        entry = self._entry = await self._pool.acquire(self._tenant)
        vault = entry.opening.result()
        self._seen = vault.seen_by(self._bounds)
        return vault.shown_to(self._bounds)

    async def __aexit__(self, *exception: object) -> None:
        if self._entry is not None:
            self._pool.release(self._entry)
            self._entry = None

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A context that does not use the vault, after which it may be lost."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._pool.release(entry)
        try:
            yield
        finally:
            if entry is not None and self._pool.reuse(entry):
                self._entry = entry

    async def wait_for_changes(self, position: int, until: float) -> bool:
        """For a lost vault: waits until it is open again, or is known to have changes after the position.

        Returns False at the deadline, a time of the event loop.
        """
        return await self._pool.wait_for_changes(self._tenant, position, until)
