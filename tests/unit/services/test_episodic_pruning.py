"""Pruning removes what was asked for, counts it once even after an interruption, and names it in the feed."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import (
    EventNotFoundError,
    InvalidArgumentError,
    RequestIdReusedError,
    StorageFailedError,
)
from mnemon_server.domain.events import EventSelection, PrunedEvents, StoredEvent
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.events import pruning as episodic_pruning

from tests.support.episodic_stores import (
    ADA,
    BOB,
    DAY,
    HOUR,
    MINUTE,
    OpenedEpisodic,
    episodic_vault,
    happening,
    open_event_store,
    receipts,
)
from tests.support.memory_stores import NOON, MovingClock
from tests.support.server import eventually, until

STEP = 4
BOBS = EventSelection(scope=BOB)


@pytest.fixture
async def vault(tmp_path: Path) -> AsyncIterator[Vault]:
    """A vault with short segments."""
    vault = episodic_vault(tmp_path / "vault", MovingClock(), segment_events_max=3)
    yield vault
    await asyncio.to_thread(vault.close)


@pytest.fixture
async def opened(vault: Vault) -> AsyncIterator[OpenedEpisodic]:
    """Ten events of Ada's, from "0", one hour old, to "9", ten hours old, and one of Bob's, in segments of three."""
    async with open_event_store(vault) as opened:
        await fill(opened)
        yield opened


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of four events, read two at a time."""
    monkeypatch.setattr(episodic_pruning, "STEP", STEP)
    monkeypatch.setattr(episodic_pruning, "READ", 2)


async def fill(opened: OpenedEpisodic) -> None:
    """Records the events."""
    requests = [happening(str(n), NOON - (n + 1) * HOUR, event_id=str(n)) for n in range(10)]
    receipts(await opened.store.record([*requests, happening("bob's", NOON - 5 * HOUR, scope=BOB, event_id="bob")]))


async def left(opened: OpenedEpisodic, count: int) -> bool:
    """Whether this many events are stored."""
    return len(await opened.contents()) == count


def pruned_in_feed(opened: OpenedEpisodic) -> list[str]:
    """The ids of all events that the feed reports as pruned."""
    events = opened.feed(ChangeType.EPISODIC_PRUNED)
    return sorted(event_id for event in events for event_id, _ in json.loads(event.details)["events"])


async def test_ids_are_pruned_once_and_missing_ones_are_skipped_on_request(
    opened: OpenedEpisodic,
) -> None:
    pruned = await opened.store.prune(event_ids=["3", "unknown", "3", "bob"], allow_missing=True)

    assert (pruned.count, pruned.event_ids) == (2, ("3", "bob"))
    assert (await opened.store.prune(event_ids=["3"], allow_missing=True)).count == 0


@pytest.mark.parametrize("dry_run", [True, False])
async def test_missing_ids_are_named_and_nothing_is_pruned(opened: OpenedEpisodic, *, dry_run: bool) -> None:
    with pytest.raises(EventNotFoundError, match=r"^no event has the id 'unknown'$"):
        await opened.store.prune(event_ids=["3", "unknown", "bob"], dry_run=dry_run)
    with pytest.raises(EventNotFoundError) as several:
        await opened.store.prune(event_ids=["3", *"abcdef"], dry_run=dry_run)

    assert several.value.ids == (*"abcdef",)
    assert str(several.value) == "no event has the id 'a' or 'b' or 'c' or 'd' or 'e'; 6 of the ids are missing"
    assert len(await opened.contents()) == 11


