"""Writes, here of events, are gathered: none waits for others, their order is kept, and failures stay separate."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest
from mnemon_server.domain.errors import MnemonError, StorageFullError
from mnemon_server.domain.events import Event, EventReceipt
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.services.writing.writes import BULK_MIN, TOGETHER_MAX, WriteBatcher

Appended = list[EventReceipt | MnemonError]
Batcher = WriteBatcher[EventWrite, EventReceipt | MnemonError]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMEOUT_S = 60.0


class Ledger:
    """Records ids in the order in which they arrive, and answers when told to."""

    def __init__(self) -> None:
        self.appends: list[list[str]] = []
        self.open: list[tuple[Future[Appended], Appended]] = []

    def append(self, writes: Sequence[EventWrite]) -> "Future[Appended]":
        """As WriteBatcher wants it."""
        ids = [write.event.event_id for write in writes]
        if "bad" in ids:
            raise ValueError("a bad event")
        self.appends.append(ids)
        future: Future[Appended] = Future()
        self.open.append((future, [EventReceipt(event_id, 1, 1, NOON) for event_id in ids]))
        return future

    def answer(self) -> None:
        """Answers the oldest append."""
        future, results = self.open.pop(0)
        future.set_result(results)

    def fail(self, error: MnemonError) -> None:
        """Fails the oldest append."""
        self.open.pop(0)[0].set_exception(error)


@pytest.fixture
def ledger() -> Ledger:
    """The ledger that is written to."""
    return Ledger()


@pytest.fixture
def appends(ledger: Ledger) -> Batcher:
    """Appends to the ledger."""
    return WriteBatcher(ledger.append)


def writes(*ids: str) -> list[EventWrite]:
    """Events to store."""
    return [EventWrite(Event(event_id, "task", NOON), id_is_new=True) for event_id in ids]


def bulk(name: str, count: int) -> list[EventWrite]:
    """Many events to store."""
    return writes(*(f"{name}{number}" for number in range(count)))


async def turn() -> None:
    """Runs everything that is ready to run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def ids_of(future: "asyncio.Future[Appended]") -> list[str]:
    """The ids of the receipts."""
    results = await asyncio.wait_for(future, TIMEOUT_S)
    return [result.event_id for result in results if isinstance(result, EventReceipt)]


async def test_a_single_event_does_not_wait_for_others(appends: Batcher, ledger: Ledger) -> None:
    first = appends.start(writes("a"))
    await turn()
    ledger.answer()

    assert await ids_of(first) == ["a"]
    assert ledger.appends == [["a"]]


async def test_events_that_arrive_during_an_append_are_appended_together_after_it(
    appends: Batcher, ledger: Ledger
) -> None:
    held = appends.start(writes("held"))
    await turn()
    others = [appends.start(writes("a", "b")), appends.start(writes("c"))]
    await turn()
    assert ledger.appends == [["held"]]
    ledger.answer()
    assert await ids_of(held) == ["held"]
    await turn()
    ledger.answer()

    assert [await ids_of(other) for other in others] == [["a", "b"], ["c"]]
    assert ledger.appends == [["held"], ["a", "b", "c"]]


async def test_a_caller_that_was_answered_may_join_the_next_append(appends: Batcher, ledger: Ledger) -> None:
    async def record_twice() -> None:
        await appends.start(writes("first"))
        await appends.start(writes("second"))

    task = asyncio.create_task(record_twice())
    await turn()
    other = appends.start(writes("other"))
    ledger.answer()
    await turn()
    await asyncio.sleep(0.01)
    await turn()
    assert ledger.appends == [["first"], ["other", "second"]]
    ledger.answer()
    await asyncio.wait_for(task, TIMEOUT_S)
    assert await ids_of(other) == ["other"]


async def test_at_most_a_thousand_events_are_appended_together_and_each_call_stays_whole(
    appends: Batcher, ledger: Ledger
) -> None:
    held = appends.start(writes("held"))
    await turn()
    calls = [appends.start(bulk(f"{number}-", BULK_MIN - 1)) for number in range(11)]
    while not all(call.done() for call in calls):
        await asyncio.sleep(0.001)
        while ledger.open:
            ledger.answer()

    assert [len(append) for append in ledger.appends] == [1, 990, 99]
    assert max(map(len, ledger.appends)) <= TOGETHER_MAX
    assert [event_id for append in ledger.appends[1:] for event_id in append] == [
        f"{call}-{event}" for call in range(11) for event in range(BULK_MIN - 1)
    ]
    assert await ids_of(held) == ["held"]


async def test_a_large_call_neither_waits_for_nor_overtakes_others(appends: Batcher, ledger: Ledger) -> None:
    held = appends.start(writes("held"))
    await turn()
    before = appends.start(writes("before"))
    many = appends.start(bulk("m", BULK_MIN))
    after = appends.start(writes("after"))
    await turn()

    assert [append[0] for append in ledger.appends] == ["held", "before"]
    assert len(ledger.appends[1]) == 1 + BULK_MIN
    ledger.answer()
    ledger.answer()
    assert await ids_of(held) == ["held"]
    assert len(await ids_of(many)) == BULK_MIN
    assert await ids_of(before) == ["before"]
    await turn()
    ledger.answer()
    assert await ids_of(after) == ["after"]


async def test_cancelling_a_caller_undoes_no_event_and_affects_no_other(appends: Batcher, ledger: Ledger) -> None:
    held = appends.start(writes("held"))
    await turn()
    gone, stays = appends.start(writes("gone")), appends.start(writes("stays"))
    held.cancel()
    gone.cancel()
    ledger.answer()
    await asyncio.sleep(0.01)
    await turn()
    ledger.answer()

    assert await ids_of(stays) == ["stays"]
    assert ledger.appends == [["held"], ["gone", "stays"]]


async def test_a_failed_append_gives_each_event_its_own_error(appends: Batcher, ledger: Ledger) -> None:
    held = appends.start(writes("held"))
    await turn()
    both = [appends.start(writes("a")), appends.start(writes("b", "c"))]
    ledger.answer()
    await held
    await turn()
    ledger.fail(StorageFullError("the disk is full"))

    errors = [error for call in both for error in await asyncio.wait_for(call, TIMEOUT_S)]
    assert [(type(error), str(error)) for error in errors] == [(StorageFullError, "the disk is full")] * 3
    assert len(set(map(id, errors))) == 3
    later = appends.start(writes("later"))
    await turn()
    ledger.answer()
    assert await ids_of(later) == ["later"]


async def test_an_event_that_the_engine_refuses_does_not_affect_its_neighbours(
    appends: Batcher, ledger: Ledger
) -> None:
    held = appends.start(writes("held"))
    await turn()
    calls = [appends.start(writes(event_id)) for event_id in ("a", "bad", "b")]
    ledger.answer()
    await held
    while not all(call.done() for call in calls):
        await asyncio.sleep(0.001)
        while ledger.open:
            ledger.answer()

    assert await ids_of(calls[0]) == ["a"]
    with pytest.raises(ValueError, match="a bad event"):
        await calls[1]
    assert await ids_of(calls[2]) == ["b"]
