"""Blocking work on threads: results and errors reach the caller, and work cancelled before its start never runs."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from mnemon_server.services.shared.offload import Offload

DEADLINE_S = 60.0


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(1, "test")
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