@pytest.mark.usefixtures("short_steps")
async def test_ids_pruned_by_the_first_attempt_of_a_call_are_not_missing_in_the_second(
    opened: OpenedEpisodic, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [str(n) for n in range(10)]
    monkeypatch.setattr(episodic_pruning, "PAUSE_S", 60.0)
    cut_off = asyncio.create_task(opened.store.prune(event_ids=ids, request_id="ids"))
    await eventually(lambda: left(opened, 11 - STEP))
    cut_off.cancel()
    monkeypatch.undo()

    again = await opened.store.prune(event_ids=ids, request_id="ids")
    assert (again.count, again.replayed) == (10, False)
    assert (await opened.store.prune(event_ids=ids, request_id="ids")).replayed
    with pytest.raises(RequestIdReusedError):
        await opened.store.prune(event_ids=ids, request_id="ids", allow_missing=True)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("filter", {}),
        ("filter", {"where": EventSelection()}),
        ("event_ids", {"event_ids": ["1"], "before": NOON}),
        ("request_id", {"before": NOON, "request_id": "x" * 129}),
    ],
)
async def test_an_empty_or_invalid_request_removes_nothing(
    opened: OpenedEpisodic, field: str, asked: dict[str, Any]
) -> None:
    for dry_run in (True, False):
        with pytest.raises(InvalidArgumentError) as refusal:
            await opened.store.prune(dry_run=dry_run, **asked)
        assert [violation.field for violation in refusal.value.violations] == [field]
    assert len(await opened.contents()) == 11


async def test_many_events_are_pruned_in_bounded_steps_and_the_first_thousand_are_named() -> None:
    async with open_event_store() as opened:
        many = [happening("x", NOON - DAY - n * MINUTE, event_id=f"m{n:04}") for n in range(4_100)]
        receipts(await opened.store.record(many))
        pruned = await opened.store.prune(before=NOON - DAY + MINUTE, request_id="r")

        assert opened.timeline.pruned == [2_000, 2_000, 100]
        assert (pruned.count, pruned.event_ids) == (4_100, tuple(f"m{n:04}" for n in range(1_000)))
        assert (pruned.earliest, pruned.latest) == (NOON - DAY - 4_099 * MINUTE, NOON - DAY)
        assert len(pruned_in_feed(opened)) == 4_100
        again = await opened.store.prune(before=NOON - DAY + MINUTE, request_id="r")
        assert again == replace(pruned, replayed=True)


async def test_a_step_of_large_events_ends_early(opened: OpenedEpisodic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodic_pruning, "READ", 2)
    monkeypatch.setattr(episodic_pruning, "READ_BYTES_MAX", 250_000)
    large = [happening(f"{n}" * 100_000, NOON - DAY, event_id=f"m{n}") for n in range(6)]
    receipts(await opened.store.record(large))

    assert (await opened.store.prune(before=NOON - DAY + MINUTE)).count == 6
    assert opened.timeline.pruned == [4, 2]


# Repeated requests


async def test_a_request_that_found_nothing_finds_nothing_when_repeated(opened: OpenedEpisodic) -> None:
    nobody = EventSelection(event_types=frozenset({"task"}))
    assert await opened.store.prune(where=nobody, request_id="r") == PrunedEvents(0)
    await opened.happened("a task", event_type="task")

    assert await opened.store.prune(where=nobody, request_id="r") == PrunedEvents(0, replayed=True)
    assert "a task" in await opened.contents()


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_request_repeated_after_a_crash_continues_and_counts_every_event_once(vault: Vault, steps: int) -> None:
    asked = EventSelection(scope=ADA, event_types=frozenset({"conversation", "task"}))
    async with open_event_store(vault) as opened:
        await fill(opened)
        opened.timeline.prunings_left, opened.timeline.prune_error = steps, StorageFailedError("the disk failed")
        with pytest.raises(StorageFailedError):
            await opened.store.prune(where=asked, request_id="r")
        assert len(await opened.contents()) == 11 - steps * STEP
        if steps:
            await opened.happened("said since")
    async with open_event_store(vault) as opened:
        if steps:
            with pytest.raises(RequestIdReusedError, match="request_id 'r' was used"):
                await opened.store.prune(where=BOBS, request_id="r")
        pruned = await opened.store.prune(where=asked, request_id="r")

        assert pruned == PrunedEvents(10, tuple("0123456789"), NOON - 10 * HOUR, NOON - HOUR, segment_count=4)
        assert sorted(await opened.contents()) == sorted(["bob's"] + ["said since"] * bool(steps))
        assert pruned_in_feed(opened) == list("0123456789")
        assert await opened.store.prune(where=asked, request_id="r") == replace(pruned, replayed=True)


