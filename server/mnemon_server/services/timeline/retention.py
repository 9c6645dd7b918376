"""Removes events that are older than they may be, and distrusts a sweep that would take too many of them."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import IndexWarmingError, MnemonError
from mnemon_server.engines.base import Vault, VaultTransaction
from mnemon_server.engines.promises.timeline import Sequences, Timeline
from mnemon_server.services.shared.clock_guard import ClockGuard, machine_uptime
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.health_signal import Problem
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.timeline.health import TimelineHealth
from mnemon_server.services.timeline.pruning import EpisodicPruning
from mnemon_server.services.timeline.selections import earlier, selection_before

INTERVAL_S = 300.0
WARMING_S = 1.0
SHARE_MAX = 0.5
GUARDED_MIN = 100
"""Of fewer events any share may go: a few that are all old are no sign of anything."""

RETENTION = "retention"
"""The name under which it reports to TimelineHealth."""

DOUBT_KEY = "episodic.clock_doubt"

log = logging.getLogger(__name__)


class TimelineRetention:
    """Prunes events that happened longer ago than `keep_for`, in the background.

    A sweep that would remove more than a share of all events is stopped, and so is one by a clock that jumped by more
    than an hour since the last one; the log is told once, and told again when a sweep goes through. The share holds
    until somebody prunes by hand or raises it. A clock that is not put right is believed after a day. An async context
    manager; belongs to one event loop.
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
            interval_s: seconds between two sweeps.
            clock: the wall clock, which may jump.
            uptime: seconds that never jump.
        """
        self._timeline = timeline
        self._vault = vault
        self._keep_for = keep_for
        self._pruning = pruning
        self._health = health
        self._offload = offload
        self._share_max = share_max
        self._interval_s = interval_s
        self._clock, self._uptime = clock, uptime
        self._guard: ClockGuard | None = None
        self._kept_doubt = ""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

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

    async def _run(self) -> None:
        while True:
            wait_s = self._interval_s
            try:
                await self.sweep()
            except IndexWarmingError:
                wait_s = min(WARMING_S, wait_s)
            except MnemonError as error:
                # Old events stay until a later sweep succeeds.
                log.warning("retention could not remove events: %s", error)
            except Exception:
                log.exception("retention could not remove events")
            await asyncio.sleep(wait_s)

    def _find(self, before: datetime) -> tuple[Sequences | None, Problem | None]:
        """What is to go, or why it may not. Blocks."""
        expired = self._timeline.expired(before, limit=1)
        old = selection_before(before)
        if not expired.count or old is None:
            return None, None
        sequences = self._timeline.sequences(old)
        if expired.total >= GUARDED_MIN and len(sequences) > self._share_max * expired.total:
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
