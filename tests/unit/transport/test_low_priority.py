"""Long work advances one step in several turns of the event loop; calls in work delay it but cannot stop it."""

import asyncio
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

import pytest
from mnemon_server.services.shared.budget import SharedBudget
from mnemon_server.services.shared.pause import Rest
from mnemon_server.transport.interceptors import low_priority
from mnemon_server.transport.interceptors.low_priority import (
    LONG_SWITCH_S,
    PAUSE_MAX_S,
    QUIET_S,
    SHORT_STEPS,
    TURNS,
    TURNS_S,
    GivingWay,
    LowPriority,
)


async def work(low: LowPriority, done: list[str], name: str, steps: int) -> None:
    with low.reading(single=False):
        for _ in range(steps):
            await low.turn()
            done.append(name)


async def test_all_long_work_has_one_step_in_as_many_turns_of_the_loop_as_a_call_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, the time would be over sooner.
    monkeypatch.setattr(low_priority, "TURNS_S", 60.0)
    low, done = LowPriority(SharedBudget(8, "calls")), list[str]()
    works = [asyncio.create_task(work(low, done, name, 10)) for name in "abcd"]
    counts = []
    while not all(each.done() for each in works):
        await asyncio.sleep(0)
        counts.append(len(done))
    assert max(after - before for before, after in zip(counts, counts[TURNS - 1 :], strict=False)) == 1
    assert done == [*"abcd"] * 10


async def test_after_a_long_step_as_many_turns_pass_as_after_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, low, now, turn = asyncio.get_running_loop(), LowPriority(SharedBudget(8, "calls")), 0.0, 0
    monkeypatch.setattr(loop, "time", lambda: now)
    begun = []

    async def long_steps() -> None:
        nonlocal now
        for _ in range(4):
            await low.turn()
            begun.append(turn)
            now += 2 * TURNS_S

    works = [asyncio.create_task(long_steps()) for _ in range(2)]
    while not all(each.done() for each in works):
        turn += 1
        await asyncio.sleep(0)
    assert len(begun) == 8
    assert min(after - before for before, after in pairwise(begun)) >= TURNS


async def test_where_turns_of_the_loop_are_long_a_step_waits_for_few_of_them() -> None:
    turn, turns = LowPriority(SharedBudget(8, "calls")).turn(), 0
    while not turn.done():
        turns += 1
        ends = perf_counter() + 2 * TURNS_S
        while perf_counter() < ends:
            pass
        await asyncio.sleep(0)
    assert turns <= 3


def steps(count: int, done: list[str], name: str) -> Generator[None, None, str]:
    for _ in range(count):
        yield
        done.append(name)
    return "ended"


async def test_an_answer_of_a_few_steps_waits_for_no_call_and_for_no_longer_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(low_priority, "WAIT_S", 60.0)
    calls, done = SharedBudget(8, "calls"), list[str]()
    low = LowPriority(calls)
    calls.take("slow")
    waiting = [low.turn() for _ in range(10)]
    short, longer, request = (
        asyncio.create_task(low.run(steps(count, done, name), short_steps=given))
        for name, count, given in (("a", SHORT_STEPS, SHORT_STEPS), ("b", SHORT_STEPS + 1, SHORT_STEPS), ("c", 1, 0))
    )
    for _ in range(2 * SHORT_STEPS + 4):
        await asyncio.sleep(0)
    assert short.done() and not longer.done() and not request.done() and not any(turn.done() for turn in waiting)
    calls.give_back("slow")
    assert await longer == await request == "ended"


async def test_all_answers_together_have_one_short_step_in_a_turn_of_the_loop() -> None:
    low, done = LowPriority(SharedBudget(8, "calls")), list[str]()
    answers = [asyncio.create_task(low.run(steps(4, done, name), short_steps=4)) for name in "abcd"]
    counts = [0]
    while not all(each.done() for each in answers):
        await asyncio.sleep(0)
        counts.append(len(done))
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert len(counts) < 2 * 16


async def test_a_step_waits_for_a_call_in_work_and_goes_on_as_soon_as_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(low_priority, "WAIT_S", 60.0)
    calls, done = SharedBudget(8, "calls"), list[str]()
    low = LowPriority(calls)
    calls.take("someone")
    working = asyncio.create_task(work(low, done, "a", 5))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not done
    calls.give_back("someone")
    for _ in range(2 * TURNS):
        await asyncio.sleep(0)
    assert done
    await working


async def test_calls_that_stay_in_work_do_not_stop_it() -> None:
    calls, done = SharedBudget(8, "calls"), list[str]()
    calls.take("slow")
    async with asyncio.timeout(60):
        await work(LowPriority(calls), done, "a", 5)
    assert len(done) == 5


async def test_work_of_a_call_does_not_wait_for_that_call() -> None:
    calls = SharedBudget(8, "calls")
    low, turns = LowPriority(calls), 0
    calls.take("reader")
    with low.reading(single=True):
        first = low.turn()
        while not first.done():
            turns += 1
            await asyncio.sleep(0)
    assert turns <= TURNS + 1


