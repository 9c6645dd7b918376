"""Trims the log of a vault to an age and a count, in small steps, and does not trust a clock that jumped."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta

from mnemon_server.domain.clock import EPOCH
from mnemon_server.engines.promises.change_log import TRIM_MAX, ChangeLog
from mnemon_server.services.background.clock_guard import BELIEVED_AFTER_S, ClockGuard, ShareGuard
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.background.periodic import Periodic

INTERVAL_S = 60.0
PAUSE_S = 0.01
HELD_S = 1.0
"""The first delay until the next sweep while unread changes are held back; it doubles with each such sweep."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChangeRetentionSettings:
    """The limits of the log of a vault."""

    keep_for: timedelta
    """The greatest age of changes."""
    keep_max: int
    """The greatest number of changes."""
    interval_s: float = INTERVAL_S
    """Seconds between two sweeps."""


class ChangeRetention(Periodic):
    """Trims a log in the background: changes older than `keep_for`, and all but the newest `keep_max`.

    While the clock is in doubt, no change is dropped because of its age. If a sweep would drop more than half of the
    log because of age alone, it is put off for a day of uptime, since the clock may have jumped while the server was
    down. After that day the sweep is done if the age still demands it. The limit on the count always applies, except to
    changes that are still to be read.
    """

    def __init__(
        self,
        changes: ChangeLog,
        settings: ChangeRetentionSettings,
        *,
        guard: ClockGuard,
        offload: Offload,
        keep_after: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Drops nothing yet. `keep_after` returns the position after which changes must be kept; None: all may go."""
        super().__init__("the change log could not be trimmed", interval_s=settings.interval_s)
        self._log = changes
        self._settings = settings
        self._guard = guard
        self._share = ShareGuard(believed_after_s=BELIEVED_AFTER_S, uptime=guard.uptime)
        self._offload = offload
        self._keep_after = keep_after
        self._held_s = HELD_S

    async def sweep(self) -> int:
        """Drops changes in steps, with pauses for writes between them; returns how many changes it dropped.

        It ends when a step finds fewer changes than a step may drop; changes written after that are for the next sweep.

        Raises:
            StorageFailedError, StorageFullError: see ChangeLog.
        """
        oldest = self._guard.clock() - self._settings.keep_for
        is_credible = not await self._guard.jump() and await self._offload(self._is_credible, oldest)
        before = oldest if is_credible else EPOCH
        dropped = count = await asyncio.wrap_future(self._trim(before))
        while count == TRIM_MAX:
            await asyncio.sleep(PAUSE_S)
            count = await asyncio.wrap_future(self._trim(before))
            dropped += count
        return dropped

    def _trim(self, before: datetime) -> "Future[int]":
        return self._log.trim(before=before, keep_max=self._settings.keep_max, keep_after=self._keep_after())

    async def _turn(self) -> float | None:
        # Ask before the sweep: changes that are read while it runs are left to the next one.
        is_held = await self._offload(self._is_held)
        await self.sweep()
        if not is_held:
            self._held_s = HELD_S
            return None
        wait_s, self._held_s = self._held_s, 2 * self._held_s
        return wait_s

    def _is_held(self) -> bool:
        """Whether some changes are still to be read, and must be kept until then."""
        position = self._keep_after()
        return position is not None and position < self._log.state().head

    def _is_credible(self, oldest: datetime) -> bool:
        """Whether the age can be trusted. Positions are used as counts, since their gaps are spread evenly."""
        state = self._log.state()
        aged = self._log.position_before(oldest) - state.floor
        was_doubting = self._share.is_doubting
        is_credible = self._share.allows(aged, state.head - state.floor)
        if self._share.is_doubting and not was_doubting:
            log.warning(
                "most of the change log seems older than %s; it is removed in %.0f hours unless the clock is corrected",
                self._settings.keep_for,
                BELIEVED_AFTER_S / 3600,
            )
        return is_credible
