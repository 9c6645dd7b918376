"""Conversions yield to the event loop, and all of a loop share the time between two yields."""

import asyncio
import time

from mnemon_server.services.background.offload import Pause

RECORD_S = 0.001
"""How long a record takes at least."""


async def test_other_calls_wait_for_one_slice_however_many_conversions_run() -> None:
    conversions, done = 8, 0

    async def convert() -> None:
        nonlocal done
        pause = Pause()
        for _ in range(20):
            end = time.perf_counter() + RECORD_S
            while time.perf_counter() < end:
                pass
            done += 1
            await pause.where_due()

    running = [asyncio.create_task(convert()) for _ in range(conversions)]
    between, seen = [], 0
    while not all(task.done() for task in running):
        await asyncio.sleep(0)
        between.append(done - seen)
        seen = done
    # A slice begins after the first such record and ends with the next, and every other conversion finds out after one.
    assert max(between) <= 2 + (conversions - 1)
    assert done == 20 * conversions


async def test_a_conversion_goes_on_in_its_slice_without_yielding() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    pause = Pause()
    await pause.where_due()
    assert turns == 1
    counting.cancel()
