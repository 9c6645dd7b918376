"""Bulk streams give way to single calls."""

import asyncio

import pytest
from mnemon_server.services.limits.accounts import SharedBudget
from mnemon_server.transport.interceptors import turns
from mnemon_server.transport.interceptors.turns import PAUSE_MAX_S, QUIET_S, GivingWay


async def load(streams: GivingWay, running: list[int], pieces: int) -> None:
    for _ in range(pieces):
        async with streams.piece():
            running.append(running[-1] + 1)
            await asyncio.sleep(0)
            running.append(running[-1] - 1)


async def test_pieces_come_one_at_a_time_while_a_call_is_in_work_and_together_without() -> None:
    calls = SharedBudget(8, "calls")
    streams, alone, beside = GivingWay(calls), [0], [0]
    await asyncio.gather(*(load(streams, alone, 5) for _ in range(3)))
    assert max(alone) == 3
    calls.take("slow")
    async with asyncio.timeout(60):
        await asyncio.gather(*(load(streams, beside, 5) for _ in range(3)))
    assert max(beside) == 1


async def test_pieces_do_not_begin_together_between_two_calls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "QUIET_S", 10.0)
    calls, running = SharedBudget(8, "calls"), [0]
    streams = GivingWay(calls)
    calls.take("someone")
    calls.give_back("someone")
    async with asyncio.timeout(60):
        await asyncio.gather(*(load(streams, running, 5) for _ in range(3)))
    assert max(running) == 1


async def test_a_piece_pauses_after_another_until_the_last_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(turns, "monotonic", lambda: now)
    calls, running = SharedBudget(8, "calls"), [0]
    streams = GivingWay(calls)
    calls.take("someone")
    async with streams.piece():
        now += PAUSE_MAX_S  # this is the work
    following = asyncio.create_task(load(streams, running, 1))
    for _ in range(100):
        await asyncio.sleep(0)
    assert running == [0]
    calls.give_back("someone")
    now += QUIET_S
    async with asyncio.timeout(60):
        await following
