"""Removes versions that ended long ago."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from mnemon_server.domain.collections import VERSIONS
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.background.offload import completion
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.semantic.filters import among

INTERVAL_S = 60.0
STEP = 200
"""Versions that are removed in one transaction."""

log = logging.getLogger(__name__)


class HistoryRetention(Periodic):
    """Sweeps the versions of a vault in the background. While the clock is in doubt, none is removed."""

    def __init__(self, vault: Vault, keep_for: timedelta, guard: ClockGuard, *, interval_s: float = INTERVAL_S) -> None:
        """Removes nothing yet. A version is kept for `keep_for` after it ended."""
        super().__init__("old versions could not be removed", interval_s=interval_s)
        self._vault, self._keep_for, self._guard = vault, keep_for, guard

    async def sweep(self) -> int:
        """Removes what is too old, in steps; returns how much that was."""
        end = self._guard.clock() - self._keep_for
        removed = 0
        if await self._guard.jump():
            return removed
        old = RecordFilter(expression=Condition("until", Operator.LTE, (end,)), hidden=None)
        versions = self._vault.collection(VERSIONS)
        while rows := await asyncio.to_thread(versions.list_documents, old, limit=STEP, fields_only=True):
            ids = [document.doc_id for _, document in rows]
            removed += int((await completion(self._vault.transact(partial(_remove, ids=ids)))).answer)
        return removed

    async def _turn(self) -> None:
        if count := await self.sweep():
            log.info("%s old versions were removed", f"{count:,}")


def _remove(tx: VaultTransaction, ids: Sequence[str]) -> str:
    gone = among("id", ids, hidden=None)
    return str(tx.collection(VERSIONS).delete_documents(gone, change=None).deleted_count)
