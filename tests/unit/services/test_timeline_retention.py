"""Old events are removed automatically. A sweep by a clock that jumped, or of too many events, stops with a warning."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import IndexWarmingError, StorageFailedError
from mnemon_server.domain.events import EventsState
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.events.retention import EventRetention, EventRetentionSettings

from tests.support.episodic_stores import DAY, HOUR, OpenedEpisodic, happening, open_event_store, receipts
from tests.support.memory_stores import NOON, MovingClock
from tests.support.server import until
from tests.support.vaults import temporary_vault

KEEP_FOR = 90 * DAY
TOO_MANY = "retention would remove 60 of 100 events, more than the share of 0.5 that a sweep may remove, and is stopped"
AHEAD = "the clock went 2.0 hours ahead, and retention is stopped until it is corrected, or a day has passed"


class Kept:
    """A store that keeps events for 90 days, and its clocks."""

    def __init__(self, opened: OpenedEpisodic, offload: Offload) -> None:
        self.opened, self.offload = opened, offload
        self.uptime = 0.0

    def retention(
        self, *, keep_for: timedelta = KEEP_FOR, uptime: Callable[[], float] | None = None, **options: Any
    ) -> EventRetention:
        """A retention of the store."""
        opened = self.opened
        return EventRetention(
            cast(EventEngine, opened.timeline),
            EventRetentionSettings(keep_for, **options),
            guard=ClockGuard(opened.vault, clock=opened.clock, uptime=uptime or (lambda: self.uptime)),
            pruning=opened.store.pruning,
            health=opened.store.health,
            offload=self.offload,
        )

    async def record(self, old: int, new: int) -> None:
        """Records events, of which this many are older than 90 days."""
        requests = [happening(f"old {n}", NOON - 91 * DAY) for n in range(old)]
        requests += [happening(f"new {n}", NOON - 89 * DAY) for n in range(new)]
        receipts(await self.opened.store.record(requests))

    async def count(self) -> int:
        """The number of events."""
        return (await self.opened.store.summarize()).event_count

    def pass_by(self, time: timedelta) -> None:
        """Lets time pass on both clocks."""
        self.opened.clock.time += time
        self.uptime += time.total_seconds()


@asynccontextmanager
async def keeping(vault: Vault | None = None, clock: MovingClock | None = None) -> AsyncIterator[Kept]:
    """A store that keeps events for 90 days."""
    offload = Offload(1, "retention")
    async with open_event_store(vault, clock=clock, keep_for=KEEP_FOR) as opened:
        yield Kept(opened, offload)
    offload.close()


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    """An empty store."""
    async with keeping() as kept:
        yield kept


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The messages of the server's log."""
    logger = logging.getLogger("mnemon_server")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield caplog
    logger.setLevel(level)
    logger.removeHandler(caplog.handler)


async def told(kept: Kept, *expected: str) -> None:
    """Waits until the vault's log reports this about the timeline's health and nothing else."""
    await until(lambda: len(kept.opened.warnings()) >= len(expected))
    assert kept.opened.warnings() == list(expected)


async def test_events_older_than_the_retention_are_removed_and_the_log_counts_them(
    kept: Kept, logged: pytest.LogCaptureFixture
) -> None:
    await kept.record(old=3, new=7)

    assert await kept.retention().sweep() == 3
    assert all(content.startswith("new") for content in await kept.opened.contents())
    assert await kept.count() == 7
    assert "retention removed 3 events that happened before 2025-12-01T12:00:00+00:00" in logged.messages
    [pruned] = kept.opened.feed(ChangeType.EPISODIC_PRUNED)
    assert '"reason": "retention"' in pruned.details


async def test_an_event_of_exactly_that_age_stays(kept: Kept) -> None:
    receipts(await kept.opened.store.record([happening("just", NOON - KEEP_FOR)]))

    assert await kept.retention().sweep() == 0
    kept.pass_by(timedelta(microseconds=1))
    assert await kept.retention().sweep() == 1


async def test_a_sweep_that_would_remove_more_than_its_share_is_stopped_and_warns_once(kept: Kept) -> None:
    await kept.record(old=60, new=40)
    retention = kept.retention()
    for _ in range(3):
        assert await retention.sweep() == 0
    await told(kept, TOO_MANY)

    assert await kept.count() == 100
    status = await kept.opened.store.status()
    assert (status.state, status.message) == (EventsState.DEGRADED, TOO_MANY)
    assert "PruneEvents" in kept.opened.feed(ChangeType.EPISODIC_WARNING)[0].details


async def test_after_a_manual_pruning_it_continues_and_reports_so(kept: Kept) -> None:
    await kept.record(old=60, new=100)
    retention = kept.retention(share_max=0.25)
    await retention.sweep()
    await until(kept.opened.warnings)
    await kept.opened.store.prune(before=NOON - 90 * DAY)

    assert await retention.sweep() == 0
    await until(lambda: kept.opened.warnings()[1:] == ["healthy"])
    assert (await kept.opened.store.status()).state is EventsState.READY


async def test_a_larger_share_lets_it_continue(kept: Kept) -> None:
    await kept.record(old=60, new=40)

    assert await kept.retention(share_max=0.6).sweep() == 60