async def test_work_that_is_cancelled_leaves_its_turn_to_others() -> None:
    low, done = LowPriority(SharedBudget(8, "calls")), list[str]()
    works = [asyncio.create_task(work(low, done, name, 10)) for name in "abc"]
    await asyncio.sleep(0)
    works[0].cancel()
    await asyncio.wait(works)
    assert sorted(done) == [*"b" * 10, *"c" * 10]


async def load(giving_way: GivingWay, running: list[int], pieces: int) -> None:
    for _ in range(pieces):
        async with giving_way.piece():
            running.append(running[-1] + 1)
            await asyncio.sleep(0)
            running.append(running[-1] - 1)


async def test_pieces_come_one_at_a_time_while_a_call_is_in_work_and_together_without() -> None:
    calls = SharedBudget(8, "calls")
    giving_way, alone, beside = GivingWay(calls), [0], [0]
    await asyncio.gather(*(load(giving_way, alone, 5) for _ in range(3)))
    assert max(alone) == 3
    calls.take("slow")
    async with asyncio.timeout(60):
        await asyncio.gather(*(load(giving_way, beside, 5) for _ in range(3)))
    assert max(beside) == 1


async def test_pieces_do_not_begin_together_between_two_calls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_priority, "QUIET_S", 10.0)
    calls, running = SharedBudget(8, "calls"), [0]
    giving_way = GivingWay(calls)
    calls.take("someone")
    calls.give_back("someone")
    async with asyncio.timeout(60):
        await asyncio.gather(*(load(giving_way, running, 5) for _ in range(3)))
    assert max(running) == 1


async def test_threads_keep_the_interpreter_lock_for_longer_while_streams_are_in_work_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(low_priority, "QUIET_S", 60.0)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)
    try:
        calls, seen = SharedBudget(8, "calls"), list[float]()
        giving_way = GivingWay(calls)
        async with giving_way.piece(), giving_way.piece():
            seen.append(sys.getswitchinterval())
            calls.take("someone")
            seen.append(sys.getswitchinterval())
            calls.give_back("someone")
            seen.append(sys.getswitchinterval())
        seen.append(sys.getswitchinterval())
        async with asyncio.timeout(60), giving_way.piece():
            seen.append(sys.getswitchinterval())
    finally:
        sys.setswitchinterval(usual_s)
    assert seen == pytest.approx([LONG_SWITCH_S, 0.0002, 0.0002, 0.0002, 0.0002], abs=1e-5)


async def test_the_interpreter_lock_changes_hands_as_before_once_streams_are_done() -> None:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)
    try:
        async with GivingWay(SharedBudget(8, "calls")).piece():
            during_s = sys.getswitchinterval()
        assert (during_s, sys.getswitchinterval()) == pytest.approx((LONG_SWITCH_S, 0.0002), abs=1e-5)
    finally:
        sys.setswitchinterval(usual_s)


async def test_a_piece_pauses_after_another_until_the_last_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(low_priority, "monotonic", lambda: now)
    calls, running = SharedBudget(8, "calls"), [0]
    giving_way = GivingWay(calls)
    calls.take("someone")
    async with giving_way.piece():
        now += PAUSE_MAX_S  # this is the work
    following = asyncio.create_task(load(giving_way, running, 1))
    for _ in range(100):
        await asyncio.sleep(0)
    assert running == [0]
    calls.give_back("someone")
    now += QUIET_S
    async with asyncio.timeout(60):
        await following


@dataclass
class Computing:
    """A thread that computes for 0.1 ms between two calls of `rest`, on a clock of its own."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def compute(self, rest: Rest, seconds: float) -> None:
        for _ in range(round(seconds / 0.0001)):
            self.now += 0.0001
            rest()


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> Computing:
    made = Computing()
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(low_priority, clock, lambda: made.now)
    monkeypatch.setattr(low_priority, "sleep", made.sleep)
    return made


def test_a_thread_that_computes_rests_half_of_the_time_while_another_call_is_in_work(computing: Computing) -> None:
    calls = SharedBudget(8, "calls")
    rest = GivingWay(calls).new_rest()
    calls.take("the computing call")
    computing.compute(rest, 1.0)
    assert computing.slept == []
    calls.take("another")
    computing.compute(rest, 1.0)
    assert sum(computing.slept) == pytest.approx(1.0, rel=0.15)
    assert max(computing.slept) <= 0.002


def test_a_thread_that_computes_rests_until_no_call_has_ended_for_a_while(computing: Computing) -> None:
    calls = SharedBudget(8, "calls")
    rest = GivingWay(calls).new_rest()
    calls.take("the computing call")
    calls.take("another")
    calls.give_back("another")
    computing.compute(rest, 1.0)
    assert 0 < sum(computing.slept) <= QUIET_S
