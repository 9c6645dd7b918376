"""Runs of events are stored in the order of their stream, whatever their sizes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from mnemon.v1 import episodic_pb2 as pb
from mnemon_server.domain.errors import IndexWarmingError, InvalidArgumentError, StorageFullError
from mnemon_server.domain.events import EventReceipt
from mnemon_server.transport.servicers.events import PART, EventRuns
from mnemon_server.transport.status import Failure

from tests.support.episodic_stores import open_event_store
from tests.support.timeline_messages import bulk, happened


def vault_of(opened: Any) -> Callable[[], Any]:
    """A vault that has the opened timeline."""

    @asynccontextmanager
    async def lease() -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(episodic=opened.store)

    return lease


def run_of(first: int, count: int, **fields: Any) -> pb.BulkRecordEventsRequest:
    """A run of numbered events."""
    numbers = range(first, first + count)
    return bulk(happened(f"event {number}", number, **fields) for number in numbers)


def stored(outcomes: list[EventReceipt | Failure]) -> list[EventReceipt]:
    """The outcomes, all of which must be receipts."""
    receipts = [outcome for outcome in outcomes if isinstance(outcome, EventReceipt)]
    assert len(receipts) == len(outcomes), outcomes
    return receipts


async def test_events_of_a_stream_are_stored_in_its_order() -> None:
    async with open_event_store() as opened:
        runs = EventRuns(vault_of(opened))
        # Each run begins while the previous one is read, and is read faster.
        sizes, first, working = (3 * PART + 7, 2 * PART, PART, 150, 1, 1), 0, []
        for size in sizes:
            working.append(asyncio.create_task(runs.record(run_of(first, size))))
            first += size
        outcomes = [await work for work in working]
        assert [len(outcome) for outcome in outcomes] == list(sizes)
        receipts = stored([outcome for run in outcomes for outcome in run])
        assert [receipt.sequence for receipt in receipts] == list(range(1, first + 1))


async def test_an_invalid_event_fails_alone_in_its_place() -> None:
    async with open_event_store() as opened:
        run = run_of(0, 5)
        run.requests[1].event.ClearField("event_time")
        run.requests[3].event.scope.Clear()
        outcomes = await EventRuns(vault_of(opened)).record(run)
        assert [isinstance(outcome, EventReceipt) for outcome in outcomes] == [True, False, True, False, True]
        timeless, nobodys = (outcome for outcome in outcomes if isinstance(outcome, Failure))
        assert timeless.code is nobodys.code is grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in timeless.violations] == ["event.event_time"]
        assert [violation.field for violation in nobodys.violations] == ["event.scope.user"]
        assert sorted(await opened.contents()) == ["event 0", "event 2", "event 4"]


@pytest.mark.parametrize("count", [0, 10_001])
async def test_a_run_has_a_maximum_size(count: int) -> None:
    async with open_event_store() as opened:
        with pytest.raises(InvalidArgumentError, match="requests: must be 1 to 10,000"):
            await EventRuns(vault_of(opened)).record(run_of(0, count))
        assert await opened.contents() == []


async def test_a_full_disk_fails_each_event_and_a_cold_index_fails_the_stream() -> None:
    async with open_event_store() as opened:
        opened.timeline.append_error = StorageFullError("no space is left")
        outcomes = await EventRuns(vault_of(opened)).record(run_of(0, PART + 1))
        assert {outcome.code for outcome in outcomes if isinstance(outcome, Failure)} == {
            grpc.StatusCode.RESOURCE_EXHAUSTED
        }
        assert len(outcomes) == PART + 1
        opened.timeline.is_warm = False
        with pytest.raises(IndexWarmingError):
            await EventRuns(vault_of(opened)).record(run_of(0, PART + 1))
