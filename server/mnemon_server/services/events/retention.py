"""Removes events that are older than the retention allows, and stops a sweep that would remove too many of them."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from mnemon_server.domain.errors import IndexWarmingError
from mnemon_server.engines.promises.events import EventEngine, Sequences
from mnemon_server.services.background.clock_guard import ClockGuard, ShareGuard, describe
from mnemon_server.services.background.health_signal import Problem
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.events.health import EventsHealth
from mnemon_server.services.events.pruning import EventPruning
from mnemon_server.services.events.selections import earlier, selection_before

INTERVAL_S = 300.0
WARMING_S = 1.0

RETENTION = "retention"
"""The name of this reporter in EventsHealth."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventRetentionSettings:
    """How long events are kept, and when a sweep is stopped."""

    keep_for: timedelta
    """Older events are removed."""
    share_max: float = 0.5
    """The largest share of all events that a sweep may remove, 0 to 1."""
    guarded_min: int = 10
    """The share counts only with at least this many events: that a few events are old is no sign of a wrong clock."""
    interval_s: float = INTERVAL_S
    """Seconds between two sweeps."""


class EventRetention(Periodic):
    """Prunes events that happened longer ago than `keep_for`, in the background.

    A sweep that would remove more than a share of all events is stopped, and so is one while the clock is in doubt. The
    log says so once, and says when a sweep succeeds again. The share applies until someone prunes by hand or raises it.
    """

    def __init__(
        self,
        events: EventEngine,
        settings: EventRetentionSettings,
        *,
        guard: ClockGuard,
        pruning: EventPruning,
        health: EventsHealth,
        offload: Offload,
    ) -> None:
        """Removes nothing yet. It shares `pruning` and `health` with the EventStore."""
        super().__init__("retention could not remove events", interval_s=settings.interval_s)
        self._events = events
        self._settings = settings
        self._guard = guard
        self._share = ShareGuard(settings.share_max, guarded_min=settings.guarded_min)
        self._pruning = pruning
        self._health = health
        self._offload = offload

    async def sweep(self) -> int:
        """Removes the events that are too old, unless that would be too many; returns how many it removed.

        Raises:
            IndexWarmingError: the timeline is still being loaded.
            StorageFailedError, StorageFullError: see Timeline.
        """
        # Read before the guard checks the clock: if it jumps in between, no event is removed because of that.
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
        """The events to remove, or why they must not be removed. Blocks."""
        expired = self._events.expired(before, limit=1)
        old = selection_before(before)
        if not expired.count or old is None:
            return None, None
        sequences = self._events.sequences(old)
        if not self._share.allows(len(sequences), expired.total):
            return None, self._share_problem(len(sequences), expired.total)
        return sequences, None

    def _share_problem(self, count: int, total: int) -> Problem:
        return Problem(
            RETENTION,
            f"retention would remove {count:,} of {total:,} events, more than the share of"
            f" {self._settings.share_max:g} that a sweep may remove, and is stopped",
            "check the clock and the retention of events; if these events can be deleted, remove them with PruneEvents,"
            " or raise the share that a sweep may remove",
        )

    async def _clock_problem(self) -> Problem | None:
        jump = await self._guard.jump()
        if not jump:
            return None
        return Problem(
            RETENTION,
            f"the clock went {describe(jump)}, and retention is stopped until it is corrected, or a day has passed",
            "set the clock correctly; to remove old events before that, use PruneEvents",
        )
