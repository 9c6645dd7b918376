"""Single calls wait for each other within their deadlines, and repeat those that a busy server refuses."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import mnemon
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from mnemon import AsyncClient, Client
from mnemon._attempts import CALLS_IN_FLIGHT_MAX
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.server import until, wait_until
from tests.unit.client.scripted_server import ScriptedStore, failing, found, scripted_server

SOON = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=20_000_000))
LONG = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=3_600))
BUSY, BUSY_FOR_LONG = (
    failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_REQUESTS", details=[wait]) for wait in (SOON, LONG)
)


class Gate:
    """A line of a script that answers while the gate is open."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, request: pb.GetDocumentRequest, context: grpc.ServicerContext) -> pb.GetDocumentResponse:
        self.opened.wait()
        return found(request, context)


@contextmanager
def gated_server() -> Iterator[tuple[str, ScriptedStore, Gate]]:
    gate = Gate()
    # More threads than one client may have calls in flight, so that all of them can be seen to arrive.
    with scripted_server(gate, threads=2 * CALLS_IN_FLIGHT_MAX) as (address, store):
        try:
            yield address, store, gate
        finally:
            gate.opened.set()


def submit_all(pool: ThreadPoolExecutor, client: Client) -> list[Future[mnemon.Document]]:
    return [pool.submit(client.documents.get, f"{number}") for number in range(CALLS_IN_FLIGHT_MAX)]


def start_all(client: AsyncClient) -> list[asyncio.Task[mnemon.Document]]:
    return [started(client.documents.get(f"{number}")) for number in range(CALLS_IN_FLIGHT_MAX)]


def started(call: Coroutine[Any, Any, mnemon.Document]) -> asyncio.Task[mnemon.Document]:
    return asyncio.create_task(call)


def asked(store: ScriptedStore) -> set[str]:
    return {request.doc_id for request in store.requests}


def test_a_call_that_waits_for_others_keeps_its_deadline() -> None:
    with (
        gated_server() as (address, store, gate),
        Client(address) as client,
        ThreadPoolExecutor(CALLS_IN_FLIGHT_MAX) as pool,
    ):
        others = submit_all(pool, client)
        wait_until(lambda: len(store.requests) == CALLS_IN_FLIGHT_MAX)
        with pytest.raises(
            mnemon.DeadlineExceededError,
            match=rf"^no answer from {address} within 0\.2 s; a larger timeout= waits longer$",
        ) as raised:
            client.documents.get("late", timeout=0.2)
        gate.opened.set()

        assert raised.value.code == "DEADLINE_EXCEEDED"
        assert [other.result().doc_id for other in others] == [f"{number}" for number in range(CALLS_IN_FLIGHT_MAX)]
        assert client.documents.get("next").doc_id == "next"
        assert "late" not in asked(store)


async def test_an_asyncio_call_that_waits_for_others_keeps_its_deadline() -> None:
    with gated_server() as (address, store, gate):
        async with AsyncClient(address) as client:
            others = start_all(client)
            await until(lambda: len(store.requests) == CALLS_IN_FLIGHT_MAX)
            with pytest.raises(
                mnemon.DeadlineExceededError,
                match=rf"^no answer from {address} within 0\.2 s; a larger timeout= waits longer$",
            ):
                await client.documents.get("late", timeout=0.2)
            gate.opened.set()

            assert len(await asyncio.gather(*others)) == CALLS_IN_FLIGHT_MAX
            assert (await client.documents.get("next")).doc_id == "next"
            assert "late" not in asked(store)


async def test_a_cancelled_call_leaves_its_place_to_others() -> None:
    with gated_server() as (address, store, gate):
        async with AsyncClient(address) as client:
            first = start_all(client)
            await until(lambda: len(store.requests) == CALLS_IN_FLIGHT_MAX)
            given_up = [started(client.documents.get("given up")) for _ in range(CALLS_IN_FLIGHT_MAX)]
            second = [started(client.documents.get(f"second {number}")) for number in range(CALLS_IN_FLIGHT_MAX)]
            await asyncio.sleep(0)  # all of them wait

            # A place is passed on whether its call waits or is in flight.
            for call in (*given_up, *first):
                call.cancel()
            await asyncio.wait((*given_up, *first))

            await until(lambda: asked(store) >= {f"second {number}" for number in range(CALLS_IN_FLIGHT_MAX)})
            assert not any(call.done() for call in second)
            gate.opened.set()
            assert len(await asyncio.gather(*second)) == CALLS_IN_FLIGHT_MAX
            assert "given up" not in asked(store)


async def test_a_call_that_waits_as_its_client_is_closed_says_so() -> None:
    with gated_server() as (address, store, _):
        client = AsyncClient(address)
        others = start_all(client)
        await until(lambda: len(store.requests) == CALLS_IN_FLIGHT_MAX)
        waiting = started(client.documents.get("late"))
        await asyncio.sleep(0)
        await client.close()

        with pytest.raises(RuntimeError, match="closed"):
            await waiting
        await asyncio.wait(others)


def test_a_call_that_a_busy_server_refuses_is_repeated() -> None:
    with scripted_server(*[BUSY] * 5, found) as (address, store), Client(address) as client:
        assert client.documents.get("a").doc_id == "a"

    assert len(store.requests) == 6


async def test_an_asyncio_call_that_a_busy_server_refuses_is_repeated() -> None:
    with scripted_server(BUSY, BUSY, found) as (address, store):
        async with AsyncClient(address) as client:
            assert (await client.documents.get("a")).doc_id == "a"

    assert len(store.requests) == 3


@pytest.mark.parametrize(("details", "attempts"), [([SOON], 3), ([], 1)])
def test_a_call_over_a_quota_is_repeated_only_if_waiting_helps(details: list[Any], attempts: int) -> None:
    full = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="QUOTA_EXCEEDED", details=details)
    with scripted_server(full, full, found) as (address, store), Client(address) as client:
        if details:
            assert client.documents.get("a").doc_id == "a"
        else:
            with pytest.raises(mnemon.QuotaExceededError):
                client.documents.get("a")

    assert len(store.requests) == attempts


def test_a_server_that_stays_busy_is_reported_before_the_deadline() -> None:
    with (
        scripted_server(BUSY, BUSY_FOR_LONG) as (address, store),
        Client(address) as client,
        pytest.raises(mnemon.ResourceExhaustedError) as raised,
    ):
        client.documents.get("a", timeout=60)

    assert raised.value.reason == "TOO_MANY_REQUESTS"
    assert len(store.requests) == 2


@pytest.mark.parametrize("reason", ["STORAGE_FULL", "THROTTLED", "TOO_MANY_VAULTS", "MESSAGE_TOO_LARGE"])
def test_other_refusals_are_not_repeated(reason: str) -> None:
    line = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason=reason, details=[SOON])
    with (
        scripted_server(line) as (address, store),
        Client(address) as client,
        pytest.raises(mnemon.ResourceExhaustedError),
    ):
        client.documents.get("a")

    assert len(store.requests) == 1


def test_a_tool_is_not_run_again() -> None:
    with scripted_server(BUSY) as (address, store), Client(address) as client:
        for run in (lambda: client.tools.call("weather", {}), lambda: client.tools.execute("text")):
            with pytest.raises(mnemon.ResourceExhaustedError):
                run()

    assert len(store.requests) == 2