@pytest.mark.usefixtures("short_steps")
async def test_a_request_repeated_during_the_first_call_waits_for_its_answer(
    opened: OpenedEpisodic,
) -> None:
    everything = EventSelection(scope=ADA)
    calls = [opened.store.prune(where=everything, request_id="r") for _ in range(3)]
    # Which of the three goes first is open.
    first, *others = sorted(await asyncio.gather(*calls), key=lambda answer: answer.replayed)

    assert (first.count, first.replayed) == (10, False)
    assert others == [replace(first, replayed=True)] * 2
    assert opened.timeline.pruned == [4, 4, 2]


@pytest.mark.usefixtures("short_steps")
async def test_concurrent_prunings_count_no_event_twice(opened: OpenedEpisodic) -> None:
    calls = [opened.store.prune(where=EventSelection(scope=ADA), request_id=name) for name in ("r", "s", "")]
    found = await asyncio.gather(*calls)

    assert sum(pruned.count for pruned in found) == 10
    assert sorted(event_id for pruned in found for event_id in pruned.event_ids) == list("0123456789")
    assert pruned_in_feed(opened) == list("0123456789")


@pytest.mark.usefixtures("short_steps")
async def test_a_cancelled_call_ends_after_a_step_and_can_be_continued_later(opened: OpenedEpisodic) -> None:
    everything = EventSelection(scope=ADA)
    prune = opened.timeline.prune

    def prune_for_one_who_leaves(*given: Any, **options: Any) -> "Future[int]":
        task.cancel()
        return prune(*given, **options)

    opened.timeline.__dict__["prune"] = prune_for_one_who_leaves
    task = asyncio.create_task(opened.store.prune(where=everything, request_id="r"))
    await asyncio.wait([task])
    del opened.timeline.__dict__["prune"]

    assert task.cancelled()
    # The step that has begun may be committed a moment later.
    await eventually(lambda: left(opened, 11 - STEP))
    pruned = await opened.store.prune(where=everything, request_id="r")
    assert (pruned.count, pruned.replayed, opened.timeline.pruned) == (10, False, [4, 4, 2])
    assert await opened.contents() == ["bob's"]


@pytest.mark.usefixtures("short_steps")
async def test_a_step_of_a_cancelled_call_finishes_before_another_pruning_reads(opened: OpenedEpisodic) -> None:
    prune, held = opened.timeline.prune, []

    def prune_late(*given: Any, **options: Any) -> "Future[int]":
        late: Future[int] = Future()
        held.append(lambda: late.set_result(prune(*given, **options).result()))
        return late

    opened.timeline.__dict__["prune"] = prune_late
    gone = asyncio.create_task(opened.store.prune(where=EventSelection(scope=ADA)))
    await until(lambda: held)
    gone.cancel()
    await asyncio.wait([gone])
    del opened.timeline.__dict__["prune"]
    later = asyncio.create_task(opened.store.prune(where=EventSelection(scope=ADA)))
    # If nothing held it back, it would be done by then.
    await asyncio.wait([later], timeout=0.5)
    [go_on] = held
    go_on()

    assert (await later).event_ids == tuple("456789")


@pytest.mark.usefixtures("short_steps")
async def test_events_recorded_during_a_pruning_stay(opened: OpenedEpisodic) -> None:
    read = opened.timeline.read
    said = []

    def read_slowly(sequences: list[int], *, bytes_max: int) -> list[StoredEvent]:
        if not said:
            said.append(opened.timeline.append)
            asyncio.run_coroutine_threadsafe(opened.happened("meanwhile", ago=2 * DAY), loop).result(60)
        found: list[StoredEvent] = read(sequences, bytes_max=bytes_max)
        return found

    loop = asyncio.get_running_loop()
    opened.timeline.__dict__["read"] = read_slowly

    assert (await opened.store.prune(before=NOON)).count == 11
    assert await opened.contents() == ["meanwhile"]


async def test_times_are_compared_to_the_microsecond(opened: OpenedEpisodic) -> None:
    assert (await opened.store.prune(before=NOON - 10 * HOUR)).count == 0
    assert (await opened.store.prune(before=NOON - 10 * HOUR + timedelta(microseconds=1))).event_ids == ("9",)
