"""Connections that send much are read in turns; others never wait."""

import asyncio
from itertools import pairwise

from mnemon_server.services.shared.budget import SharedBudget
from mnemon_server.transport.http.flow import RUN_BYTES, Flow
from mnemon_server.transport.interceptors.low_priority import TURNS, LowPriority


class Wire(asyncio.Transport):
    """A transport that only says whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


def connections(count: int, calls: SharedBudget) -> list[tuple[Wire, Flow]]:
    line, wires = LowPriority(calls), [Wire() for _ in range(count)]
    return [(wire, Flow(wire, line)) for wire in wires]


async def read_after_each_turn(wires: list[Wire], turns: int) -> list[int]:
    """How many are read after each turn of the event loop."""
    found = []
    for _ in range(turns):
        await asyncio.sleep(0)
        found.append(sum(wire.is_read for wire in wires))
    return found


async def test_of_connections_that_send_much_one_is_read_in_each_turn_and_in_their_order() -> None:
    found = connections(20, SharedBudget(8, "calls"))
    for _, flow in found:
        flow.count(RUN_BYTES + 1)
    wires = [wire for wire, _ in found]
    assert not any(wire.is_read for wire in wires)
    counts = await read_after_each_turn(wires, 21 * TURNS)
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert counts[-1] == 20
    found[0][1].count(RUN_BYTES + 1)
    found[1][1].count(RUN_BYTES + 1)
    await read_after_each_turn(wires, TURNS + 1)
    assert wires[0].is_read and not wires[1].is_read


async def test_while_calls_are_in_work_less_is_read() -> None:
    calls = SharedBudget(8, "calls")
    found = connections(20, calls)
    calls.take("caller")
    for _, flow in found:
        flow.count(RUN_BYTES + 1)
    assert max(await read_after_each_turn([wire for wire, _ in found], 10)) <= 1
    calls.give_back("caller")
    assert (await read_after_each_turn([wire for wire, _ in found], 21 * TURNS))[-1] == 20


async def test_small_requests_never_wait_and_large_ones_wait_once_for_each_run() -> None:
    [(wire, flow)] = connections(1, SharedBudget(8, "calls"))
    for _ in range(3):
        flow.count(RUN_BYTES // 2)
        assert wire.is_read
        flow.count(RUN_BYTES // 2)
        assert wire.is_read
        flow.count(1)
        assert not wire.is_read
        await read_after_each_turn([wire], TURNS + 2)
        assert wire.is_read


async def test_a_connection_that_is_paused_while_it_waits_is_not_read() -> None:
    [(wire, flow)] = connections(1, SharedBudget(8, "calls"))
    flow.count(RUN_BYTES + 1)
    flow.pause_reading()
    assert (await read_after_each_turn([wire], TURNS + 2))[-1] == 0
    flow.resume_reading()
    assert (await read_after_each_turn([wire], TURNS + 2))[-1] == 1
