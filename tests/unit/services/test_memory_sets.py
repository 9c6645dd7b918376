"""Which memories a filter selects, over both kinds of vault: purges, pages, forecasts and counts."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.confidence import DEFAULT_DECAY, oldest_age
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    MnemonError,
    RequestIdReusedError,
)
from mnemon_server.domain.filters import AllOf, Condition, NoneOf, Operator
from mnemon_server.domain.memories import (
    CreateMemory,
    Decay,
    DecayCurve,
    DecayPolicy,
    Memory,
    MemoryFilter,
)
from mnemon_server.domain.records import Scope
from mnemon_server.services.search.settings import VectorBackend

from tests.support.memory_stores import ADA, NOON, Opened, fields_of, open_memories
from tests.support.vaults import DIMENSION

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
    assert [memory.memory_id for memory in (await opened.store.list(limit=9, show_deleted=True)).memories] == [
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


async def test_pages_are_in_the_order_of_creation_and_neither_skip_nor_repeat(opened: Opened) -> None:
    wanted = [(await opened.remember(f"memory {i}", type="odd" if i % 2 else "even")).memory_id for i in range(130)]
    seen: list[str] = []
    position: int | None = 0
    while position is not None:
        page = await opened.store.list(after=position, limit=60)
        seen += [memory.memory_id for memory in page.memories]
        position = page.next_position
    assert seen == wanted
    odd = await opened.store.list(MemoryFilter(type="odd"), limit=100)
    assert [memory.memory_id for memory in odd.memories] == wanted[1::2]
    assert odd.next_position is None


async def test_a_page_ends_before_the_message_limit(opened: Opened) -> None:
    vector = (1.0,) * DIMENSION
    large = [CreateMemory(memory=Memory("", "x" * (1 << 20)), embedding=vector) for _ in range(4)]
    assert not any(isinstance(result, MnemonError) for result in await opened.store.create_many(large))
    page = await opened.store.list(limit=100)
    assert len(page.memories) == 2  # with their other fields, three would exceed three mebibytes
    assert page.next_position is not None
    assert len((await opened.store.list(after=page.next_position, limit=100)).memories) == 2


FILTERS: list[tuple[MemoryFilter, set[str]]] = [
    (MemoryFilter(), {"ada", "bob", "old"}),
    (MemoryFilter(scope=Scope(agent="claude")), {"ada", "old"}),
    (MemoryFilter(scope=Scope(agent="claude", project="apollo")), {"ada"}),
    (MemoryFilter(personality="engineer"), {"ada"}),
    (MemoryFilter(type="fact"), {"bob", "old"}),
    (MemoryFilter(is_global=True), {"ada"}),
    (MemoryFilter(is_global=False), {"bob", "old"}),
    (MemoryFilter(metadata={"rank": 5}), {"ada", "bob"}),
    (MemoryFilter(metadata={"rank": 5.0}), {"ada", "bob"}),
    (MemoryFilter(metadata={"rank": 5, "topic": "code"}), {"ada"}),
    (MemoryFilter(metadata={"rank": 5, "topic": "tea"}), set()),
    (MemoryFilter(created_from=NOON), {"ada", "bob"}),
    (MemoryFilter(created_from=NOON + timedelta(microseconds=1)), set()),
    (MemoryFilter(created_to=NOON - timedelta(hours=1)), {"old"}),
    (MemoryFilter(created_to=(NOON - timedelta(hours=336)).replace(tzinfo=None)), {"old"}),
    (MemoryFilter(reinforced_from=NOON), {"old"}),
    (MemoryFilter(reinforced_to=NOON), {"old"}),
    (MemoryFilter(reinforced_to=NOON - timedelta(microseconds=1)), set()),
    (MemoryFilter(min_confidence=0.5), {"ada", "bob", "old"}),
    (MemoryFilter(expression=condition("decay_policy", Operator.IN, "stable", "contextual")), {"bob"}),
    (MemoryFilter(expression=condition("metadata.rank", Operator.GTE, 5)), {"ada", "bob"}),
    (MemoryFilter(expression=condition("is_global", Operator.EQ, True)), {"ada"}),
    (MemoryFilter(expression=condition("reinforce_time", Operator.EXISTS, False)), {"ada", "bob"}),
    (MemoryFilter(expression=condition("content", Operator.CONTAINS, "%")), set()),
    (
        MemoryFilter(type="fact", expression=NoneOf((condition("agent", Operator.EQ, "claude"),))),
        {"bob"},
    ),
    (
        MemoryFilter(expression=AllOf((condition("create_time", Operator.LT, datetime(2026, 3, 1)),))),
        {"old"},
    ),
]


async def test_each_filter_selects_the_right_memories(tmp_path: Path) -> None:
    async with open_memories(tmp_path / "vault") as opened:
        opened.clock.pass_hours(-336)
        old = await opened.remember("old", type="fact", scope=Scope(agent="claude"), decay_policy=REINFORCEABLE)
        opened.clock.pass_hours(336)
        await opened.store.reinforce(old.memory_id)
        await opened.store.create(CreateMemory(memory=replace(ADA, content="ada")))
        await opened.remember("bob", type="fact", metadata={"rank": 5.0})
        for where, expected in FILTERS:
            found = await opened.store.list(where, limit=10)
            assert {memory.content for memory in found.memories} == expected, where
            assert await opened.store.count(where) == len(expected), where
        by_id = MemoryFilter(expression=condition("memory_id", Operator.EQ, old.memory_id))
        assert await opened.store.count(by_id) == 1


async def test_a_bad_filter_is_refused_and_the_field_is_named(opened: Opened) -> None:
    cases = [
        (MemoryFilter(scope=Scope(user="u" * 257)), "filter.scope.user"),
        (MemoryFilter(type="t" * 257), "filter.type"),
        (MemoryFilter(min_confidence=1.5), "filter.min_confidence"),
        (MemoryFilter(min_confidence=float("nan")), "filter.min_confidence"),
        (MemoryFilter(metadata={"$ne": "x"}), "filter.metadata"),
        (MemoryFilter(metadata={"k": float("nan")}), "filter.metadata.k"),
        (MemoryFilter(expression=condition("delete_time", Operator.EXISTS, True)), "filter.filter.condition.field"),
        (MemoryFilter(expression=condition("id", Operator.EQ, "x")), "filter.filter.condition.field"),
    ]
    for where, field in cases:
        for call in (opened.store.count(where), opened.store.list(where, limit=1), opened.store.purge(where)):
            with pytest.raises(InvalidArgumentError) as caught:
                await call
            assert fields_of(caught.value) == [field]


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
                assert len(fading.forecasts) == (not has_it)


async def test_a_forecast_lists_the_memories_that_will_fade_and_when(opened: Opened) -> None:
    await opened.remember("stays")
    week = await opened.remember("week", decay_policy=CONTEXTUAL)
    month = await opened.remember("month", decay_policy=REINFORCEABLE)
    by = NOON + timedelta(hours=168)
    assert (await opened.store.forecast(min_confidence=0.5, by=by, limit=9)).forecasts == ()
    [fading] = (await opened.store.forecast(min_confidence=0.5, by=by + timedelta(microseconds=1), limit=9)).forecasts
    assert fading.memory == week
    assert fading.fade_time == by + timedelta(microseconds=1)
    assert fading.confidence_then < 0.5
    assert fading.memory.confidence == 1.0

    later = await opened.store.forecast(min_confidence=0.5, by=NOON + timedelta(hours=1440), limit=1)
    assert [forecast.memory.memory_id for forecast in later.forecasts] == [week.memory_id]
    assert later.next_position is not None
    rest = await opened.store.forecast(
        min_confidence=0.5, by=NOON + timedelta(hours=1440), after=later.next_position, limit=5
    )
    [forecast] = rest.forecasts
    assert (forecast.memory.memory_id, forecast.confidence_then) == (month.memory_id, 0.25)

    opened.clock.pass_hours(500)
    [faded] = (await opened.store.forecast(min_confidence=0.5, by=NOON, limit=9)).forecasts
    assert (faded.memory.memory_id, faded.fade_time) == (week.memory_id, fading.fade_time)
    assert (await opened.store.forecast(MemoryFilter(type="x"), by=NOON, limit=9)).forecasts == ()


@pytest.mark.parametrize("bound", [0.0, -0.1, 1.01, float("nan")])
async def test_a_forecast_needs_a_positive_threshold(opened: Opened, bound: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await opened.store.forecast(min_confidence=bound, by=NOON, limit=1)
    assert fields_of(caught.value) == ["min_confidence"]


async def test_the_status_counts_stored_and_deleted_memories(opened: Opened) -> None:
    for text in ("one", "two", "three"):
        memory = await opened.remember(text)
    await opened.store.delete(memory.memory_id)
    status = await opened.store.status()
    assert (status.status, status.error, status.backend, status.host) == ("healthy", "", "local", "embedded")
    assert (status.memory_count, status.deleted_count, status.flat_count) == (2, 1, 2)


async def test_the_status_of_unreadable_records_reports_it_and_does_not_raise(tmp_path: Path) -> None:
    async with open_memories(tmp_path / "vault", backend=VectorBackend(collection="facts")) as opened:
        opened.vault.close()
        status = await opened.store.status()
    assert (status.status, status.backend, status.collection) == ("unhealthy", "local", "facts")
    assert status.error
