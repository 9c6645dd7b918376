"""EpisodicMemoryService over gRPC. Every method has the same steps: check what may be no value, convert, call, tell."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from mnemon.v1 import common_pb2, episodic_pb2_grpc
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.episodic import LIMIT_DEFAULT, EventReceipt, RecordEvent, StoredEvent
from mnemon_server.domain.errors import EventNotFoundError, MnemonError
from mnemon_server.transport.checks import episodic as checks
from mnemon_server.transport.convert import episodic as convert
from mnemon_server.transport.convert import episodic_answers as answers
from mnemon_server.transport.convert.shared.reading import page_size
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.interceptors.codec import Encoded
from mnemon_server.transport.servicers.bulk import ReadAhead
from mnemon_server.transport.servicers.event_runs import EventRuns
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.wire.values import VIEWS, checked_time_from_pb

if TYPE_CHECKING:
    from mnemon_server.services.timeline.store import EpisodicStore


class EpisodicServicer(TenantServicer, episodic_pb2_grpc.EpisodicMemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetTimelineStatus never fails."""

    async def RecordEvent(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.RecordEventRequest, context: Context
    ) -> pb.RecordEventResponse:
        record = checks.checked_record(request)
        async with self.vault(context) as vault:
            receipt = await _record(vault.episodic, record)
            known = await _known(vault.episodic, receipt) if receipt.duplicate else None
        return answers.recorded_to_pb(receipt, known)

    async def BulkRecordEvents(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.BulkRecordEventsRequest], context: Context
    ) -> AsyncIterator[pb.BulkRecordEventsResponse]:
        async with self.vault(context) as vault:
            # The runs keep their order themselves.
            runs = ReadAhead(
                EventRuns(vault.episodic).record, keys=lambda _: (), weight=lambda request: request.ByteSize()
            )
            async for outcomes in runs.run(request_iterator):
                yield await answers.results_to_pb(outcomes)

    async def QueryWindow(self, request: pb.QueryWindowRequest, context: Context) -> Encoded:  # noqa: N802
        checks.check_query_window(request)
        async with self.vault(context) as vault:
            pages = PageTokens(vault.page_key, request, "limit")
            query = convert.window_query_from_pb(request, pages.event_position())
            page = await vault.episodic.window(query, room=self.room(context))
        return answers.window_to_bytes(page, pages.next(page.next_position), VIEWS[request.view])

    async def ListRecentEvents(  # noqa: N802
        self, request: pb.ListRecentEventsRequest, context: Context
    ) -> Encoded:
        checks.check_list_recent_events(request)
        async with self.vault(context) as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.episodic.recent(
                convert.selection_from_pb(request),
                pages.event_position(),
                page_size(request.page_size, LIMIT_DEFAULT),
                room=self.room(context),
            )
        return answers.recent_to_bytes(page, pages.next(page.next_position))

    async def SummarizeRange(  # noqa: N802
        self, request: pb.SummarizeRangeRequest, context: Context
    ) -> pb.SummarizeRangeResponse:
        checks.check_summarize_range(request)
        async with self.vault(context) as vault:
            summary = await vault.episodic.summarize(convert.selection_from_pb(request))
        return answers.summary_to_pb(summary)

    async def GetEvent(self, request: pb.GetEventRequest, context: Context) -> pb.GetEventResponse:  # noqa: N802
        async with self.vault(context) as vault:
            event = await vault.episodic.get(request.event_id, room=self.room(context))
        return answers.event_to_pb(event)

    async def PruneEvents(self, request: pb.PruneEventsRequest, context: Context) -> pb.PruneEventsResponse:  # noqa: N802
        checks.check_prune_events(request)
        async with self.vault(context) as vault:
            pruned = await vault.episodic.prune(
                before=checked_time_from_pb(request.before) if request.HasField("before") else None,
                where=convert.selection_from_pb(request),
                event_ids=tuple(request.event_ids),
                allow_missing=request.allow_missing,
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return answers.pruned_to_pb(pruned)

    async def CompactTimeline(  # noqa: N802
        self, request: pb.CompactTimelineRequest, context: Context
    ) -> AsyncIterator[pb.CompactTimelineResponse]:
        async with self.vault(context) as vault, aclosing(vault.episodic.compact(request.request_id)) as steps:
            async for progress in steps:
                yield answers.progress_to_pb(progress)

    async def GetTimelineStatus(  # noqa: N802
        self, request: pb.GetTimelineStatusRequest, context: Context
    ) -> pb.GetTimelineStatusResponse:
        try:
            async with self.vault(context) as vault:
                return answers.status_to_pb(await vault.episodic.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetTimelineStatusResponse(state=common_pb2.STATE_STARTING, message=report(error).message)


async def _record(store: "EpisodicStore", request: RecordEvent) -> EventReceipt:
    [result] = await store.record([request])
    if isinstance(result, MnemonError):
        raise result
    return result


async def _known(store: "EpisodicStore", receipt: EventReceipt) -> StoredEvent | None:
    """The event that is stored; None where it was pruned meanwhile."""
    try:
        return await store.get(receipt.event_id)
    except EventNotFoundError:
        return None
