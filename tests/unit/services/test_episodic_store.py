"""Events are stored once and whole, each with its own result. Until the store is warm, only the status answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from mnemon_server.domain.errors import (
    IndexWarmingError,
    InvalidArgumentError,
    StorageFailedError,
)
from mnemon_server.domain.events import Event, EventsState, RecordEvent, WindowQuery
from mnemon_server.domain.records import Scope
from mnemon_server.wire.events import decode

from tests.support.episodic_stores import (
    MINUTE,
    OpenedEpisodic,
    episodic_vault,
    happening,
    open_event_store,
    receipts,
    said,
)
from tests.support.memory_stores import NOON, MovingClock
from tests.support.server import until


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedEpisodic]:
    """An empty store."""
    vault = episodic_vault(tmp_path / "vault", clock := MovingClock())
    async with open_event_store(vault, clock=clock) as opened:
        yield opened
    await asyncio.to_thread(vault.close)


async def stored(opened: OpenedEpisodic, request: RecordEvent) -> Event:
    """The stored event."""
    [receipt] = receipts(await opened.store.record([request]))
    return decode((await opened.store.get(receipt.event_id)).body)


# Recording


async def test_a_naive_time_is_utc_and_any_other_is_converted_to_it(opened: OpenedEpisodic) -> None:
    naive, east = datetime(2026, 2, 1, 10), datetime(2026, 2, 1, 10, tzinfo=timezone(timedelta(hours=5)))
    event = await stored(opened, happening("naive", naive, metadata={"at": naive}))
    elsewhere = await stored(opened, happening("elsewhere", east))

    assert (event.event_time, event.metadata["at"]) == (naive.replace(tzinfo=UTC), naive.replace(tzinfo=UTC))
    assert elsewhere.event_time == datetime(2026, 2, 1, 5, tzinfo=UTC)


async def test_if_all_events_are_bad_the_engine_is_not_called(opened: OpenedEpisodic) -> None:
    results = await opened.store.record([happening("bad", NOON, scope=Scope())] * 3)

    assert all(isinstance(result, InvalidArgumentError) for result in results)
    assert opened.timeline.appended == []
    assert await opened.store.record([]) == []


async def test_many_events_keep_their_order_over_several_appends(opened: OpenedEpisodic) -> None:
    requests = [happening(str(number), NOON - number * MINUTE) for number in range(2_500)]
    requests[1_700] = happening("bad", NOON, scope=Scope())

    results = await opened.store.record(requests)

    assert isinstance(results.pop(1_700), InvalidArgumentError)
    assert [result.sequence for result in receipts(results)] == list(range(1, 2_500))
    assert opened.timeline.appended == [1_000, 999, 500]


async def test_events_that_arrive_at_the_same_time_are_stored_together(opened: OpenedEpisodic) -> None:
    opened.timeline.held = []
    first = asyncio.create_task(opened.happened("first"))
    await until(lambda: opened.timeline.appended)
    others = [asyncio.create_task(opened.happened(f"event {number}")) for number in range(63)]
    for _ in range(10):
        await asyncio.sleep(0)
    opened.timeline.let_go()
    found = [receipt for task in (first, *others) for receipt in await task]

    assert opened.timeline.appended == [1, 63]
    assert [receipt.sequence for receipt in found] == list(range(1, 65))


async def test_an_event_of_a_cancelled_caller_is_stored(opened: OpenedEpisodic) -> None:
    opened.timeline.held = []
    first = asyncio.create_task(opened.happened("first"))
    gone = asyncio.create_task(opened.happened("gone"))
    await until(lambda: opened.timeline.appended)
    gone.cancel()
    await asyncio.wait([gone])
    opened.timeline.let_go()
    await first
    await opened.happened("last")

    assert gone.cancelled()
    assert sorted(await opened.contents()) == ["first", "gone", "last"]


# Reading


async def test_concurrent_reads_get_their_own_events(opened: OpenedEpisodic) -> None:
    found = await opened.happened(*map(str, range(100)))
    events = await asyncio.gather(*(opened.store.get(receipt.event_id) for receipt in found))

    assert said(events) == list(map(str, range(100)))


# Status


async def test_until_it_is_warm_only_the_status_answers(opened: OpenedEpisodic) -> None:
    await opened.happened("before")
    opened.timeline.is_warm = False
    store = opened.store
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.record([happening("x", NOON)]),
        lambda: store.get("x"),
        lambda: store.window(WindowQuery()),
        store.recent,
        store.summarize,
        lambda: store.prune(before=NOON),
        lambda: anext(store.compact()),
    ]
    assert not store.is_warm
    for call in calls:
        with pytest.raises(IndexWarmingError) as refusal:
            await call()
        assert refusal.value.retry_after_s > 0
    assert (await store.status()).event_count == 1
    opened.timeline.is_warm = True
    assert store.is_warm
    assert await opened.contents() == ["before"]


async def test_the_status_never_raises(opened: OpenedEpisodic) -> None:
    def broken() -> None:
        raise StorageFailedError("the disk is gone")

    opened.timeline.__dict__["status"] = broken
    status = await opened.store.status()

    assert status.state is EventsState.UNAVAILABLE
    assert status.message == "the timeline cannot be read; the log says why"
