"""Reads are gathered: none waits for others to join it, and failures stay separate."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.reading.answers import AnswerMemory, Room
from mnemon_server.services.reading.at_once import QUICK_S, THREADS_S, THREADS_SHARE, AtOnce
from mnemon_server.services.reading.read_batcher import TOGETHER_MAX, ReadBatcher

TIMEOUT_S = 60.0


class Shelf:
    """Returns each id in upper case. It can be held, and fails if "bad" is among the ids."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def read_many(self, ids: Sequence[str], *, fits: Fits) -> list[str]:
        """As ReadBatcher wants it; what does not fit is empty."""
        self.asked.append(list(ids))
        self.entered.set()
        assert self.gate.wait(TIMEOUT_S)
        if "bad" in ids:
            raise ValueError("a bad id")
        there = {record_id for record_id in dict.fromkeys(ids) if fits(record_id, len(record_id) << 10)}
        return [record_id.upper() if record_id in there else "" for record_id in ids]

    async def hold(self, reads: ReadBatcher[str]) -> "asyncio.Task[str]":
        """A read that stays in progress until the gate is opened."""
        self.gate.clear()
        self.entered.clear()
        held = asyncio.create_task(reads.get("held"))
        assert await asyncio.to_thread(self.entered.wait, TIMEOUT_S)
        return held


@pytest.fixture
def shelf() -> Shelf:
    """The shelf that is read from."""
    return Shelf()


@pytest.fixture
async def offload(shelf: Shelf) -> AsyncIterator[Offload]:
    """Threads, closed with the test."""
    offload = Offload(2, "test-reader")
    yield offload
    shelf.gate.set()
    await asyncio.to_thread(offload.close)


@pytest.fixture
def reads(shelf: Shelf, offload: Offload) -> ReadBatcher[str]:
    """Reads from the shelf."""
    return ReadBatcher(shelf.read_many, offload)


async def begun(*ids: str, of: ReadBatcher[str]) -> "list[asyncio.Task[str]]":
    """Starts reads, which wait for their turn."""
    tasks = [asyncio.create_task(of.get(record_id)) for record_id in ids]
    await asyncio.sleep(0)
    return tasks


async def test_a_single_read_does_not_wait_for_others(reads: ReadBatcher[str], shelf: Shelf) -> None:
    assert await asyncio.wait_for(reads.get("one"), TIMEOUT_S) == "ONE"
    assert shelf.asked == [["one"]]


async def test_reads_that_arrive_during_a_read_are_made_together_after_it(
    reads: ReadBatcher[str], shelf: Shelf
) -> None:
    held = await shelf.hold(reads)
    tasks = await begun("a", "b", "a", of=reads)
    shelf.gate.set()

    assert await asyncio.gather(held, *tasks) == ["HELD", "A", "B", "A"]
    assert shelf.asked == [["held"], ["a", "b", "a"]]


async def test_a_failing_read_does_not_affect_its_neighbours(reads: ReadBatcher[str], shelf: Shelf) -> None:
    held = await shelf.hold(reads)
    tasks = await begun("a", "bad", "b", of=reads)
    shelf.gate.set()
    before, failed, after = await asyncio.gather(*tasks, return_exceptions=True)

    assert (before, after, await held) == ("A", "B", "HELD")
    assert isinstance(failed, ValueError)
    assert await reads.get("later") == "LATER"


async def test_a_read_that_no_caller_waits_for_is_not_made(reads: ReadBatcher[str], shelf: Shelf) -> None:
    held = await shelf.hold(reads)
    left, stays = await begun("left", "stays", of=reads)
    left.cancel()
    await asyncio.wait([left])
    shelf.gate.set()

    assert await stays == "STAYS"
    assert left.cancelled()
    assert await held == "HELD"
    assert shelf.asked == [["held"], ["stays"]]


