"""Events are stored once and whole, each with its own result. Until the store is warm, only the status answers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import (
    EventNotFoundError,
    IndexWarmingError,
    InvalidArgumentError,
    RequestIdReusedError,
    StorageFailedError,
)
from mnemon_server.domain.events import Event, EventReceipt, EventsState, RecordEvent, WindowQuery
from mnemon_server.domain.records import Scope
from mnemon_server.wire.events import decode

from tests.support.episodic_stores import (
    ADA,
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


async def test_an_event_comes_back_as_it_was_given(opened: OpenedEpisodic) -> None:
    given = Event(
        "lunch",
        "task",
        NOON - MINUTE,
        "Ada had lunch.",
        "in the garden",
        Scope("ada", "home", "cook", "agent", "project"),
        0.25,
        "user",
        {"guests": 3, "dishes": ("soup", "bread"), "until": NOON, "good": True, "price": 4.5, "place": "garden"},
    )

    kept = await stored(opened, RecordEvent(given))

    given.record_time = NOON
    assert kept == given


async def test_the_server_assigns_an_id_if_none_is_given(opened: OpenedEpisodic) -> None:
    results = receipts(await opened.store.record([happening(f"event {number}", NOON) for number in range(300)]))

    ids = {uuid.UUID(result.event_id) for result in results}
    assert len(ids) == 300
    assert {(drawn.version, drawn.variant) for drawn in ids} == {(4, uuid.RFC_4122)}
    assert all(str(uuid.UUID(result.event_id)) == result.event_id for result in results)


async def test_a_naive_time_is_utc_and_any_other_is_converted_to_it(opened: OpenedEpisodic) -> None:
    naive, east = datetime(2026, 2, 1, 10), datetime(2026, 2, 1, 10, tzinfo=timezone(timedelta(hours=5)))
    event = await stored(opened, happening("naive", naive, metadata={"at": naive}))
    elsewhere = await stored(opened, happening("elsewhere", east))

    assert (event.event_time, event.metadata["at"]) == (naive.replace(tzinfo=UTC), naive.replace(tzinfo=UTC))
    assert elsewhere.event_time == datetime(2026, 2, 1, 5, tzinfo=UTC)


async def test_a_bad_event_fails_alone(opened: OpenedEpisodic) -> None:
    good, bad = happening("good", NOON), happening("bad", NOON, event_type="", importance=7.0)
    results = await opened.store.record([good, bad, happening("also good", NOON)])

    assert isinstance(results[1], InvalidArgumentError)
    assert [violation.field for violation in results[1].violations] == ["event.event_type", "event.importance"]
    assert isinstance(results[0], EventReceipt)
    assert isinstance(results[2], EventReceipt)
    assert sorted(await opened.contents()) == ["also good", "good"]


async def test_if_all_events_are_bad_the_engine_is_not_called(opened: OpenedEpisodic) -> None:
    results = await opened.store.record([happening("bad", NOON, scope=Scope())] * 3)

    assert all(isinstance(result, InvalidArgumentError) for result in results)
    assert opened.timeline.appended == []
    assert await opened.store.record([]) == []


async def test_the_same_event_is_stored_once(opened: OpenedEpisodic) -> None:
    [first] = await opened.happened("lunch")
    [again] = await opened.happened("lunch")
    [same_id] = receipts(await opened.store.record([happening("other", NOON, event_id=first.event_id)]))
    [other_persona] = await opened.happened("lunch", scope=Scope("ada", persona="cook"))

    assert not first.duplicate
    assert (again.event_id, again.duplicate) == (first.event_id, True)
    assert (same_id.event_id, same_id.duplicate) == (first.event_id, True)
    assert not other_persona.duplicate
    assert await opened.contents() == ["lunch", "lunch"]
    assert len(opened.feed(ChangeType.EPISODIC_SAVED)) == 2


async def test_a_repeated_request_gets_the_first_answer_and_a_different_one_is_refused(opened: OpenedEpisodic) -> None:
    lunch = happening("lunch", NOON, request_id="r", metadata={"a": 1, "b": 2})
    [first] = receipts(await opened.store.record([lunch]))
    opened.clock.pass_hours(1)
    reordered = happening("lunch", NOON, request_id="r", metadata={"b": 2, "a": 1})
    [again] = receipts(await opened.store.record([reordered]))
    [other] = await opened.store.record([happening("dinner", NOON, request_id="r")])

    assert again == first._replace(replayed=True)
    assert isinstance(other, RequestIdReusedError)
    assert await opened.contents() == ["lunch"]


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


async def test_an_unknown_event_is_not_found_and_an_invalid_id_is_refused(opened: OpenedEpisodic) -> None:
    with pytest.raises(EventNotFoundError):
        await opened.store.get("unknown")
    for wrong in ("", "x" * 257, "a\0b"):
        with pytest.raises(InvalidArgumentError, match="event_id"):
            await opened.store.get(wrong)


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


async def test_the_status_counts_events_and_names_the_retention() -> None:
    async with open_event_store(keep_for=timedelta(days=90)) as opened:
        await opened.happened("a", "b")
        status = await opened.store.status()

        assert (status.state, status.message) == (EventsState.READY, "")
        assert (status.event_count, status.retention_s) == (2, 90 * 86_400)
    async with open_event_store() as opened:
        assert (await opened.store.status()).retention_s is None


async def test_the_status_never_raises(opened: OpenedEpisodic) -> None:
    def broken() -> None:
        raise StorageFailedError("the disk is gone")

    opened.timeline.__dict__["status"] = broken
    status = await opened.store.status()

    assert status.state is EventsState.UNAVAILABLE
    assert status.message == "the timeline cannot be read; the log says why"


async def test_the_scope_of_an_event_is_required(opened: OpenedEpisodic) -> None:
    [result] = await opened.store.record([happening("x", NOON, scope=Scope(persona="cook"))])

    assert isinstance(result, InvalidArgumentError)
    assert str(result) == "event.scope.user: must name the user that the event belongs to"
    assert not isinstance((await opened.store.record([happening("x", NOON, scope=ADA)]))[0], InvalidArgumentError)
