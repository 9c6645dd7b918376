"""Results of engines reach the event loop in batches, each its own caller, whatever happens to the others."""

import asyncio
import threading
from concurrent.futures import Future

import pytest
from mnemon_server.services.background.offload import completion

TIMEOUT_S = 60.0


async def waiting_for(*futures: "Future[int]") -> "list[asyncio.Task[int]]":
    """Tasks that already wait for the futures."""
    tasks = [asyncio.create_task(completion(future)) for future in futures]
    await asyncio.sleep(0)
    return tasks


def count_up(futures: "list[Future[int]]") -> None:
    """Completes the futures with their numbers, without a pause, in another thread."""

    def resolve() -> None:
        for number, future in enumerate(futures):
            future.set_result(number)

    thread = threading.Thread(target=resolve)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


async def test_results_that_are_ready_together_come_in_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    wake_ups: list[object] = []
    wake = loop.call_soon_threadsafe

    def counted(*arguments: object) -> object:
        wake_ups.append(arguments)
        return wake(*arguments)  # type: ignore[arg-type]

    futures = [Future[int]() for _ in range(10)]
    tasks = await waiting_for(*futures)
    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    count_up(futures)

    assert await asyncio.gather(*tasks) == list(range(10))
    assert len(wake_ups) == 1


async def test_results_that_arrive_one_after_the_other_all_arrive() -> None:
    for number in range(50):
        future: Future[int] = Future()
        [task] = await waiting_for(future)
        threading.Thread(target=future.set_result, args=(number,)).start()
        assert await asyncio.wait_for(task, TIMEOUT_S) == number


async def test_an_error_is_raised_for_its_own_caller() -> None:
    good, bad = Future[int](), Future[int]()
    tasks = await waiting_for(good, bad)
    bad.set_exception(ValueError("bad"))
    good.set_result(1)

    assert await tasks[0] == 1
    with pytest.raises(ValueError, match="bad"):
        await tasks[1]


async def test_a_result_that_is_already_there_needs_no_wake_up() -> None:
    future: Future[int] = Future()
    future.set_result(7)
    assert await completion(future) == 7


async def test_a_cancelled_caller_affects_neither_the_write_nor_the_others() -> None:
    left, stays = Future[int](), Future[int]()
    tasks = await waiting_for(left, stays)
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    left.set_result(1)
    stays.set_result(2)

    assert await tasks[1] == 2
    assert tasks[0].cancelled()
    assert not left.cancelled()


def test_a_result_that_comes_after_its_loop_has_ended_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()

    async def begin() -> None:
        await waiting_for(future)

    asyncio.run(begin())
    future.set_result(1)
    assert not caplog.records
