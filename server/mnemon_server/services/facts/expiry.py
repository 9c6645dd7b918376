"""Removes expired facts about once a minute; to whoever reads they are gone since they expired."""

import logging

from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.shared.clock_guard import ClockGuard
from mnemon_server.services.shared.periodic import Periodic

INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class FactExpiry(Periodic):
    """Sweeps a store of facts in the background. Facts that a sweep could not remove stay hidden until one does.

    While the clock is doubted, none is removed: once it is put right, those that it hid too soon are there again.
    """

    def __init__(self, facts: FactStore, guard: ClockGuard, *, interval_s: float = INTERVAL_S) -> None:
        """Removes nothing yet; seconds between two sweeps, of which the first one comes at once."""
        super().__init__("expired facts could not be removed", interval_s=interval_s)
        self._facts = facts
        self._guard = guard

    async def _turn(self) -> None:
        # Read before the guard looks: a clock that jumps in between takes nothing along.
        now = self._guard.clock()
        if await self._guard.jump():
            return
        if count := await self._facts.sweep(now):
            log.info("%s expired facts were removed", f"{count:,}")
