"""Prevents a vault from removing records by age after the wall clock jumped."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from mnemon_server.domain.clock import Clock, from_microseconds, system_clock, to_microseconds
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import transacted

JUMP_MAX = timedelta(hours=1)
BELIEVED_AFTER_S = 24 * 3600.0
NO_JUMP = timedelta(0)

DOUBT_KEY = "clock.doubt"

log = logging.getLogger(__name__)


def machine_uptime() -> float:
    """Seconds since an arbitrary moment; includes the time in which the machine slept, if the system counts it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class _Moment(NamedTuple):
    wall: datetime
    uptime: float


def describe(jump: timedelta) -> str:
    """A jump in words, such as "2.0 hours ahead"."""
    return f"{abs(jump) / timedelta(hours=1):.1f} hours {'ahead' if jump > NO_JUMP else 'back'}"


class JumpDetector:
    """Compares the wall clock with the uptime. A clock that jumped is doubted until it is corrected, or for a day.

    For a doubt to outlive a restart, store `doubt` and pass it to the next detector. A jump while the server was down
    is not detected, since there is no earlier uptime to compare with.
    """

    def __init__(
        self, doubt: str = "", *, clock: Clock = system_clock, uptime: Callable[[], float] = machine_uptime
    ) -> None:
        """Continues a stored doubt, if there is one, for another BELIEVED_AFTER_S."""
        self._clock, self._uptime = clock, uptime
        now = _Moment(clock(), uptime())
        self._trusted = now
        self._jump, self._since = NO_JUMP, now
        if doubt:
            seen, jump = (int(part) for part in doubt.split(","))
            # A clock that jumped ahead and now shows an earlier time was corrected.
            if jump > 0 and now.wall >= from_microseconds(seen):
                self._jump = timedelta(microseconds=jump)
                self._trusted = _Moment(now.wall - self._jump, now.uptime)

    def look(self) -> timedelta:
        """How far the clock jumped; 0 if it is not in doubt."""
        now = _Moment(self._clock(), self._uptime())
        jump = now.wall - self._trusted.wall - timedelta(seconds=now.uptime - self._trusted.uptime)
        if abs(jump) <= JUMP_MAX:
            self._trusted, self._jump = now, NO_JUMP
        elif abs(jump - self._jump) > JUMP_MAX:
            self._jump, self._since = jump, now
        elif now.uptime - self._since.uptime >= BELIEVED_AFTER_S:
            self._trusted, self._jump = now, NO_JUMP
        return self._jump

    @property
    def doubt(self) -> str:
        """The doubt as a text to store; empty without a doubt."""
        if not self._jump:
            return ""
        return f"{to_microseconds(self._since.wall)},{self._jump // timedelta(microseconds=1)}"


class ClockGuard:
    """Watches the clock of a vault for all jobs that remove what is old. Belongs to one event loop.

    A doubt is stored in the vault, so that it outlives a restart.
    """

    def __init__(
        self, vault: Vault, *, clock: Clock = system_clock, uptime: Callable[[], float] = machine_uptime
    ) -> None:
        """Reads nothing yet. `clock` may jump, and `uptime`, in seconds, never does."""
        self.clock, self.uptime = clock, uptime
        self._vault = vault
        self._detector: JumpDetector | None = None
        self._kept_doubt = ""
        self._turn = asyncio.Lock()

    async def jump(self) -> timedelta:
        """How far the clock jumped; unless it is 0, nothing may be removed because of its age.

        Raises:
            StorageFailedError, StorageFullError: the doubt cannot be stored.
        """
        async with self._turn:
            if self._detector is None:
                kept = await asyncio.to_thread(self._vault.value, DOUBT_KEY)
                self._kept_doubt = kept or ""
                self._detector = JumpDetector(self._kept_doubt, clock=self.clock, uptime=self.uptime)
            jump = self._detector.look()
            await self._keep(self._detector.doubt, jump)
            return jump

    async def _keep(self, doubt: str, jump: timedelta) -> None:
        if doubt == self._kept_doubt:
            return
        await transacted(self._vault, lambda tx: tx.set_value(DOUBT_KEY, doubt))
        self._kept_doubt = doubt
        if jump:
            log.warning(
                "the clock went %s; nothing is removed because of its age until it is corrected, or a day has passed",
                describe(jump),
            )
        else:
            log.info("the clock is trusted again")


class ShareGuard:
    """Doubts a sweep that would remove most of the data: a clock that jumped while the server was down ages it all."""

    def __init__(
        self,
        share_max: float = 0.5,
        *,
        guarded_min: int = 1,
        believed_after_s: float = math.inf,
        uptime: Callable[[], float] = machine_uptime,
    ) -> None:
        """Nothing is doubted yet.

        Args:
            share_max: the share of all records that a sweep may remove, 0 to 1.
            guarded_min: the share only matters if there are at least this many; a sweep may remove fewer altogether.
            believed_after_s: seconds after which a doubted sweep is allowed if it is still wanted.
            uptime: seconds that never jump.
        """
        self._share_max, self._guarded_min = share_max, guarded_min
        self._believed_after_s = believed_after_s
        self._uptime = uptime
        self._doubted_since: float | None = None

    @property
    def is_doubting(self) -> bool:
        """Whether the last sweep was doubted, or is allowed only because the doubt has lasted long enough."""
        return self._doubted_since is not None

    def allows(self, count: int, total: int) -> bool:
        """Whether a sweep may remove `count` of `total`."""
        if total < self._guarded_min or count <= self._share_max * total:
            self._doubted_since = None
            return True
        now = self._uptime()
        if self._doubted_since is None:
            self._doubted_since = now
        return now - self._doubted_since >= self._believed_after_s
