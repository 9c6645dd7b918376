"""Thousands of calls of one Python client at the same time, against a real server."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mnemon import AsyncClient, Client

from tests.support.server import server_process

OPERATIONS = 2_000
THREADS = 64
CLIENTS = 12
NAMESPACE = ("fan", "out")
CALLS_OF_A_SMALL_SERVER = 40
PATIENCE_S = 240
"""How long all calls together may take: on a busy machine longer than a client waits for one."""
"""Fewer than there are threads, so that it refuses some of their calls."""


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    flags = getattr(request, "param", ())
    with server_process(tmp_path, "--knowledge-store-backend", "local", *flags) as server:
        yield server.address()


def mixed_calls(client: Any) -> list[Any]:
    """Functions that make the calls; the client decides whether their answers are awaited."""
    facts = client.facts
    calls = []
    for number in range(OPERATIONS // 4):
        calls += [
            partial(facts.put, NAMESPACE, f"{number}", {"n": number}, index=False),
            partial(facts.get_many, [(NAMESPACE, f"{number}")]),
            partial(facts.delete, NAMESPACE, f"absent {number}", allow_missing=True),
            partial(client.documents.count),
        ]
    random.Random(7).shuffle(calls)
    return calls


async def test_thousands_of_calls_in_one_turn_of_the_loop_all_succeed(address: str) -> None:
    async with AsyncClient(address, timeout=PATIENCE_S) as client:
        await asyncio.gather(*(call() for call in mixed_calls(client)))

        stored = {fact.key async for fact in client.facts.list(NAMESPACE)}
        assert stored == {f"{number}" for number in range(OPERATIONS // 4)}
        receipts = await asyncio.gather(*(client.facts.delete(NAMESPACE, key) for key in stored))
        assert {receipt.outcome for receipt in receipts} == {"deleted"}


async def test_calls_of_many_clients_in_one_process_all_succeed(address: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(address, timeout=PATIENCE_S)) for _ in range(CLIENTS)]

        counts = await asyncio.gather(*(clients[number % CLIENTS].documents.count() for number in range(OPERATIONS)))

    assert counts == [0] * OPERATIONS


@pytest.mark.parametrize(
    "address", [("--unary-calls-max", str(CALLS_OF_A_SMALL_SERVER))], indirect=True, ids=["small server"]
)
def test_thousands_of_calls_of_many_threads_all_succeed(address: str) -> None:
    with Client(address, timeout=PATIENCE_S) as client:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda call: call(), mixed_calls(client)))

        assert {fact.key for fact in client.facts.list(NAMESPACE)} == {f"{n}" for n in range(OPERATIONS // 4)}
