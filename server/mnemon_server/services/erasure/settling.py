"""The end of an erasure: it waits until nothing holds bytes of removed records."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from mnemon_server.domain.backup import BackupError, parse_manifest
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.domain.kinds import COLLECTION_OF, EMBEDDED
from mnemon_server.engines.promises.backup import BackupFolder
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.erasure.access import AccessTraces
from mnemon_server.services.search.index_applier import IndexApplier

POLL_S = 0.05
PENDING_MAX_S = 120.0
SNAPSHOTS = 2
"""The number of snapshots that are kept of each graph."""

Report = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@dataclass(eq=False, repr=False, slots=True)
class Settling:
    """Rewrites derived data without what was removed. What it cannot reach is named."""

    _vault: Vault
    _appliers: Sequence[IndexApplier]
    _backups: BackupFolder | None
    access: AccessTraces
    _offload: Offload

    async def rewrite(self) -> list[str]:
        """Rewrites segments and snapshots; returns what it could not reach."""
        await asyncio.to_thread(self._vault.events.compact, lambda progress: None)
        unreached = [
            f"the ChromaDB server at {applier.index.host}: its files keep {applier.removals()} removed records"
            for applier in self._appliers
        ]
        for kind in EMBEDDED:
            for _ in range(SNAPSHOTS):
                if await self._offload(self._vault.collection(COLLECTION_OF[kind]).save_snapshot) is None:
                    break
        return [*unreached, *await asyncio.to_thread(self._kept_backups)]

    def _kept_backups(self) -> list[str]:
        if self._backups is None:
            return []
        try:
            unfinished, found = self._backups.unfinished(), self._backups.manifests()
        except (StorageFailedError, StorageFullError):
            return ["the server's backups, which could not be listed"]
        kept = [f"the server's backup {name}{_time_of(manifest)}" for name, manifest in found.items()]
        return [*kept, *(f"the server's backup {name}, which is being made" for name in unfinished)]

    async def wait(self, report: Report) -> int:
        """Waits until nothing that was removed is in the vault's own files; returns how much is after two minutes.

        A read that began before, and is still going on, keeps the pages that it may need.
        """
        first, ends = 0, monotonic() + PENDING_MAX_S
        while (left := self._pending()) > 0 and monotonic() < ends:
            first = max(first, left)
            report(first - left, first)
            await asyncio.sleep(POLL_S)
        return left

    def _pending(self) -> int:
        status = self._vault.events.status()
        return self._vault.collection(MEMORIES).removals_pending() + status.removal_pending_count


def _time_of(manifest: bytes) -> str:
    try:
        return f" of {parse_manifest(manifest).time}"
    except BackupError:
        return ", whose manifest is damaged"
