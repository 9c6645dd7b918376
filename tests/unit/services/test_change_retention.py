"""The log is trimmed by age and count. A clock that jumped does not empty it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from mnemon_server.domain.changes import ChangeFilter
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite import journal
from mnemon_server.logs import configure_logging
from mnemon_server.services.background.clock_guard import BELIEVED_AFTER_S, ClockGuard
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.feed import retention
from mnemon_server.services.feed.retention import ChangeRetention, ChangeRetentionSettings

from tests.contract.vault_suite import DIMENSION, ManualClock, write
from tests.support.server import until
from tests.support.vaults import temporary_vault

DAY = timedelta(days=1)


@dataclass
class Uptime:
    """An uptime that a test moves forward."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Kept:
    """A log and its clocks."""

    vault: Vault
    clock: ManualClock
    uptime: Uptime
    offload: Offload

    def retention(
        self,
        *,
        days: float = 7,
        keep_max: int = 1_000,
        interval_s: float = 60.0,
        keep_after: Callable[[], int | None] = lambda: None,
    ) -> ChangeRetention:
        return ChangeRetention(
            self.vault.changes,
            ChangeRetentionSettings(timedelta(days=days), keep_max, interval_s),
            guard=ClockGuard(self.vault, clock=self.clock, uptime=self.uptime),
            offload=self.offload,
            keep_after=keep_after,
        )

    def put(self, *names: str) -> None:
        for name in names:
            self.vault.collection(DOCUMENTS).put_document(write(name)).result()

    def pass_by(self, time: timedelta) -> None:
        """Lets time pass on both clocks."""
        self.clock.now += time
        self.uptime.now += time.total_seconds()

    def names(self) -> str:
        return "".join(
            change.record_id for change in self.vault.changes.read(0, limit=100, where=ChangeFilter()).changes
        )


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    clock, offload = ManualClock(), Offload(1, "retention")
    with temporary_vault(clock, dimension=DIMENSION) as vault:
        yield Kept(vault, clock, Uptime(), offload)
    offload.close()


@pytest.fixture
def week(kept: Kept) -> Kept:
    """Ten changes, one per day. The first is nine days old."""
    for name in "abcdefghij":
        kept.put(name)
        kept.clock.now += DAY
    kept.clock.now -= DAY
    return kept


async def test_events_older_than_the_maximum_age_are_removed(week: Kept) -> None:
    assert await week.retention(days=7).sweep() == 2

    assert week.names() == "cdefghij"


async def test_only_the_newest_are_kept_beyond_the_count(week: Kept) -> None:
    assert await week.retention(keep_max=3).sweep() == 7

    assert week.names() == "hij"


async def test_many_events_are_removed_in_one_sweep_of_bounded_steps(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (journal, retention):
        monkeypatch.setattr(module, "TRIM_MAX", 500)
    kept.vault.collection(DOCUMENTS).put_documents([write(f"d{i % 5}", f"text {i}") for i in range(1_100)]).result()

    assert await kept.retention(keep_max=10).sweep() == 1_090

    assert kept.vault.changes.state().count == 10


async def test_a_sweep_ends_even_if_each_removal_is_followed_by_a_new_event(kept: Kept) -> None:
    kept.put(*"abcdefghij")
    steps = 0

    def write_one() -> None:
        nonlocal steps
        steps += 1
        kept.put(f"{steps}")

    async with asyncio.timeout(60):
        assert await kept.retention(keep_max=3, keep_after=write_one).sweep() == 8

    assert steps == 1


async def test_nothing_is_removed_before_its_time(week: Kept) -> None:
    assert await week.retention(days=30).sweep() == 0

    assert week.names() == "abcdefghij"


async def test_a_clock_that_jumped_ahead_does_not_empty_the_log(week: Kept, caplog: pytest.LogCaptureFixture) -> None:
    configure_logging(log_format="json", level="warning")
    logging.getLogger("mnemon_server").addHandler(caplog.handler)
    retention = week.retention(days=30)
    week.clock.now += timedelta(days=3650)
    await retention.sweep()
    await retention.sweep()
    logging.getLogger("mnemon_server").removeHandler(caplog.handler)

    assert week.names() == "abcdefghij"
    assert [record.message for record in caplog.records] == [
        (
            "most of the change log seems older than 30 days, 0:00:00; it is removed in 24 hours"
            " unless the clock is corrected"
        )
    ]

    week.clock.now -= timedelta(days=3650)
    week.uptime.now += 2 * BELIEVED_AFTER_S
    await retention.sweep()
    week.clock.now += timedelta(days=3650)
    await retention.sweep()

    assert week.names() == "abcdefghij"


async def test_a_clock_that_jumps_while_the_server_runs_removes_nothing(week: Kept) -> None:
    retention = week.retention(days=9)
    assert await retention.sweep() == 0
    week.clock.now += 3 * DAY
    assert await retention.sweep() == 0

    week.clock.now -= 3 * DAY
    week.pass_by(DAY)
    assert await retention.sweep() == 1
    assert week.names() == "bcdefghij"


async def test_after_a_day_a_changed_clock_is_trusted_and_old_events_are_removed(week: Kept) -> None:
    retention = week.retention(days=3)
    await retention.sweep()
    week.pass_by(timedelta(seconds=BELIEVED_AFTER_S - 1))
    await retention.sweep()
    assert week.names() == "abcdefghij"

    week.pass_by(timedelta(seconds=1))
    assert await retention.sweep() == 7
    assert week.names() == "hij"


async def test_the_count_applies_whatever_the_clock_says(week: Kept) -> None:
    week.clock.now += timedelta(days=3650)

    assert await week.retention(keep_max=4).sweep() == 6

    assert week.names() == "ghij"


async def test_events_that_a_reader_still_needs_stay_until_it_read_them(week: Kept) -> None:
    position = 4
    retention = week.retention(days=1, keep_max=2, keep_after=lambda: position)

    assert await retention.sweep() == 4
    assert week.names() == "efghij"

    position = 9
    await retention.sweep()
    assert week.names() == "ij"


async def test_it_sweeps_periodically_while_it_is_open(week: Kept) -> None:
    async with week.retention(keep_max=5, interval_s=0.01):
        await until(lambda: week.names() == "fghij")
        week.put("k")
        await until(lambda: week.names() == "ghijk")
    week.put("l")

    assert week.names() == "ghijkl"


@pytest.mark.parametrize("failure", [StorageFailedError("the disk failed"), OSError("too many open files")])
async def test_a_failing_sweep_is_retried_whatever_the_error(week: Kept, failure: Exception) -> None:
    failures = [failure]

    def keep_after() -> None:
        if failures:
            raise failures.pop()

    async with week.retention(keep_max=5, interval_s=0.01, keep_after=keep_after):
        await until(lambda: week.names() == "fghij")
