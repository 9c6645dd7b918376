"""One time limit for all calls: which calls are cancelled, and that calls in time are not affected."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from mnemon_server.transport.errors import DeadlineExceededError
from mnemon_server.transport.interceptors.time_limit import TimeLimit

T = TypeVar("T")


async def keep(limit: TimeLimit, work: Awaitable[T], message: str) -> T:
    """The result of `work`, unless it takes longer than the limit."""
    with limit.watch(message):
        return await work


async def test_a_call_in_time_gets_its_answer_and_a_late_one_an_error() -> None:
    limit = TimeLimit(0.05)
    assert await keep(limit, asyncio.sleep(0, "an answer"), "late") == "an answer"
    with pytest.raises(DeadlineExceededError, match="too late"):
        await keep(limit, asyncio.Event().wait(), "too late")


async def test_a_cancellation_from_elsewhere_is_not_a_deadline() -> None:
    limit = TimeLimit(30)
    task = asyncio.create_task(keep(limit, asyncio.Event().wait(), "late"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_beyond_a_maximum_number_the_oldest_calls_are_cancelled_after_their_minimum_time() -> None:
    limit = TimeLimit(30, crowd=2, crowded_s=0.05)
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    began = loop.time()
    tasks = [asyncio.create_task(keep(limit, arrived.wait(), "late")) for _ in range(5)]
    ended, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION, timeout=60)
    while len(ended) < 3:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        ended |= more
    assert loop.time() - began >= 0.05
    assert ended == set(tasks[:3])
    assert {type(task.exception()) for task in ended} == {DeadlineExceededError}
    arrived.set()
    assert await asyncio.gather(*tasks[3:]) == [True, True]


async def test_many_quick_calls_are_not_cancelled() -> None:
    limit = TimeLimit(30, crowd=2, crowded_s=20)
    answers = [keep(limit, asyncio.sleep(0.01, number), "late") for number in range(50)]
    assert await asyncio.gather(*answers) == [*range(50)]
