"""Blocking work on threads: results and errors reach the caller, and work cancelled before its start never runs."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from mnemon_server.services.background.offload import Offload, OneByOne

DEADLINE_S = 60.0


@pytest.fixture(params=[Offload, OneByOne])
def offload(request: pytest.FixtureRequest) -> Iterator[Offload]:
    offload: Offload = request.param(1, "test")
    yield offload
    offload.close()


async def test_a_call_returns_or_raises_what_the_function_does(offload: Offload) -> None:
    assert await offload(divmod, 7, 2) == (3, 1)
    assert await offload(int, "11", base=2) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        await offload(int, "x")


async def test_a_call_cancelled_before_it_begins_never_runs(offload: Offload) -> None:
    free, calls = threading.Event(), list[str]()
    first = asyncio.create_task(offload(free.wait, DEADLINE_S))
    second = asyncio.create_task(offload(calls.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    free.set()
    assert await first
    await offload(calls.append, "third")
    assert calls == ["third"]


async def test_work_that_has_not_begun_is_dropped_when_the_threads_are_closed(offload: Offload) -> None:
    begun, free, calls = threading.Event(), threading.Event(), list[str]()

    def hold() -> str:
        begun.set()
        assert free.wait(DEADLINE_S)
        return "held"

    held = asyncio.create_task(offload(hold))
    assert await asyncio.to_thread(begun.wait, DEADLINE_S)
    dropped = asyncio.create_task(offload(calls.append, "dropped"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(asyncio.to_thread(offload.close))
    with pytest.raises(asyncio.CancelledError):
        await dropped
    free.set()
    await closing
    assert await held == "held"
    assert calls == []
    with pytest.raises(RuntimeError):
        await offload(calls.append, "late")


async def test_short_calls_run_one_by_one_in_their_order() -> None:
    offload, calls = OneByOne(4, "test", long_s=DEADLINE_S), list[tuple[int, int]]()

    def note(number: int) -> None:
        calls.append((number, threading.get_ident()))

    try:
        await asyncio.gather(*(offload(note, number) for number in range(50)))
    finally:
        offload.close()
    assert [number for number, _ in calls] == list(range(50))
    assert len({thread for _, thread in calls}) == 1


async def test_calls_that_take_long_do_not_keep_others_waiting() -> None:
    offload, free = OneByOne(3, "test", long_s=0.001), threading.Event()
    try:
        long = [asyncio.create_task(offload(free.wait, DEADLINE_S)) for _ in range(2)]
        await asyncio.wait_for(offload(free.set), DEADLINE_S)
        assert await asyncio.gather(*long) == [True, True]
    finally:
        offload.close()


async def test_no_more_threads_help_than_there_may_be() -> None:
    offload, begun, free = OneByOne(2, "test", long_s=0.001), threading.Semaphore(0), threading.Event()
    running, most = set[int](), list[int]()

    def work() -> None:
        running.add(threading.get_ident())
        most.append(len(running))
        begun.release()
        assert free.wait(DEADLINE_S)
        running.discard(threading.get_ident())

    try:
        calls = [asyncio.create_task(offload(work)) for _ in range(5)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=DEADLINE_S)
        free.set()
        await asyncio.gather(*calls)
    finally:
        offload.close()
    assert max(most) == 2
