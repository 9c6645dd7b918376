"""Runs of events from a stream: recorded in order of arrival, with several runs in progress at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.events import EVENTS_PER_MESSAGE_MAX, EventReceipt, RecordEvent
from mnemon_server.services.shared.pause import Pause
from mnemon_server.transport.convert.event_requests import read_record
from mnemon_server.transport.servicers.bulk import read_item, write_taken
from mnemon_server.transport.status import Failure

if TYPE_CHECKING:
    from mnemon_server.services.events.store import EventStore
    from mnemon_server.services.vaults import VaultLease

PART = 1_000
"""Events that are stored together; meanwhile, the next are read."""
_AT_A_STRETCH = 50
"""Events between two looks at the clock."""


class EventRuns:
    """The runs of one stream."""

    def __init__(self, vault: Callable[[], "VaultLease"]) -> None:
        """Each run takes the vault, so that an idle stream does not keep it open."""
        self._vault = vault
        self._turn = asyncio.Lock()

    async def record(self, request: pb.BulkRecordEventsRequest) -> list[EventReceipt | Failure]:
        """Records the events of a run, and returns the outcome of each.

        Raises:
            InvalidArgumentError: the run is empty or too long.
            As EventStore.record.
        """
        if not 1 <= len(request.requests) <= EVENTS_PER_MESSAGE_MAX:
            raise InvalidArgumentError.of("requests", f"must be 1 to {EVENTS_PER_MESSAGE_MAX:,}; send several messages")
        # The next run is read while this one is stored, and a short one does not get ahead of a long one.
        async with AsyncExitStack() as stack:
            async with self._turn:
                store = (await stack.enter_async_context(self._vault())).episodic
                begun = [await _begin(store, part) async for part in _parts(request.requests)]
            return [outcome for part in await asyncio.gather(*begun) for outcome in part]


async def _begin(
    store: "EventStore", taken: Sequence[RecordEvent | Failure]
) -> "asyncio.Task[list[EventReceipt | Failure]]":
    """Starts to store a part, once a slot that all streams share is free."""
    slots = store.bulk_slots
    await slots.acquire()
    task = asyncio.create_task(write_taken(taken, write=store.record))
    task.add_done_callback(lambda _: slots.release())
    return task


async def _parts(messages: Sequence[pb.RecordEventRequest]) -> AsyncIterator[list[RecordEvent | Failure]]:
    """The events, part by part, as values or as why they cannot be read; yields to other calls."""
    pause = Pause()
    for start in range(0, len(messages), PART):
        taken: list[RecordEvent | Failure] = []
        for begin in range(start, start + PART, _AT_A_STRETCH):
            taken += (read_item(message, read_record) for message in messages[begin : begin + _AT_A_STRETCH])
            await pause.where_due()
        yield taken
