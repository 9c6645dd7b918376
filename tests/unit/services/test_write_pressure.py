"""When writes are throttled, how many are admitted then, and when the throttling ends."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from mnemon_server.domain.errors import ThrottledError
from mnemon_server.services.writing.write_pressure import SAMPLES_MAX, SAMPLES_MIN, WriteLatency, WritePressure

TARGET_S, WINDOW_S = 0.5, 10.0


class Time:
    """An uptime that a test moves forward."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    """The time of the test."""
    return Time()


@pytest.fixture
def pressure(time: Time) -> WritePressure:
    """A new measurement, without writes yet."""
    return WritePressure(WriteLatency(TARGET_S, WINDOW_S), monotonic=time)


def write(pressure: WritePressure, time: Time, seconds: float, *, count: int = 1, records: int = 1) -> None:
    """Makes writes, one after the other."""
    for _ in range(count):
        with pressure.write(records):
            time.now += seconds


def write_together(pressure: WritePressure, time: Time, seconds: float, *, count: int) -> None:
    """Makes as many concurrent calls as are admitted. Each takes this long."""
    with ExitStack() as calls:
        for _ in range(count):
            calls.enter_context(pressure.write())
        time.now += seconds


def fail(pressure: WritePressure, time: Time, seconds: float) -> None:
    """Fails after this long."""
    with pressure.write():
        time.now += seconds
        raise ThrottledError("full")


def admitted(pressure: WritePressure, *, at_most: int = 1_000) -> Iterator[AbstractContextManager[None]]:
    """Begins calls until one is refused. Returns how many were admitted."""
    for _ in range(at_most):
        call = pressure.write()
        try:
            call.__enter__()
        except ThrottledError:
            return
        yield call


def test_fast_writes_are_never_throttled(pressure: WritePressure, time: Time) -> None:
    write(pressure, time, 0.01, count=200)
    assert not pressure.holds_back
    assert pressure.median_s == pytest.approx(0.01)
    assert len(list(admitted(pressure))) == 1_000


def test_a_few_slow_writes_are_not_enough_to_throttle(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 3.0, count=SAMPLES_MIN - 1)
    assert not pressure.holds_back
    write(pressure, time, 3.0)
    assert pressure.holds_back


def test_the_median_decides_and_not_the_slowest(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 0.1, count=31)
    write_together(pressure, time, 4.0, count=30)
    assert pressure.median_s == pytest.approx(0.1)
    assert not pressure.holds_back


def test_throttling_admits_as_many_as_meet_the_target(pressure: WritePressure, time: Time) -> None:
    # 100 in 10 s is 10 per second, and 0.5 s of that is 5.
    write_together(pressure, time, 2.0, count=100)
    assert pressure.holds_back
    calls = list(admitted(pressure))
    assert len(calls) == 5
    with pytest.raises(ThrottledError, match=r"writes take 2 s, more than the target of 0.5 s") as refusal:
        pressure.write().__enter__()
    assert refusal.value.retry_after_s == 2.0
    calls[0].__exit__(None, None, None)
    assert len(list(admitted(pressure))) == 1


def test_at_least_one_is_admitted_however_slow_it_is(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 9.0, count=SAMPLES_MIN)
    write(pressure, time, 9.0, count=3)
    assert pressure.holds_back
    assert len(list(admitted(pressure))) == 1


def test_the_rate_is_right_when_the_window_exceeds_the_stored_samples(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 1.0, count=SAMPLES_MAX)
    time.now += 1.0
    write_together(pressure, time, 1.0, count=SAMPLES_MAX // 2)
    # The stored samples ended in the last two seconds, at 512 per second. 0.5 s of that is 256.
    assert pressure.holds_back
    assert len(list(admitted(pressure))) == 256


def test_throttling_ends_when_writes_are_well_below_the_target(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 2.0, count=50)
    assert pressure.holds_back
    time.now += WINDOW_S - 1.0
    write(pressure, time, 0.9 * TARGET_S)
    time.now += 1.0
    # All remaining samples are below the target, but not well below it.
    assert pressure.median_s == pytest.approx(0.9 * TARGET_S)
    assert pressure.holds_back
    write(pressure, time, 0.1, count=2)
    time.now += 0.1
    assert not pressure.holds_back


def test_throttling_ends_when_there_were_no_writes_for_a_while(pressure: WritePressure, time: Time) -> None:
    write_together(pressure, time, 2.0, count=50)
    time.now += WINDOW_S - 0.1
    assert pressure.holds_back
    time.now += 0.2
    assert not pressure.holds_back
    assert pressure.median_s == 0.0


def test_a_hanging_write_is_noticed_before_it_ends(pressure: WritePressure, time: Time) -> None:
    with ExitStack() as calls:
        for _ in range(SAMPLES_MIN):
            calls.enter_context(pressure.write())
        assert not pressure.holds_back
        time.now += 60.0
        assert pressure.holds_back
        assert pressure.median_s == 60.0


def test_a_call_with_many_writes_counts_the_time_of_one(pressure: WritePressure, time: Time) -> None:
    write(pressure, time, 5.0, records=1_000)
    assert pressure.median_s == pytest.approx(0.005)
    assert not pressure.holds_back
    # 1,000 at 2 s each would be enough on their own.
    write(pressure, time, 2_000.0, records=1_000)
    assert pressure.holds_back


def test_failed_writes_do_not_count(pressure: WritePressure, time: Time) -> None:
    for _ in range(SAMPLES_MIN):
        with pytest.raises(ThrottledError, match="full"):
            fail(pressure, time, 5.0)
    assert pressure.median_s == 0.0
    assert not pressure.holds_back


def test_it_does_not_oscillate_under_a_steady_overload(pressure: WritePressure, time: Time) -> None:
    # A server that writes 40 per second, and callers that always have 200 calls in progress if they can.
    changes, held_back = 0, False
    under_way: list[AbstractContextManager[None]] = []
    for _ in range(40 * 60):
        under_way += admitted(pressure, at_most=200 - len(under_way))
        time.now += 1 / 40
        under_way.pop(0).__exit__(None, None, None)
        if pressure.holds_back != held_back:
            changes, held_back = changes + 1, pressure.holds_back
    assert (changes, held_back) == (1, True)
    assert pressure.median_s <= TARGET_S * 1.1
