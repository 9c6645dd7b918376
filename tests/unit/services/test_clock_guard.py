"""A clock that jumps is distrusted, also after restarts, until it is corrected or has kept the new time for a day."""

from datetime import UTC, datetime, timedelta

import pytest
from mnemon_server.services.background.clock_guard import BELIEVED_AFTER_S, JumpDetector

from tests.support.memory_stores import MovingClock

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Times:
    """A wall clock and an uptime."""

    def __init__(self) -> None:
        self.wall, self.up = MovingClock(datetime(2026, 1, 1, tzinfo=UTC)), 50.0

    def uptime(self) -> float:
        """An uptime that a test moves forward."""
        return self.up

    def guard(self, doubt: str = "") -> JumpDetector:
        """A guard that reads these clocks."""
        return JumpDetector(doubt, clock=self.wall, uptime=self.uptime)

    def pass_by(self, time: timedelta) -> None:
        """Lets time pass on both clocks."""
        self.wall.time += time
        self.up += time.total_seconds()


@pytest.fixture
def times() -> Times:
    """The clocks of the test."""
    return Times()


def test_a_steady_clock_is_trusted_however_rarely_it_is_checked(times: Times) -> None:
    guard = times.guard()
    for days in (0, 1, 30, 365):
        times.pass_by(timedelta(days=days))
        assert not guard.look()
    assert guard.doubt == ""


def test_a_slewed_clock_is_trusted(times: Times) -> None:
    guard = times.guard()
    for _ in range(10):
        times.pass_by(5 * MINUTE)
        times.wall.time += 30 * MINUTE
        assert not guard.look()


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, timedelta(days=3650)])
def test_a_clock_that_jumped_is_distrusted_until_it_is_corrected(times: Times, jump: timedelta) -> None:
    guard = times.guard()
    times.wall.time += jump
    assert guard.look() == jump
    times.pass_by(3 * HOUR)
    assert guard.look() == jump
    times.wall.time -= jump

    assert not guard.look()
    assert guard.doubt == ""


def test_a_clock_that_keeps_the_new_time_is_trusted_after_a_day(times: Times) -> None:
    guard = times.guard()
    times.wall.time += 5 * HOUR
    guard.look()
    times.pass_by(timedelta(seconds=BELIEVED_AFTER_S - 1))
    assert guard.look()
    times.pass_by(timedelta(seconds=1))

    assert not guard.look()
    times.pass_by(HOUR)
    assert not guard.look()


def test_a_clock_that_jumps_again_is_distrusted_again(times: Times) -> None:
    guard = times.guard()
    times.wall.time += 5 * HOUR
    guard.look()
    times.pass_by(timedelta(seconds=BELIEVED_AFTER_S - 1))
    times.wall.time += 5 * HOUR
    guard.look()
    times.pass_by(timedelta(seconds=1))

    assert guard.look() == 10 * HOUR


def test_distrust_survives_a_restart(times: Times) -> None:
    guard = times.guard()
    times.wall.time += timedelta(days=365)
    guard.look()
    doubt = guard.doubt
    times.pass_by(MINUTE)
    times.up = 3.0
    restarted = times.guard(doubt)
    times.pass_by(HOUR)

    assert restarted.look() == timedelta(days=365)
    assert restarted.doubt != ""
    times.wall.time -= timedelta(days=365)
    assert not restarted.look()
    assert restarted.doubt == ""


def test_a_clock_corrected_before_the_restart_is_trusted(times: Times) -> None:
    guard = times.guard()
    times.wall.time += timedelta(days=365)
    guard.look()
    doubt = guard.doubt
    times.pass_by(HOUR)
    times.wall.time -= timedelta(days=365)

    assert not times.guard(doubt).look()
