"""Whether the wall clock can be believed: it must go as fast as time that never jumps."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from mnemon_server.domain.clock import Clock, from_microseconds, system_clock, to_microseconds

JUMP_MAX = timedelta(hours=1)
BELIEVED_AFTER_S = 24 * 3600.0
NO_JUMP = timedelta(0)


def machine_uptime() -> float:
    """Seconds since some moment, those in which the machine slept included where it knows."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class _Moment(NamedTuple):
    wall: datetime
    uptime: float


class ClockGuard:
    """Compares the wall clock with the uptime. One that jumped is doubted until it is put right, or has stayed so.

    A doubt outlives a restart: keep `doubt` and hand it to the next one. The uptime begins anew then, so a clock that
    jumped while nobody looked is not found out.
    """

    def __init__(
        self, doubt: str = "", *, clock: Clock = system_clock, uptime: Callable[[], float] = machine_uptime
    ) -> None:
        """Takes up a doubt that was kept, if there is one, for another BELIEVED_AFTER_S."""
        self._clock, self._uptime = clock, uptime
        now = _Moment(clock(), uptime())
        self._trusted = now
        self._jump, self._since = NO_JUMP, now
        if doubt:
            seen, jump = (int(part) for part in doubt.split(","))
            # One that went ahead and shows an earlier time now has been put right.
            if jump > 0 and now.wall >= from_microseconds(seen):
                self._jump = timedelta(microseconds=jump)
                self._trusted = _Moment(now.wall - self._jump, now.uptime)

    def look(self) -> timedelta:
        """How far the clock jumped and is doubted for it; 0 where it is believed."""
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
        """What to keep; empty where there is no doubt."""
        if not self._jump:
            return ""
        return f"{to_microseconds(self._since.wall)},{self._jump // timedelta(microseconds=1)}"
