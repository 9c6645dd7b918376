"""EpisodicMemoryService over gRPC. Every method has the same steps: read, call, write."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from mnemon.v1 import common_pb2, episodic_pb2_grpc
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.errors import EventNotFoundError, InvalidArgumentError, MnemonError
from mnemon_server.domain.events import EVENTS_PER_MESSAGE_MAX, EventReceipt, RecordEvent, StoredEvent
from mnemon_server.services.background.offload import Pause
from mnemon_server.transport.convert import events as convert
from mnemon_server.transport.convert.events import read_record
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.interceptors.codec import Encoded
from mnemon_server.transport.servicers.bulk import ReadAhead, read_item, write_taken
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.status import Failure
from mnemon_server.transport.tenancy import TenantServicer

if TYPE_CHECKING:
    from mnemon_server.services.events.store import EventStore
    from mnemon_server.services.vaults import VaultLease


# Runs of events from a stream: recorded in order of arrival, with several runs in progress at once.


PART = 1_000
"""Events that are stored together while the next ones are read."""
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


class EventServicer(TenantServicer, episodic_pb2_grpc.EpisodicMemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetTimelineStatus never fails."""

    async def RecordEvent(self, request: pb.RecordEventRequest, context: Context) -> pb.RecordEventResponse:
        record = convert.read_record(request)
        async with self.vault() as vault:
            receipt = await _record(vault.episodic, record)
            known = await _known(vault.episodic, receipt) if receipt.duplicate else None
        return convert.recorded_to_pb(receipt, known)

    async def BulkRecordEvents(
        self, request_iterator: AsyncIterator[pb.BulkRecordEventsRequest], context: Context
    ) -> AsyncIterator[pb.BulkRecordEventsResponse]:
        # EventRuns keeps the order.
        runs = ReadAhead(EventRuns(self.vault).record, keys=lambda _: ())
        async for outcomes in runs.run(request_iterator):
            yield await convert.results_to_pb(outcomes)

    async def QueryWindow(self, request: pb.QueryWindowRequest, context: Context) -> Encoded:
        query, view = convert.read_window(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request, "limit")
            query = replace(query, after=pages.event_position())
            page = await vault.episodic.window(query, room=self.room())
        return convert.window_to_bytes(page, pages.next(page.next_position), view)

    async def ListRecentEvents(self, request: pb.ListRecentEventsRequest, context: Context) -> Encoded:
        where, limit = convert.read_recent(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.episodic.recent(where, pages.event_position(), limit, room=self.room())
        return convert.recent_to_bytes(page, pages.next(page.next_position))

    async def SummarizeRange(self, request: pb.SummarizeRangeRequest, context: Context) -> pb.SummarizeRangeResponse:
        where, zone = convert.read_summary(request)
        async with self.vault() as vault:
            summary = await vault.episodic.summarize(where, zone)
        return convert.summary_to_pb(summary)

    async def GetEvent(self, request: pb.GetEventRequest, context: Context) -> pb.GetEventResponse:
        async with self.vault() as vault:
            event = await vault.episodic.get(request.event_id, room=self.room())
        return convert.event_to_pb(event)

    async def PruneEvents(self, request: pb.PruneEventsRequest, context: Context) -> pb.PruneEventsResponse:
        target = convert.read_pruning(request)
        async with self.vault() as vault:
            pruned = await vault.episodic.prune(
                before=target.before,
                where=target.where,
                event_ids=tuple(request.event_ids),
                allow_missing=request.allow_missing,
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return convert.pruned_to_pb(pruned)

    async def CompactTimeline(
        self, request: pb.CompactTimelineRequest, context: Context
    ) -> AsyncIterator[pb.CompactTimelineResponse]:
        async with self.vault() as vault, aclosing(vault.episodic.compact(request.request_id)) as steps:
            async for progress in steps:
                yield convert.progress_to_pb(progress)

    async def GetTimelineStatus(
        self, request: pb.GetTimelineStatusRequest, context: Context
    ) -> pb.GetTimelineStatusResponse:
        try:
            async with self.vault() as vault:
                return convert.status_to_pb(await vault.episodic.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetTimelineStatusResponse(state=common_pb2.STATE_STARTING, message=report(error).message)


async def _record(store: "EventStore", request: RecordEvent) -> EventReceipt:
    [result] = await store.record([request])
    if isinstance(result, MnemonError):
        raise result
    return result


async def _known(store: "EventStore", receipt: EventReceipt) -> StoredEvent | None:
    """The event that is stored; None if it was pruned meanwhile."""
    try:
        return await store.get(receipt.event_id)
    except EventNotFoundError:
        return None
