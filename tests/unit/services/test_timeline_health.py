"""When events cannot be stored, or only slowly, the status and the log report it, and report when it is over."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import InvalidArgumentError, MnemonError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import EventsState
from mnemon_server.domain.records import Scope
from mnemon_server.services.background.health_signal import Problem
from mnemon_server.services.writing.write_pressure import SAMPLES_MIN, WriteLatency

from tests.support.episodic_stores import OpenedEpisodic, happening, open_event_store
from tests.support.memory_stores import NOON, MovingClock
from tests.support.semantic_stores import details
from tests.support.server import eventually, until
from tests.support.vaults import temporary_vault

FULL = "events cannot be stored: the disk is full"
SLOW = "storing an event takes longer than the target of 0.05 s"


@pytest.fixture
async def opened() -> AsyncIterator[OpenedEpisodic]:
    """An empty store."""
    async with open_event_store() as opened:
        yield opened


async def state(opened: OpenedEpisodic) -> tuple[EventsState, str]:
    """The state in the status."""
    status = await opened.store.status()
    return status.state, status.message


async def fail(opened: OpenedEpisodic, error: MnemonError) -> None:
    """Records an event, which fails."""
    opened.timeline.append_error = error
    [result] = await opened.store.record([happening("x", NOON)])
    assert isinstance(result, type(error))


def is_told(opened: OpenedEpisodic, *expected: str) -> Callable[[], bool]:
    """Whether the log reports this and nothing else."""

    def check() -> bool:
        found = opened.warnings()
        assert found == list(expected)[: len(found)]
        return len(found) == len(expected)

    return check


@pytest.mark.parametrize("error", [StorageFullError("the disk is full"), StorageFailedError("the disk is full")])
async def test_a_disk_that_refuses_writes_is_reported_once_and_so_is_its_recovery(
    opened: OpenedEpisodic, error: MnemonError
) -> None:
    await opened.happened("before")
    for _ in range(3):
        await fail(opened, error)
    await until(is_told(opened, FULL))
    assert await state(opened) == (EventsState.DEGRADED, FULL)
    [warning] = opened.feed(ChangeType.EPISODIC_WARNING)
    assert warning.record_id == "timeline"
    assert details(warning)["severity"] == "critical"
    assert details(warning)["remediation"]
    opened.timeline.append_error = None
    await opened.happened("after")

    await until(is_told(opened, FULL, "healthy"))
    assert await state(opened) == (EventsState.READY, "")
    assert sorted(await opened.contents()) == ["after", "before"]


async def test_a_warning_is_logged_as_soon_as_possible(opened: OpenedEpisodic) -> None:
    await opened.happened("before")
    transact, attempts = opened.vault.transact, []

    def full(*given: object, **options: object) -> object:
        attempts.append(given)
        if len(attempts) < 2:
            raise StorageFullError("the disk is full")
        return transact(*given, **options)  # type: ignore[arg-type]

    opened.vault.transact = full  # type: ignore[method-assign,assignment]
    await fail(opened, StorageFullError("the disk is full"))

    await until(is_told(opened, FULL))
    assert len(attempts) == 2


async def test_bad_events_and_reused_request_ids_do_not_affect_the_health(opened: OpenedEpisodic) -> None:
    await opened.happened("a", request_id="r")
    for _ in range(2 * SAMPLES_MIN):
        await opened.store.record([happening("bad", NOON, scope=Scope())])
        await opened.store.record([happening("other", NOON, request_id="r")])
    with pytest.raises(InvalidArgumentError):
        await opened.store.get("")

    assert await state(opened) == (EventsState.READY, "")
    await opened.store.aclose()
    assert opened.warnings() == []


async def test_a_bad_event_does_not_mean_that_the_disk_has_recovered(opened: OpenedEpisodic) -> None:
    await fail(opened, StorageFullError("the disk is full"))
    await opened.store.record([happening("bad", NOON, scope=Scope())])

    assert await state(opened) == (EventsState.DEGRADED, FULL)


async def test_slow_events_are_reported_and_none_is_throttled() -> None:
    async with open_event_store(write_latency=WriteLatency(0.05, 0.3)) as opened:
        opened.timeline.held = []
        slow = [asyncio.create_task(opened.happened(f"slow {n}")) for n in range(2 * SAMPLES_MIN)]
        await until(lambda: opened.timeline.appended)

        async def is_degraded() -> bool:
            return await state(opened) == (EventsState.DEGRADED, SLOW)

        await eventually(is_degraded)
        opened.timeline.let_go()
        assert len(await asyncio.gather(*slow)) == 2 * SAMPLES_MIN
        await until(is_told(opened, SLOW))

        async def is_ready() -> bool:
            return await state(opened) == (EventsState.READY, "")

        await eventually(is_ready)
        await until(is_told(opened, SLOW, "healthy"))


async def test_an_additional_problem_is_reported_too(opened: OpenedEpisodic) -> None:
    await fail(opened, StorageFullError("the disk is full"))
    await until(is_told(opened, FULL))
    opened.store.health.report("retention", Problem("retention", "retention is stopped", "prune by hand"))
    both = f"retention is stopped; {FULL}"
    await until(is_told(opened, FULL, both))
    assert await state(opened) == (EventsState.DEGRADED, both)
    opened.timeline.append_error = None
    await opened.happened("after")
    await until(is_told(opened, FULL, both, "retention is stopped"))
    opened.store.health.report("retention", None)

    await until(is_told(opened, FULL, both, "retention is stopped", "healthy"))


async def test_the_end_of_a_warning_is_logged_even_after_a_restart() -> None:
    with temporary_vault(MovingClock()) as vault:
        async with open_event_store(vault) as opened:
            await fail(opened, StorageFullError("the disk is full"))
            await until(is_told(opened, FULL))
        async with open_event_store(vault) as opened:
            await opened.happened("after")
            await until(is_told(opened, FULL, "healthy"))
        async with open_event_store(vault) as opened:
            await opened.happened("later")
            await opened.store.status()
        assert len(opened.warnings()) == 2
