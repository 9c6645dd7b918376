"""Limits on the size of one answer and on the memory of all answers together."""

import asyncio
import threading

import pytest
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.limits.accounts import Account, Accounts
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX, FREE_BYTES, WEIGHT, AnswerMemory, Room

MIB = 1 << 20


async def test_an_answer_ends_before_the_size_limit_and_has_no_gaps() -> None:
    room = Room(AnswerMemory(64 * MIB))
    sizes = {"a": 2 * MIB, "b": MIB, "c": MIB, "d": 1}
    assert [room.fits(name, size) for name, size in sizes.items()] == [True, True, False, False]
    assert (room.is_full, room.left) == (True, ["c", "d"])


async def test_the_first_record_always_fits_and_any_record_fits_into_the_memory_of_all_answers() -> None:
    memory = AnswerMemory(MIB)
    room = Room(memory)
    assert room.fits("huge", 2 * ANSWER_BYTES_MAX)
    assert (memory.used, room.fits("one more", 1), room.is_short) == (MIB, False, False)
    room.close()
    room.close()
    assert memory.used == 0


async def test_small_answers_reserve_nothing_and_do_not_wait() -> None:
    memory = AnswerMemory(MIB)
    await memory.take(MIB)
    small, large = Room(memory), Room(memory)
    assert small.fits("small", FREE_BYTES // WEIGHT)
    assert not large.fits("large", FREE_BYTES // WEIGHT + 1)
    assert (small.is_short, large.is_short) == (False, True)


async def test_memory_is_granted_in_the_order_of_the_requests() -> None:
    memory = AnswerMemory(10)
    await memory.take(10)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await memory.take(size)
        order.append(name)

    tasks = [asyncio.create_task(take("large", 8)), asyncio.create_task(take("small", 2))]
    await asyncio.sleep(0)
    memory.give(2)
    await asyncio.sleep(0)
    # Two bytes would be enough for the second, but it is not its turn.
    assert (order, memory.try_take(1)) == ([], False)
    memory.give(6)
    memory.give(2)
    await asyncio.gather(*tasks)
    assert (order, memory.used) == (["large", "small"], 10)


async def test_tenants_get_memory_in_turns_and_each_byte_is_counted_in_its_account() -> None:
    accounts, memory = Accounts(UNLIMITED, Quotas(open_streams=9)), AnswerMemory(10)
    greedy, other = accounts.of("greedy", "key:1"), accounts.of("other", "key:2")
    await memory.take(10, greedy)
    order: list[str] = []

    async def take(name: str, account: Account) -> None:
        await memory.take(10, account)
        order.append(name)
        memory.give(10, account)

    tasks = [asyncio.create_task(take(f"greedy {number}", greedy)) for number in range(3)]
    tasks.append(asyncio.create_task(take("other", other)))
    await asyncio.sleep(0)
    assert (accounts.usage_of("greedy").bytes_in_flight, greedy.usage.bytes_in_flight) == (10, 10)
    memory.give(10, greedy)
    await asyncio.gather(*tasks)
    assert order == ["greedy 0", "other", "greedy 1", "greedy 2"]
    assert (accounts.usage_of("greedy").bytes_in_flight, greedy.is_idle, memory.used) == (0, True, 0)


async def test_a_caller_that_waits_too_long_is_told_when_to_retry_and_leaves_nothing_behind() -> None:
    memory = AnswerMemory(MIB, wait_s=0.01)
    await memory.take(MIB)
    with pytest.raises(TooManyRequestsError, match="1 MiB") as refused:
        await memory.take(1)
    assert refused.value.retry_after_s > 0
    memory.give(MIB)
    await memory.take(MIB)
    assert memory.used == MIB


async def test_a_cancelled_waiter_blocks_no_one() -> None:
    memory = AnswerMemory(10)
    await memory.take(10)
    left, stays = asyncio.create_task(memory.take(10)), asyncio.create_task(memory.take(5))
    await asyncio.sleep(0)
    left.cancel()
    memory.give(5)
    await stays
    assert memory.used == 10


async def test_a_read_that_got_no_memory_is_repeated_once_there_is_some() -> None:
    memory = AnswerMemory(16 * MIB)
    await memory.take(16 * MIB)
    offload = Offload(1, "test")
    room = Room(memory)
    reads: list[list[bool]] = []

    def read(*, fits: object) -> list[bool]:
        assert callable(fits)
        reads.append([fits(name, MIB) for name in "abcd"])
        if len(reads) == 1:
            loop.call_soon_threadsafe(memory.give, 16 * MIB)
        return reads[-1]

    loop = asyncio.get_running_loop()
    assert await room.read(offload, read) == [True, True, True, False]
    assert (reads[0], room.left, memory.used) == ([False] * 4, ["d"], WEIGHT * ANSWER_BYTES_MAX)
    await asyncio.to_thread(offload.close)


async def test_stored_records_are_taken_if_they_fit() -> None:
    room = Room(AnswerMemory(64 * MIB))
    assert [await room.take(size) for size in (2 * MIB, 2 * MIB, MIB)] == [True, False, True]
    assert not room.is_full


async def test_a_record_that_is_sent_twice_takes_twice_the_space() -> None:
    room = Room(AnswerMemory(64 * MIB), copies=2)
    assert [room.fits(name, MIB) for name in "ab"] == [True, False]


async def test_a_read_that_goes_on_after_its_caller_has_left_takes_no_memory() -> None:
    memory = AnswerMemory(10 * ANSWER_BYTES_MAX)
    room, offload = Room(memory), Offload(1, "test")
    reading, left = threading.Event(), threading.Event()
    fitted: list[bool] = []

    def read(*, fits: Fits) -> None:
        fitted.append(fits("a", FREE_BYTES))
        reading.set()
        assert left.wait(10)
        fitted.append(fits("b", FREE_BYTES))

    call = asyncio.create_task(room.read(offload, read))
    assert await asyncio.to_thread(reading.wait, 10)
    assert memory.used > 0
    call.cancel()
    await asyncio.wait([call])
    room.close()
    left.set()
    await asyncio.to_thread(offload.close)
    assert fitted == [True, False]
    assert memory.used == 0
