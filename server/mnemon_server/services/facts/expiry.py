"""Removes expired facts about once a minute. Readers no longer see a fact from the moment it expires."""

import logging

from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.facts.store import FactStore

INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class FactExpiry(Periodic):
    """Sweeps a store of facts in the background. Facts that a sweep could not remove stay hidden until one does.

    While the clock is in doubt, no fact is removed. So once the clock is corrected, facts that expired too early are
    visible again.
    """

    def __init__(self, facts: FactStore, guard: ClockGuard, *, interval_s: float = INTERVAL_S) -> None:
        """Removes nothing yet. The first sweep starts at once; `interval_s` is the time between two sweeps."""
        super().__init__("expired facts could not be removed", interval_s=interval_s)
        self._facts = facts
        self._guard = guard

    async def _turn(self) -> None:
        # Read the time before the guard checks the clock, so that a jump in between expires nothing.
        now = self._guard.clock()
        if await self._guard.jump():
            return
        if count := await self._facts.sweep(now):
            log.info("%s expired facts were removed", f"{count:,}")
