"""MemoryService over gRPC. Every method has the same steps: check what may be no value, convert, call, convert."""

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from mnemon.v1 import memory_pb2 as pb
from mnemon.v1 import memory_pb2_grpc

from mnemon_server.domain.memories import MIN_CONFIDENCE_DEFAULT
from mnemon_server.transport.checks import memories as checks
from mnemon_server.transport.convert import memories as convert
from mnemon_server.transport.convert.shared.reading import check_bulk, page_size
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import ReadAhead, write_each
from mnemon_server.transport.servicers.page_tokens import next_page_token, page_query, read_page_token
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.wire.values import ACK_LEVELS, checked_time_from_pb, receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.memories.store import MemoryStore


class MemoryServicer(TenantServicer, memory_pb2_grpc.MemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetStatus never fails."""

    async def CreateMemory(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.CreateMemoryRequest, context: Context
    ) -> pb.CreateMemoryResponse:
        checks.check_create_memory(request)
        async with self.vault(context) as vault:
            receipt = await vault.memories.create(convert.create_from_pb(request))
        return convert.fill_change(pb.CreateMemoryResponse(), receipt)

    async def CreateMemories(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.CreateMemoriesRequest], context: Context
    ) -> AsyncIterator[pb.CreateMemoriesResponse]:
        async with self.vault(context) as vault:
            ahead = ReadAhead(
                partial(_create_run, vault.memories), keys=_request_ids, weight=pb.CreateMemoriesRequest.ByteSize
            )
            async for response in ahead.run(request_iterator):
                yield response

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.GetMemoryResponse:  # noqa: N802
        async with self.vault(context) as vault:
            memory = await vault.memories.get(request.memory_id)
        response = pb.GetMemoryResponse()
        convert.fill_memory(response.memory, memory)
        return response

    async def ListMemories(  # noqa: N802
        self, request: pb.ListMemoriesRequest, context: Context
    ) -> pb.ListMemoriesResponse:
        checks.check_list_memories(request)
        query = page_query(request)
        async with self.vault(context) as vault:
            page = await vault.memories.list(
                convert.filter_from_pb(request.filter),
                after=read_page_token(request.page_token, query),
                limit=page_size(request.page_size),
                show_deleted=request.show_deleted,
            )
        return await convert.page_to_pb(page, next_page_token(page.next_position, query))

    async def SearchMemories(  # noqa: N802
        self, request: pb.SearchMemoriesRequest, context: Context
    ) -> pb.SearchMemoriesResponse:
        checks.check_search_memories(request)
        async with self.vault(context) as vault:
            answer = await vault.memories.search(convert.query_from_pb(request))
        return await convert.answer_to_pb(answer)

    async def UpdateMemory(  # noqa: N802
        self, request: pb.UpdateMemoryRequest, context: Context
    ) -> pb.UpdateMemoryResponse:
        checks.check_update_memory(request)
        async with self.vault(context) as vault:
            receipt = await vault.memories.update(convert.update_from_pb(request))
        return convert.fill_change(pb.UpdateMemoryResponse(), receipt)

    async def ReinforceMemory(  # noqa: N802
        self, request: pb.ReinforceMemoryRequest, context: Context
    ) -> pb.ReinforceMemoryResponse:
        async with self.vault(context) as vault:
            receipt = await vault.memories.reinforce(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=convert.expected_revision(request),
            )
        return convert.fill_change(pb.ReinforceMemoryResponse(), receipt)

    async def DeleteMemory(  # noqa: N802
        self, request: pb.DeleteMemoryRequest, context: Context
    ) -> pb.DeleteMemoryResponse:
        checks.check_delete_memory(request)
        async with self.vault(context) as vault:
            receipt = await vault.memories.delete(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=convert.expected_revision(request),
                ack=ACK_LEVELS[request.ack],
            )
        return pb.DeleteMemoryResponse(receipt=receipt_to_pb(receipt))

    async def UndeleteMemory(  # noqa: N802
        self, request: pb.UndeleteMemoryRequest, context: Context
    ) -> pb.UndeleteMemoryResponse:
        async with self.vault(context) as vault:
            receipt = await vault.memories.undelete(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=convert.expected_revision(request),
            )
        return convert.fill_change(pb.UndeleteMemoryResponse(), receipt)

    async def PurgeMemories(  # noqa: N802
        self, request: pb.PurgeMemoriesRequest, context: Context
    ) -> pb.PurgeMemoriesResponse:
        checks.check_purge_memories(request)
        async with self.vault(context) as vault:
            receipt = await vault.memories.purge(
                convert.filter_from_pb(request.filter),
                only_deleted=request.only_deleted,
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return pb.PurgeMemoriesResponse(purged_count=receipt.deleted_count, replayed=receipt.replayed)

    async def CountMemories(  # noqa: N802
        self, request: pb.CountMemoriesRequest, context: Context
    ) -> pb.CountMemoriesResponse:
        checks.check_count_memories(request)
        async with self.vault(context) as vault:
            count = await vault.memories.count(
                convert.filter_from_pb(request.filter), show_deleted=request.show_deleted
            )
        return pb.CountMemoriesResponse(count=count)

    async def ForecastMemories(  # noqa: N802
        self, request: pb.ForecastMemoriesRequest, context: Context
    ) -> pb.ForecastMemoriesResponse:
        checks.check_forecast_memories(request)
        query = page_query(request)
        async with self.vault(context) as vault:
            page = await vault.memories.forecast(
                convert.filter_from_pb(request.filter),
                min_confidence=request.min_confidence if request.HasField("min_confidence") else MIN_CONFIDENCE_DEFAULT,
                by=checked_time_from_pb(request.by_time),
                after=read_page_token(request.page_token, query),
                limit=page_size(request.page_size),
            )
        return await convert.forecast_to_pb(page, next_page_token(page.next_position, query))

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:  # noqa: N802
        try:
            async with self.vault(context) as vault:
                return convert.status_to_pb(await vault.memories.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetStatusResponse(status=convert.UNHEALTHY, error=report(error).message)


async def _create_run(store: "MemoryStore", request: pb.CreateMemoriesRequest) -> pb.CreateMemoriesResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(
        request.requests,
        check=checks.check_create_memory,
        convert=convert.create_from_pb,
        write=store.create_many,
    )
    return convert.create_results_to_pb(outcomes)


def _request_ids(request: pb.CreateMemoriesRequest) -> list[str]:
    """What the order of two requests matters for: every memory is a new one, unless it was sent before."""
    return [item.request_id for item in request.requests if item.request_id]
