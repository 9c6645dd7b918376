"""MemoryService over gRPC. Every method has the same steps: read, call, write."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mnemon.v1 import common_pb2, memory_pb2_grpc
from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import View
from mnemon_server.transport.convert import memories as convert
from mnemon_server.transport.convert.shared import versions
from mnemon_server.transport.convert.shared.reader import check_bulk, expected_revision, read_page_size
from mnemon_server.transport.convert.shared.results import with_receipts
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import answer_each, write_each
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, known
from mnemon_server.wire.values import receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault


class MemoryServicer(TenantServicer, memory_pb2_grpc.MemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetStatus never fails."""

    async def CreateMemory(self, request: pb.CreateMemoryRequest, context: Context) -> pb.CreateMemoryResponse:
        creation = convert.read_create(request)
        async with self.vault() as vault:
            receipt = await vault.memories.create(creation)
        return convert.fill_change(pb.CreateMemoryResponse(), receipt)

    def BulkCreateMemories(
        self, request_iterator: AsyncIterator[pb.BulkCreateMemoriesRequest], context: Context
    ) -> AsyncIterator[pb.BulkCreateMemoriesResponse]:
        return answer_each(request_iterator, self.vault, _create_run, keys=_request_ids)

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.GetMemoryResponse:
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.MEMORY)
            memory = await then.found(then.vault.memories.get(request.memory_id, room=self.room()))
        response = pb.GetMemoryResponse(history_incomplete=then.is_incomplete)
        convert.fill_memory(response.memory, memory)
        return response

    async def ListMemories(self, request: pb.ListMemoriesRequest, context: Context) -> pb.ListMemoriesResponse:
        where, limit = convert.read_list(request)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.MEMORY)
            pages = PageTokens(vault.page_key, request)
            page = await then.vault.memories.list(
                where,
                after=pages.position(),
                limit=limit,
                show_deleted=request.show_deleted,
                room=self.room(),
            )
        response = await convert.page_to_pb(page, pages.next(page.next_position))
        response.history_incomplete = then.is_incomplete
        return response

    async def SearchMemories(self, request: pb.SearchMemoriesRequest, context: Context) -> pb.SearchMemoriesResponse:
        query = convert.read_search(request)
        room = self.room(vectors=query.view is View.FULL)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.MEMORY)
            answer = await then.vault.memories.search(query, room=room)
        response = await convert.answer_to_pb(answer, query.view, truncated=room.is_full)
        response.history_incomplete = then.is_incomplete
        return response

    async def UpdateMemory(self, request: pb.UpdateMemoryRequest, context: Context) -> pb.UpdateMemoryResponse:
        change = convert.read_update(request)
        async with self.vault() as vault:
            receipt = await vault.memories.update(change)
        return convert.fill_change(pb.UpdateMemoryResponse(), receipt)

    async def ReinforceMemory(self, request: pb.ReinforceMemoryRequest, context: Context) -> pb.ReinforceMemoryResponse:
        async with self.vault() as vault:
            receipt = await vault.memories.reinforce(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=expected_revision(request),
            )
        return convert.fill_change(pb.ReinforceMemoryResponse(), receipt)

    async def DeleteMemory(self, request: pb.DeleteMemoryRequest, context: Context) -> pb.DeleteMemoryResponse:
        ack = convert.read_deletion(request)
        async with self.vault() as vault:
            receipt = await vault.memories.delete(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=expected_revision(request),
                allow_missing=request.allow_missing,
                ack=ack,
            )
        return pb.DeleteMemoryResponse(receipt=receipt_to_pb(receipt))

    async def UndeleteMemory(self, request: pb.UndeleteMemoryRequest, context: Context) -> pb.UndeleteMemoryResponse:
        async with self.vault() as vault:
            receipt = await vault.memories.undelete(
                request.memory_id,
                request_id=request.request_id,
                expected_revision=expected_revision(request),
            )
        return convert.fill_change(pb.UndeleteMemoryResponse(), receipt)

    async def PurgeMemories(self, request: pb.PurgeMemoriesRequest, context: Context) -> pb.PurgeMemoriesResponse:
        where = convert.read_purge(request)
        async with self.vault() as vault:
            receipt = await vault.memories.purge(
                where,
                only_deleted=request.only_deleted,
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return pb.PurgeMemoriesResponse(purged_count=receipt.deleted_count, replayed=receipt.replayed)

    async def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, context: Context
    ) -> pb.ListMemoryVersionsResponse:
        limit = read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.history.list(
                RecordKind.MEMORY,
                request.memory_id,
                after=pages.position(),
                limit=limit,
                room=self.room(),
            )
            memories = [vault.memories.as_it_was(version) for version in page.items]
        response = pb.ListMemoryVersionsResponse(next_page_token=pages.next(page.next_position))
        await versions.fill_versions(response.versions, page, memories, "memory", convert.fill_memory)
        return response

    async def RestoreMemoryVersion(
        self, request: pb.RestoreMemoryVersionRequest, context: Context
    ) -> pb.RestoreMemoryVersionResponse:
        asked = versions.read_restoration(request, RecordKind.MEMORY, request.memory_id)
        async with self.vault() as vault:
            receipt = await vault.memories.shown(await vault.history.restore(asked))
        return convert.fill_change(pb.RestoreMemoryVersionResponse(), receipt)

    async def CountMemories(self, request: pb.CountMemoriesRequest, context: Context) -> pb.CountMemoriesResponse:
        where = convert.read_count(request)
        async with self.vault() as vault:
            count = await vault.memories.count(where, show_deleted=request.show_deleted)
        return pb.CountMemoriesResponse(count=count)

    async def ForecastMemories(
        self, request: pb.ForecastMemoriesRequest, context: Context
    ) -> pb.ForecastMemoriesResponse:
        fading = convert.read_forecast(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.memories.forecast(
                fading.where,
                min_confidence=fading.min_confidence,
                by=fading.by,
                after=pages.position(),
                limit=fading.limit,
                room=self.room(),
            )
        return await convert.forecast_to_pb(page, pages.next(page.next_position))

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        try:
            async with self.vault() as vault:
                return convert.status_to_pb(await vault.memories.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetStatusResponse(state=common_pb2.STATE_UNAVAILABLE, message=report(error).message)


async def _create_run(vault: "OpenVault", request: pb.BulkCreateMemoriesRequest) -> pb.BulkCreateMemoriesResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(
        request.requests,
        read=convert.read_create,
        write=vault.memories.create_many,
    )
    return with_receipts(pb.BulkCreateMemoriesResponse(), outcomes)


def _request_ids(request: pb.BulkCreateMemoriesRequest) -> list[str]:
    """Requests that share one keep their order: every memory is a new one, unless it was sent before."""
    return [item.request_id for item in request.requests if item.request_id]
