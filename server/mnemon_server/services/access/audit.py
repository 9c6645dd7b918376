"""Gathers the entries of the audit log, and writes them off the event loop."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.domain.clock import system_ms
from mnemon_server.services.background.periodic import Periodic

INTERVAL_S = 0.5
"""An entry is on stable storage so many seconds after its call, on a disk that is not slow."""
WAITING_MAX = 100_000
"""Entries that wait for the disk. Further ones are left out, and the log says how many."""
TOGETHER_MAX = 10_000
STRANGERS_MAX = 50
"""Entries of unknown callers in each interval. A flood of refusals must not fill the disk: further ones are counted."""


class AuditStore(Protocol):
    """Where entries are kept."""

    def append(self, entries: Sequence[AuditEntry | LeftOut]) -> None:
        """Keeps entries, at least one, in their order. Blocks. Raises StorageFailedError, and then keeps none."""


class AuditLog(Periodic):
    """The audit log of a server. Entries that cannot be written wait; calls do not wait for them.

    Leaving the block writes what is left.
    """

    def __init__(self, store: AuditStore, *, waiting_max: int = WAITING_MAX) -> None:
        super().__init__("the audit log could not be written; its entries wait", interval_s=INTERVAL_S)
        self._store = store
        self._waiting_max = waiting_max
        self._waiting: list[AuditEntry] = []
        self._strangers = self._left_out = 0

    def record(self, entry: AuditEntry) -> None:
        """Adds an entry, or counts it if there are too many."""
        if not entry.subject:
            self._strangers += 1
        if len(self._waiting) >= self._waiting_max or (not entry.subject and self._strangers > STRANGERS_MAX):
            self._left_out += 1
        else:
            self._waiting.append(entry)

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        await self._write()

    async def _turn(self) -> float | None:
        self._strangers = 0
        await self._write()
        return None

    async def _write(self) -> None:
        async with self._unstoppable:
            while self._waiting or self._left_out:
                taken, left_out = self._waiting[:TOGETHER_MAX], self._left_out
                entries: list[AuditEntry | LeftOut] = [*taken]
                if left_out:
                    entries.append(LeftOut(system_ms(), left_out))
                await asyncio.to_thread(self._store.append, entries)
                del self._waiting[: len(taken)]
                self._left_out -= left_out
