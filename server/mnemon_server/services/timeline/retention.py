"""Removes events that are older than they may be, and distrusts a sweep that would take too many of them."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from mnemon_server.domain.errors import IndexWarmingError
from mnemon_server.engines.promises.timeline import Sequences, Timeline
from mnemon_server.services.shared.clock_guard import ClockGuard, ShareGuard, describe
from mnemon_server.services.shared.health_signal import Problem
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.periodic import Periodic
from mnemon_server.services.timeline.health import TimelineHealth
from mnemon_server.services.timeline.pruning import EpisodicPruning
from mnemon_server.services.timeline.selections import earlier, selection_before

INTERVAL_S = 300.0
WARMING_S = 1.0

RETENTION = "retention"
"""The name under which it reports to TimelineHealth."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TimelineRetentionSettings:
    """How long events are kept, and when a sweep is distrusted."""

    keep_for: timedelta
    """How long ago an event may have happened."""
    share_max: float = 0.5
    """Share of all events that a sweep may remove, 0 to 1."""
    guarded_min: int = 10
    """How many events there must be for the share to count. Of fewer, all may go: a few old ones are no sign."""
    interval_s: float = INTERVAL_S
    """Seconds between two sweeps."""


class TimelineRetention(Periodic):
    """Prunes events that happened longer ago than `keep_for`, in the background.

    A sweep that would remove more than a share of all events is stopped, and so is one by a clock that is doubted; the
    log is told once, and told again when a sweep goes through. The share holds until somebody prunes by hand or raises
    it.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: TimelineRetentionSettings,
        *,
        guard: ClockGuard,
        pruning: EpisodicPruning,
        health: TimelineHealth,
        offload: Offload,
    ) -> None:
        """Removes nothing yet.

        Args:
            timeline: whose events.
            settings: how long they are kept.
            guard: the clock of the vault.
            pruning: what removes them; that of the EpisodicStore.
            health: who is told that a sweep was stopped; that of the EpisodicStore.
            offload: where the timeline is read.
        """
        super().__init__("retention could not remove events", interval_s=settings.interval_s)
        self._timeline = timeline
        self._settings = settings
        self._guard = guard
        self._share = ShareGuard(settings.share_max, guarded_min=settings.guarded_min)
        self._pruning = pruning
        self._health = health
        self._offload = offload

    async def sweep(self) -> int:
        """Removes what may go, unless too much would; returns how many events went.

        Raises:
            IndexWarmingError: too early.
            StorageFailedError, StorageFullError: see Timeline.
        """
        # Read before the guard looks: a clock that jumps in between takes nothing along.
        before = earlier(self._guard.clock(), self._settings.keep_for)
        problem = await self._clock_problem()
        sequences = None
        if problem is None:
            sequences, problem = await self._offload(self._find, before)
        self._health.report(RETENTION, problem)
        if problem is not None or sequences is None:
            return 0
        count = await self._pruning.prune_expired(sequences)
        log.info("retention removed %s events that happened before %s", f"{count:,}", before.isoformat())
        return count

    async def _turn(self) -> float | None:
        try:
            await self.sweep()
        except IndexWarmingError:
            return WARMING_S
        return None

    def _find(self, before: datetime) -> tuple[Sequences | None, Problem | None]:
        """What is to go, or why it may not. Blocks."""
        expired = self._timeline.expired(before, limit=1)
        old = selection_before(before)
        if not expired.count or old is None:
            return None, None
        sequences = self._timeline.sequences(old)
        if not self._share.allows(len(sequences), expired.total):
            return None, self._share_problem(len(sequences), expired.total)
        return sequences, None

    def _share_problem(self, count: int, total: int) -> Problem:
        return Problem(
            RETENTION,
            f"retention would remove {count:,} of {total:,} events, more than the share of"
            f" {self._settings.share_max:g} that a sweep may, and is stopped",
            "check the clock and how long events are to be kept; if they may go, remove them with PruneEvents, or raise"
            " the share that a sweep may remove",
        )

    async def _clock_problem(self) -> Problem | None:
        jump = await self._guard.jump()
        if not jump:
            return None
        return Problem(
            RETENTION,
            f"the clock went {describe(jump)}, and retention is stopped until it is put right, or has stayed so"
            " for a day",
            "put the clock right; if old events are to go before, remove them with PruneEvents",
        )
