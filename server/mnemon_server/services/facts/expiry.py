"""Removes expired facts about once a minute; to whoever reads they are gone since they expired."""

import logging

from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.shared.periodic import Periodic

INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class FactExpiry(Periodic):
    """Sweeps a store of facts in the background. Facts that a sweep could not remove stay hidden until one does."""

    def __init__(self, facts: FactStore, *, interval_s: float = INTERVAL_S) -> None:
        """Removes nothing yet; seconds between two sweeps, of which the first one comes at once."""
        super().__init__("expired facts could not be removed", interval_s=interval_s)
        self._facts = facts

    async def _turn(self) -> None:
        if count := await self._facts.sweep():
            log.info("%s expired facts were removed", f"{count:,}")
