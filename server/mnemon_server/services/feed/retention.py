"""Keeps the log of a vault within its age and count, bit by bit, and distrusts a clock that jumped."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta

from mnemon_server.domain.clock import EPOCH
from mnemon_server.engines.promises.change_log import TRIM_MAX, ChangeLog
from mnemon_server.services.shared.clock_guard import BELIEVED_AFTER_S, ClockGuard, ShareGuard
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.periodic import Periodic

INTERVAL_S = 60.0
PAUSE_S = 0.01
HELD_S = 1.0
"""Where somebody has yet to read what might go, the next sweep comes sooner, though later from time to time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChangeRetentionSettings:
    """How long the log of a vault is."""

    keep_for: timedelta
    """Age that changes may have."""
    keep_max: int
    """Changes that may be kept."""
    interval_s: float = INTERVAL_S
    """Seconds between two sweeps."""


class ChangeRetention(Periodic):
    """Trims a log in the background: changes older than `keep_for`, and all but the newest `keep_max`.

    While the clock is doubted, nothing goes for its age. A sweep that would drop more than half of what is kept, for
    its age alone, is put off for a day of uptime, and done if it is still wanted then: the clock may have jumped while
    the server was down. The bound of the count always holds, but for changes that somebody has yet to read.
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
        """Drops nothing yet.

        Args:
            changes: the log.
            settings: how long it may be.
            guard: the clock of the vault.
            offload: where the log is read.
            keep_after: the position behind which somebody has yet to read; None where nobody has.
        """
        super().__init__("the change log could not be trimmed", interval_s=settings.interval_s)
        self._log = changes
        self._settings = settings
        self._guard = guard
        self._share = ShareGuard(believed_after_s=BELIEVED_AFTER_S, uptime=guard.uptime)
        self._offload = offload
        self._keep_after = keep_after
        self._held_s = HELD_S

    async def sweep(self) -> int:
        """Drops what may go, a bounded number at a time with a pause for writes between; returns how many changes went.

        It ends once it has come up with the writes: what they add to a full log meanwhile is for the next sweep.

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
        # Before the sweep: what was read while it ran is for the next one.
        is_held = await self._offload(self._is_held)
        await self.sweep()
        if not is_held:
            self._held_s = HELD_S
            return None
        wait_s, self._held_s = self._held_s, 2 * self._held_s
        return wait_s

    def _is_held(self) -> bool:
        """Whether somebody has yet to read some of the log."""
        position = self._keep_after()
        return position is not None and position < self._log.state().head

    def _is_credible(self, oldest: datetime) -> bool:
        """Whether the age may be believed. Positions stand for counts here: their gaps are spread evenly."""
        state = self._log.state()
        aged = self._log.position_before(oldest) - state.floor
        was_doubting = self._share.is_doubting
        is_credible = self._share.allows(aged, state.head - state.floor)
        if self._share.is_doubting and not was_doubting:
            log.warning(
                "most of the change log seems older than %s; it goes in %.0f hours, unless the clock is put right",
                self._settings.keep_for,
                BELIEVED_AFTER_S / 3600,
            )
        return is_credible
