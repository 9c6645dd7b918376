"""Removes events that are older than they may be, and distrusts a sweep that would take too many of them."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import IndexWarmingError
from mnemon_server.engines.promises.timeline import Sequences, Timeline
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.shared.clock_guard import ClockGuard, machine_uptime
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.health_signal import Problem
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.periodic import Periodic
from mnemon_server.services.timeline.health import TimelineHealth
from mnemon_server.services.timeline.pruning import EpisodicPruning
from mnemon_server.services.timeline.selections import earlier, selection_before

INTERVAL_S = 300.0
WARMING_S = 1.0
SHARE_MAX = 0.5
GUARDED_MIN = 10
"""Of fewer events any share may go: a few that are all old are no sign of anything."""

RETENTION = "retention"
"""The name under which it reports to TimelineHealth."""

DOUBT_KEY = "episodic.clock_doubt"

log = logging.getLogger(__name__)


class TimelineRetention(Periodic):
    """Prunes events that happened longer ago than `keep_for`, in the background.

    A sweep that would remove more than a share of all events is stopped, and so is one by a clock that jumped by more
    than an hour since the last one; the log is told once, and told again when a sweep goes through. The share holds
    until somebody prunes by hand or raises it. A clock that is not put right is believed after a day.
    """

    def __init__(
        self,
        timeline: Timeline,
        vault: Vault,
        *,
        keep_for: timedelta,
        pruning: EpisodicPruning,
        health: TimelineHealth,
        offload: Offload,
        share_max: float = SHARE_MAX,
        guarded_min: int = GUARDED_MIN,
        interval_s: float = INTERVAL_S,
        clock: Clock = system_clock,
        uptime: Callable[[], float] = machine_uptime,
    ) -> None:
        """Removes nothing yet.

        Args:
            timeline: whose events.
            vault: keeps a doubt about the clock over restarts.
            keep_for: how long ago an event may have happened.
            pruning: what removes them; that of the EpisodicStore.
            health: who is told that a sweep was stopped; that of the EpisodicStore.
            offload: where the timeline is read.
            share_max: share of all events that a sweep may remove, 0 to 1.
            guarded_min: how many events there must be for the share to count; of fewer ones, all may go.
            interval_s: seconds between two sweeps.
            clock: the wall clock, which may jump.
            uptime: seconds that never jump.
        """
        super().__init__("retention could not remove events", interval_s=interval_s)
        self._timeline = timeline
        self._vault = vault
        self._keep_for = keep_for
        self._pruning = pruning
        self._health = health
        self._offload = offload
        self._share_max, self._guarded_min = share_max, guarded_min
        self._clock, self._uptime = clock, uptime
        self._guard: ClockGuard | None = None
        self._kept_doubt = ""

    async def sweep(self) -> int:
        """Removes what may go, unless too much would; returns how many events went.

        Raises:
            IndexWarmingError: too early.
            StorageFailedError, StorageFullError: see Timeline.
        """
        problem = await self._clock_problem()
        sequences = None
        if problem is None:
            before = earlier(self._clock(), self._keep_for)
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
        if expired.total >= self._guarded_min and len(sequences) > self._share_max * expired.total:
            return None, self._share_problem(len(sequences), expired.total)
        return sequences, None

    def _share_problem(self, count: int, total: int) -> Problem:
        return Problem(
            RETENTION,
            f"retention would remove {count:,} of {total:,} events, more than the share of {self._share_max:g} that a"
            " sweep may, and is stopped",
            "check the clock and how long events are to be kept; if they may go, remove them with PruneEvents, or raise"
            " the share that a sweep may remove",
        )

    async def _clock_problem(self) -> Problem | None:
        if self._guard is None:
            kept = await self._offload(self._vault.value, DOUBT_KEY)
            self._kept_doubt = kept or ""
            self._guard = ClockGuard(self._kept_doubt, clock=self._clock, uptime=self._uptime)
        jump = self._guard.look()
        if (doubt := self._guard.doubt) != self._kept_doubt:
            await completion(self._vault.transact(lambda tx: _keep_doubt(tx, doubt)))
            self._kept_doubt = doubt
        if not jump:
            return None
        hours = abs(jump) / timedelta(hours=1)
        return Problem(
            RETENTION,
            f"the clock went {hours:.1f} hours {'ahead' if jump > timedelta(0) else 'back'}, and retention is stopped"
            " until it is put right, or has stayed so for a day",
            "put the clock right; if old events are to go before, remove them with PruneEvents",
        )


def _keep_doubt(tx: VaultTransaction, doubt: str) -> str:
    tx.set_value(DOUBT_KEY, doubt)
    return ""