async def test_cancelling_the_first_reader_does_not_affect_the_others(reads: ReadBatcher[str], shelf: Shelf) -> None:
    held = await shelf.hold(reads)
    [other] = await begun("other", of=reads)
    held.cancel()
    await asyncio.wait([held])
    shelf.gate.set()

    assert await asyncio.wait_for(other, TIMEOUT_S) == "OTHER"


async def test_many_readers_are_served_in_bounded_batches(reads: ReadBatcher[str], shelf: Shelf) -> None:
    held = await shelf.hold(reads)
    ids = [f"id-{number}" for number in range(TOGETHER_MAX + 1)]
    tasks = await begun(*ids, of=reads)
    shelf.gate.set()

    assert await asyncio.gather(*tasks) == [record_id.upper() for record_id in ids]
    assert await held == "HELD"
    assert [len(asked) for asked in shelf.asked] == [1, TOGETHER_MAX, 1]


async def test_after_the_threads_are_closed_a_read_fails_instead_of_hanging(
    reads: ReadBatcher[str], offload: Offload
) -> None:
    await asyncio.to_thread(offload.close)

    with pytest.raises(RuntimeError):
        await asyncio.wait_for(reads.get("late"), TIMEOUT_S)


async def test_waiting_reads_end_when_the_threads_are_closed(shelf: Shelf) -> None:
    offload = Offload(1, "test-reader")
    reads = ReadBatcher(shelf.read_many, offload)
    held = await shelf.hold(reads)
    waiting = await begun("a", "b", of=reads)
    closing = asyncio.create_task(asyncio.to_thread(offload.close))
    shelf.gate.set()
    await closing

    done, pending = await asyncio.wait([held, *waiting], timeout=TIMEOUT_S)
    assert not pending
    assert held in done
    assert await held == "HELD"


async def test_a_read_without_memory_for_its_answer_waits_alone(reads: ReadBatcher[str], shelf: Shelf) -> None:
    memory = AnswerMemory(1 << 20)
    await memory.take(1 << 20)
    held = await shelf.hold(reads)
    large = asyncio.create_task(reads.get("large" * 20, Room(memory)))
    [small] = await begun("small", of=reads)
    shelf.gate.set()

    assert (await held, await small) == ("HELD", "SMALL")
    assert not large.done()
    memory.give(1 << 20)
    assert await asyncio.wait_for(large, TIMEOUT_S) == "LARGE" * 20


async def test_a_small_record_is_read_without_a_thread(shelf: Shelf, offload: Offload) -> None:
    reads = ReadBatcher(shelf.read_many, offload, lambda record_id: "small" if record_id == "s" else None)

    assert await reads.get("s") == "small"
    assert shelf.asked == []
    assert await asyncio.wait_for(reads.get("large"), TIMEOUT_S) == "LARGE"
    assert shelf.asked == [["large"]]


async def test_after_two_slow_reads_of_small_records_threads_read_for_a_while(shelf: Shelf, offload: Offload) -> None:
    now = 0.0

    def read_small(record_id: str) -> str:
        nonlocal now
        now += 2 * QUICK_S if record_id == "slow" else 0.0
        return "small"

    reads = ReadBatcher(shelf.read_many, offload, read_small, monotonic=lambda: now)

    ids = ["slow", "quick", "slow", "slow", "next"]
    assert [await reads.get(record_id) for record_id in ids] == ["small"] * 4 + ["NEXT"]
    now += THREADS_S
    assert [await reads.get("slow"), await reads.get("later")] == ["small"] * 2


def test_the_slower_work_was_the_longer_it_is_left_to_threads() -> None:
    now = 0.0

    def work(took: float) -> str:
        nonlocal now
        now += took
        return "done"

    at_once = AtOnce(monotonic=lambda: now)
    assert [at_once(work, 2.0), at_once(work, 0.0)] == ["done", None]
    now += 0.99 * THREADS_SHARE * 2.0
    assert at_once(work, 0.0) is None
    now += 0.02 * THREADS_SHARE * 2.0
    assert at_once(work, 0.0) == "done"