async def test_of_fewer_than_ten_events_any_share_may_be_removed(kept: Kept) -> None:
    await kept.record(old=9, new=0)

    assert await kept.retention().sweep() == 9


@pytest.mark.parametrize(("old", "new"), [(10, 0), (40, 4)])
async def test_from_ten_events_on_the_share_applies(kept: Kept, old: int, new: int) -> None:
    await kept.record(old=old, new=new)

    assert await kept.retention().sweep() == 0
    await told(kept, TOO_MANY.replace("60 of 100", f"{old} of {old + new}"))


async def test_the_number_below_which_the_share_is_ignored_is_configured(kept: Kept) -> None:
    await kept.record(old=40, new=4)

    assert await kept.retention(guarded_min=45).sweep() == 40


@pytest.mark.parametrize("hours", [2, 24 * 3650])
async def test_a_clock_that_jumped_removes_nothing_until_it_is_corrected(kept: Kept, hours: int) -> None:
    await kept.record(old=1, new=9)
    retention = kept.retention()
    await retention.sweep()
    kept.opened.clock.time += hours * HOUR
    await kept.opened.happened("just then", ago=KEEP_FOR + HOUR)
    for _ in range(2):
        assert await retention.sweep() == 0
        kept.pass_by(HOUR)
    await until(kept.opened.warnings)
    assert await kept.count() == 10

    kept.opened.clock.time -= hours * HOUR
    assert await retention.sweep() == (1 if hours == 2 else 0)
    await told(kept, AHEAD.replace("2.0", f"{hours:.1f}"), "healthy")


async def test_a_clock_that_keeps_the_new_time_is_trusted_after_a_day(kept: Kept) -> None:
    await kept.record(old=0, new=1)
    retention = kept.retention()
    await retention.sweep()
    kept.opened.clock.time += 2 * DAY
    assert await retention.sweep() == 0
    kept.pass_by(DAY)

    assert await retention.sweep() == 1


async def test_neither_a_warning_nor_distrust_of_the_clock_ends_with_a_restart() -> None:
    clock = MovingClock()
    with temporary_vault(clock) as vault:
        async with keeping(vault, clock) as kept:
            await kept.record(old=0, new=9)
            retention = kept.retention()
            await retention.sweep()
            clock.time += 2 * DAY
            assert await retention.sweep() == 0
            await until(kept.opened.warnings)
        async with keeping(vault, clock) as kept:
            await kept.opened.happened("after the restart")
            retention = kept.retention()
            assert await retention.sweep() == 0
            assert len(kept.opened.warnings()) == 1
            clock.time -= 2 * DAY
            assert await retention.sweep() == 0
            await until(lambda: kept.opened.warnings()[1:] == ["healthy"])
        async with keeping(vault, clock) as kept:
            assert await kept.retention().sweep() == 0
            assert len(kept.opened.warnings()) == 2


async def test_the_warning_of_a_disabled_retention_ends_with_the_restart() -> None:
    clock = MovingClock()
    with temporary_vault(clock) as vault:
        async with keeping(vault, clock) as kept:
            await kept.record(old=60, new=40)
            await kept.retention().sweep()
            await told(kept, TOO_MANY)
        async with open_event_store(vault, clock=clock) as opened:
            await opened.store.status()
            await opened.contents()
            await until(lambda: opened.warnings() == [TOO_MANY, "healthy"])


async def test_a_retention_longer_than_all_time_removes_nothing(kept: Kept) -> None:
    await kept.record(old=5, new=5)

    assert await kept.retention(keep_for=timedelta.max).sweep() == 0


@pytest.mark.parametrize("failure", [StorageFailedError("the disk failed"), OSError("too many open files")])
async def test_a_failing_sweep_is_retried_whatever_the_error(kept: Kept, failure: Exception) -> None:
    await kept.record(old=5, new=5)
    failures = [failure]

    def uptime() -> float:
        if failures:
            raise failures.pop()
        return kept.uptime

    async with kept.retention(interval_s=0.01, uptime=uptime):
        await until(lambda: len(kept.opened.feed(ChangeType.EPISODIC_PRUNED)) == 1)
    assert await kept.count() == 5


async def test_it_sweeps_periodically_while_open_once_the_index_is_loaded(kept: Kept) -> None:
    await kept.record(old=5, new=5)
    attempts: list[object] = []
    expired = kept.opened.timeline.expired

    def warming(*given: Any, **options: Any) -> object:
        attempts.append(given)
        if len(attempts) < 3:
            raise IndexWarmingError("the timeline is being loaded")
        return expired(*given, **options)

    kept.opened.timeline.__dict__["expired"] = warming
    async with kept.retention(interval_s=0.01):
        await until(lambda: len(kept.opened.feed(ChangeType.EPISODIC_PRUNED)) == 1)
        assert await kept.count() == 5
        kept.pass_by(2 * DAY)
        await until(lambda: len(kept.opened.feed(ChangeType.EPISODIC_PRUNED)) == 2)
    assert await kept.count() == 0
    before = len(attempts)
    await kept.record(old=1, new=0)
    assert await kept.count() == 1
    assert len(attempts) == before
