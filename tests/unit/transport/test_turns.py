"""Calls of a connection begin in turns of the event loop; those of other connections need not wait for them."""

import asyncio

from mnemon_server.transport.interceptors.turns import Turns


async def begin(turns: Turns, connection: str, begun: list[str]) -> None:
    if (turn := turns.take(connection)) is not None:
        await turn
    begun.append(connection)


async def test_hundreds_of_calls_of_a_connection_begin_a_few_at_a_time_and_others_at_once() -> None:
    turns, begun = Turns(per_turn=4), list[str]()
    calls = [asyncio.create_task(begin(turns, "greedy", begun)) for _ in range(200)]
    counts = []
    while len(begun) < 200:
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)
    assert max(counts) == 4

    calls += [asyncio.create_task(begin(turns, "greedy", begun)) for _ in range(200)]
    calls.append(asyncio.create_task(begin(turns, "other", begun)))
    await calls[-1]
    assert begun[200:] == [*["greedy"] * 4, "other"]
    await asyncio.gather(*calls)
    assert len(begun) == 401


async def test_a_few_calls_begin_at_once() -> None:
    turns, begun = Turns(per_turn=4), list[str]()
    for _ in range(3):
        calls = [asyncio.create_task(begin(turns, "modest", begun)) for _ in range(4)]
        await asyncio.sleep(0)
        assert all(call.done() for call in calls)
        await asyncio.sleep(0)


async def test_calls_that_ended_while_they_waited_take_no_turn() -> None:
    turns, begun = Turns(per_turn=2), list[str]()
    calls = [asyncio.create_task(begin(turns, "greedy", begun)) for _ in range(100)]
    await asyncio.sleep(0)
    for call in calls[2:-2]:
        call.cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(begun) == 4
    await asyncio.gather(*calls, return_exceptions=True)
    await begin(turns, "greedy", begun)
    assert len(begun) == 5
