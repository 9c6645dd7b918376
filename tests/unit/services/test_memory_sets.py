"""Purges, forecasts and thresholds of confidence."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.confidence import DEFAULT_DECAY, oldest_age
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    RequestIdReusedError,
)
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.memories import (
    Decay,
    DecayCurve,
    DecayPolicy,
    MemoryFilter,
)
from mnemon_server.services.search.settings import VectorBackend

from tests.support.memory_stores import NOON, Opened, open_memories

STABLE, REINFORCEABLE, CONTEXTUAL = DecayPolicy.STABLE, DecayPolicy.REINFORCEABLE, DecayPolicy.CONTEXTUAL


def condition(field: str, operator: Operator, *values: Any) -> Condition:
    return Condition(field, operator, values)


async def test_a_purge_deletes_matching_memories_deleted_or_not_and_a_dry_run_none(opened: Opened) -> None:
    kept = await opened.remember("kept", type="fact")
    gone = [await opened.remember(text, type="note") for text in ("one", "two")]
    await opened.store.delete(gone[0].memory_id)
    where = MemoryFilter(type="note")
    assert (await opened.store.purge(where, dry_run=True)).deleted_count == 2
    assert (await opened.store.purge(where, only_deleted=True, dry_run=True)).deleted_count == 1
    assert await opened.store.count(show_deleted=True) == 3
    first = await opened.store.purge(where, request_id="p")
    assert (first.deleted_count, first.replayed) == (2, False)
    assert [memory.memory_id for memory in (await opened.store.list(limit=9, show_deleted=True)).items] == [
        kept.memory_id
    ]
    await opened.remember("three", type="note")
    again = await opened.store.purge(where, request_id="p")
    assert (again.deleted_count, again.replayed) == (2, True)
    with pytest.raises(RequestIdReusedError):
        await opened.store.purge(MemoryFilter(type="fact"), request_id="p")
    with pytest.raises(InvalidArgumentError, match="only_deleted"):
        await opened.store.purge(MemoryFilter())
    await opened.store.delete(kept.memory_id)
    assert (await opened.store.purge(MemoryFilter(), only_deleted=True)).deleted_count == 1
    assert await opened.store.count(show_deleted=True) == 1


async def test_a_purge_by_confidence_can_be_repeated(opened: Opened) -> None:
    await opened.remember("fades", decay_policy=CONTEXTUAL)
    where = MemoryFilter(min_confidence=0.4)
    assert (await opened.store.purge(where, request_id="p")).deleted_count == 1
    opened.clock.pass_hours(2)
    assert (await opened.store.purge(where, request_id="p")).replayed


@pytest.mark.parametrize("curve", DecayCurve)
@pytest.mark.parametrize("bound", [0.05, 1 / 3, 0.5, 0.7, 0.999999, 1.0])
async def test_a_confidence_threshold_agrees_with_the_confidence_that_is_read(
    curve: DecayCurve, bound: float, tmp_path: Path
) -> None:
    decays = {policy: Decay(decay.half_life, curve) for policy, decay in DEFAULT_DECAY.items()}
    async with open_memories(tmp_path / "vault", decay=decays) as opened:
        memories = [await opened.remember(policy.value, decay_policy=policy) for policy in decays]
        opened.clock.pass_hours(5)
        await opened.store.reinforce(memories[0].memory_id)
        for memory, begins in zip(memories, (opened.clock.time, NOON), strict=True):
            oldest = oldest_age(decays[memory.decay_policy], bound)
            assert oldest is not None
            kept = MemoryFilter(min_confidence=bound, expression=condition("memory_id", Operator.EQ, memory.memory_id))
            for microseconds in (-1, 0, 1, 2):
                opened.clock.time = begins + oldest + timedelta(microseconds=microseconds)
                has_it = (await opened.store.get(memory.memory_id)).confidence >= bound
                assert has_it == (microseconds <= 0)
                assert await opened.store.count(kept) == has_it
                fading = await opened.store.forecast(
                    min_confidence=bound, by=opened.clock.time, limit=5, where=replace(kept, min_confidence=0.0)
                )
                assert len(fading.items) == (not has_it)


async def test_a_forecast_lists_the_memories_that_will_fade_and_when(opened: Opened) -> None:
    await opened.remember("stays")
    week = await opened.remember("week", decay_policy=CONTEXTUAL)
    month = await opened.remember("month", decay_policy=REINFORCEABLE)
    by = NOON + timedelta(hours=168)
    assert (await opened.store.forecast(min_confidence=0.5, by=by, limit=9)).items == ()
    [fading] = (await opened.store.forecast(min_confidence=0.5, by=by + timedelta(microseconds=1), limit=9)).items
    assert fading.memory == week
    assert fading.fade_time == by + timedelta(microseconds=1)
    assert fading.confidence_then < 0.5
    assert fading.memory.confidence == 1.0

    later = await opened.store.forecast(min_confidence=0.5, by=NOON + timedelta(hours=1440), limit=1)
    assert [forecast.memory.memory_id for forecast in later.items] == [week.memory_id]
    assert later.next_position is not None
    rest = await opened.store.forecast(
        min_confidence=0.5, by=NOON + timedelta(hours=1440), after=later.next_position, limit=5
    )
    [forecast] = rest.items
    assert (forecast.memory.memory_id, forecast.confidence_then) == (month.memory_id, 0.25)

    opened.clock.pass_hours(500)
    [faded] = (await opened.store.forecast(min_confidence=0.5, by=NOON, limit=9)).items
    assert (faded.memory.memory_id, faded.fade_time) == (week.memory_id, fading.fade_time)
    assert (await opened.store.forecast(MemoryFilter(type="x"), by=NOON, limit=9)).items == ()


async def test_the_status_of_unreadable_records_reports_it_and_does_not_raise(tmp_path: Path) -> None:
    async with open_memories(tmp_path / "vault", backend=VectorBackend(collection="facts")) as opened:
        opened.vault.close()
        status = await opened.store.status()
    assert (status.status, status.backend, status.collection) == ("unhealthy", "local", "facts")
    assert status.error
