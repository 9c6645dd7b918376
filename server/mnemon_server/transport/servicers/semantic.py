"""SemanticMemoryService over gRPC. Every method has the same steps: read, call, write."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mnemon.v1 import common_pb2, semantic_pb2_grpc
from mnemon.v1 import semantic_pb2 as pb

from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import View
from mnemon_server.services.semantic.stored_form import to_semantic
from mnemon_server.transport.convert import semantic as convert
from mnemon_server.transport.convert.shared import versions
from mnemon_server.transport.convert.shared.reader import check_bulk, expected_revision, read_page_size
from mnemon_server.transport.convert.shared.results import with_results
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import answer_each, write_each
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, known
from mnemon_server.wire.values import receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault


class SemanticServicer(TenantServicer, semantic_pb2_grpc.SemanticMemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetIndexStatus never fails."""

    async def SaveSemanticMemory(
        self, request: pb.SaveSemanticMemoryRequest, context: Context
    ) -> pb.SaveSemanticMemoryResponse:
        save = convert.read_save(request)
        async with self.vault() as vault:
            saved = await vault.semantic.save(save)
        return convert.saved_to_pb(saved)

    def BulkSaveSemanticMemories(
        self, request_iterator: AsyncIterator[pb.BulkSaveSemanticMemoriesRequest], context: Context
    ) -> AsyncIterator[pb.BulkSaveSemanticMemoriesResponse]:
        return answer_each(request_iterator, self.vault, _save_run, keys=_users)

    async def SearchSimilar(self, request: pb.SearchSimilarRequest, context: Context) -> pb.SearchSimilarResponse:
        query = convert.read_search(request)
        room = self.room(vectors=query.view is View.FULL)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.SEMANTIC)
            answer = await then.vault.semantic.search(query, room=room)
        response = await convert.answer_to_pb(answer, query.view, truncated=room.is_full)
        response.history_incomplete = then.is_incomplete
        return response

    async def GetSemanticMemory(
        self, request: pb.GetSemanticMemoryRequest, context: Context
    ) -> pb.GetSemanticMemoryResponse:
        view = convert.read_view(request)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.SEMANTIC)
            reading = then.vault.semantic.get(request.memory_id, embedding=view is View.FULL, room=self.room())
            memory = await then.found(reading)
        response = pb.GetSemanticMemoryResponse(history_incomplete=then.is_incomplete)
        convert.fill_view(response.memory, memory, view)
        return response

    async def ListSemanticMemories(
        self, request: pb.ListSemanticMemoriesRequest, context: Context
    ) -> pb.ListSemanticMemoriesResponse:
        where, limit = convert.read_list(request)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.SEMANTIC)
            pages = PageTokens(vault.page_key, request)
            page = await then.vault.semantic.list(
                where,
                after=pages.position(),
                limit=limit,
                show_superseded=request.show_superseded,
                room=self.room(),
            )
        response = await convert.page_to_pb(page, pages.next(page.next_position))
        response.history_incomplete = then.is_incomplete
        return response

    async def ListSemanticMemoryVersions(
        self, request: pb.ListSemanticMemoryVersionsRequest, context: Context
    ) -> pb.ListSemanticMemoryVersionsResponse:
        limit = read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.history.list(
                RecordKind.SEMANTIC, request.memory_id, after=pages.position(), limit=limit, room=self.room()
            )
        response = pb.ListSemanticMemoryVersionsResponse(next_page_token=pages.next(page.next_position))
        statements = [to_semantic(version.document) for version in page.items]
        await versions.fill_versions(response.versions, page, statements, "memory", convert.fill_memory)
        return response

    async def RestoreSemanticMemoryVersion(
        self, request: pb.RestoreSemanticMemoryVersionRequest, context: Context
    ) -> pb.RestoreSemanticMemoryVersionResponse:
        asked = versions.read_restoration(request, RecordKind.SEMANTIC, request.memory_id)
        async with self.vault() as vault:
            receipt = await vault.history.restore(asked)
            memory = await vault.semantic.get(receipt.id)
        response = pb.RestoreSemanticMemoryVersionResponse(receipt=receipt_to_pb(receipt))
        convert.fill_memory(response.memory, memory)
        return response

    async def DeleteSemanticMemories(
        self, request: pb.DeleteSemanticMemoriesRequest, context: Context
    ) -> pb.DeleteSemanticMemoriesResponse:
        where = convert.read_deletion(request)
        async with self.vault() as vault:
            deleted = await vault.semantic.delete(
                tuple(request.memory_ids),
                where,
                allow_missing=request.allow_missing,
                expected_revision=expected_revision(request),
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return convert.deleted_to_pb(deleted)

    async def GetIndexStatus(self, request: pb.GetIndexStatusRequest, context: Context) -> pb.GetIndexStatusResponse:
        try:
            async with self.vault() as vault:
                return convert.status_to_pb(await vault.semantic.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetIndexStatusResponse(state=common_pb2.STATE_STARTING, message=report(error).message)

    async def CreateSnapshot(self, request: pb.CreateSnapshotRequest, context: Context) -> pb.CreateSnapshotResponse:
        async with self.vault() as vault:
            snapshot = await vault.semantic.create_snapshot(request_id=request.request_id)
        return convert.snapshot_to_pb(snapshot)


async def _save_run(
    vault: "OpenVault", request: pb.BulkSaveSemanticMemoriesRequest
) -> pb.BulkSaveSemanticMemoriesResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(
        request.requests,
        read=convert.read_save,
        write=vault.semantic.save_many,
    )
    return with_results(pb.BulkSaveSemanticMemoriesResponse(), outcomes, convert.fill_result)


def _users(request: pb.BulkSaveSemanticMemoriesRequest) -> set[str]:
    """Requests that share one keep their order: a statement may repeat or contradict what its user said before."""
    return {item.memory.scope.user for item in request.requests}
