"""The memory of messages that were sent and not read: who gets how much, and who waits."""

import asyncio
from asyncio import CancelledError
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from mnemon_server.domain.access.quotas import UNLIMITED
from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.limits.accounts import Account
from mnemon_server.services.limits.outbox import FREE_BYTES, Outbox, Sending, SlowReaderError

from tests.support.python_calls import python_calls

BYTES_MAX = 1 << 20
MESSAGE = BYTES_MAX // 8


def outbox(wait_s: float = 60.0) -> Outbox:
    return Outbox(wait_s=wait_s, bytes_max=BYTES_MAX)


def sending(box: Outbox, *holder: str) -> Sending:
    """A call of this holder."""
    return Sending(box, holder, Account("tenant:acme", UNLIMITED, now=monotonic))


def fill(box: Outbox, *holder: str) -> list[Sending]:
    """Calls of a holder that reads nothing, as many as it gets."""
    calls = []
    while (call := sending(box, *holder)).fits(MESSAGE):
        calls.append(call)
    return calls


def test_a_caller_that_reads_nothing_leaves_memory_for_others() -> None:
    box = outbox()
    assert len(fill(box, "greedy")) == 7
    with pytest.raises(TooManyRequestsError):
        sending(box, "greedy").require(MESSAGE)
    sending(box, "modest").require(MESSAGE)


def test_all_messages_together_never_take_more_than_all_memory() -> None:
    box = outbox()
    for holder in range(100):
        fill(box, str(holder))
    assert box.used <= BYTES_MAX


def test_small_messages_always_fit_and_the_largest_one_fits_once_there_is_a_share() -> None:
    box = outbox()
    for holder in "abcdefghij":
        fill(box, holder)
    assert sending(box, "a").fits(FREE_BYTES)
    assert sending(outbox(), "a").fits(10 * BYTES_MAX)


async def test_a_stream_waits_until_its_caller_has_read() -> None:
    box = outbox()
    calls = fill(box, "greedy")
    later = sending(box, "greedy")
    waiting = asyncio.create_task(later.wait(MESSAGE))
    await asyncio.sleep(0)
    assert not waiting.done()
    calls[0].clear()
    await waiting
    assert later.fits(MESSAGE)
    for call in (*calls, later):
        call.clear()
    assert box.used == 0


async def test_waiting_streams_have_turns_and_a_caller_beyond_its_share_holds_up_no_one() -> None:
    box = outbox()
    held = fill(box, "greedy")
    went: list[str] = []

    async def wait(holder: str) -> None:
        await sending(box, holder).wait(2 * MESSAGE if holder == "modest" else MESSAGE)
        went.append(holder)

    tasks = [asyncio.create_task(wait(holder)) for holder in ("greedy", "greedy", "greedy", "modest")]
    await asyncio.sleep(0)
    held.pop().clear()
    await asyncio.sleep(0)
    held.pop().clear()
    await asyncio.gather(tasks[0], tasks[3])
    assert sorted(went) == ["greedy", "modest"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_stream_that_waits_too_long_or_has_ended_leaves_the_line() -> None:
    box = outbox(wait_s=0.01)
    calls = fill(box, "greedy")
    with pytest.raises(SlowReaderError):
        await sending(box, "greedy").wait(MESSAGE)
    left = asyncio.create_task(sending(box, "greedy").wait(MESSAGE))
    await asyncio.sleep(0)
    left.cancel()
    # Before the task has noticed: what it waited for comes too late.
    for call in calls:
        call.clear()
    await asyncio.gather(left, return_exceptions=True)
    assert box.used == 0


def test_what_is_unread_counts_in_the_account_of_the_caller() -> None:
    box, account = outbox(), Account("tenant:acme", UNLIMITED, now=monotonic)
    call = Sending(box, ("acme",), account)
    call.require(MESSAGE)
    assert account.usage.bytes_in_flight == MESSAGE
    call.clear()
    assert account.usage.bytes_in_flight == 0


def _cancelled(one: Any) -> None:
    with suppress(CancelledError):
        one.throw(CancelledError())


async def test_who_begins_or_ends_to_wait_costs_the_same_however_many_wait() -> None:
    box = outbox()
    fill(box, "greedy")
    fill(box, "second")
    costs = []
    for count in (10, 100):
        waiting = [asyncio.create_task(sending(box, f"{count}-{n}").wait(MESSAGE)) for n in range(count)]
        await asyncio.sleep(0)
        one, futures = sending(box, "one").wait(MESSAGE), list[Any]()
        begins = python_calls(lambda: futures.append(one.send(None)))  # noqa: B023 - it is called at once
        futures[0].cancel()
        ends = python_calls(lambda: _cancelled(one))  # noqa: B023
        costs.append((begins, ends))
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
    # The interpreter does a little on its own now and then; each of ninety more would cost several calls.
    assert all(many < 2 * few for few, many in zip(*costs, strict=True))
