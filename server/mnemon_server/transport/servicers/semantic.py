"""SemanticMemoryService over gRPC. Every method has the same steps: check what may be no value, convert, call, tell."""

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from mnemon.v1 import semantic_pb2 as pb
from mnemon.v1 import semantic_pb2_grpc

from mnemon_server.transport.checks import semantic as checks
from mnemon_server.transport.convert import semantic as convert
from mnemon_server.transport.convert.shared.reading import check_bulk, page_size
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import ReadAhead, write_each
from mnemon_server.transport.servicers.page_tokens import next_page_token, page_query, read_page_token
from mnemon_server.transport.tenancy import TenantServicer

if TYPE_CHECKING:
    from mnemon_server.services.semantic.store import SemanticStore


class SemanticServicer(TenantServicer, semantic_pb2_grpc.SemanticMemoryServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetIndexStatus never fails."""

    async def SaveSemanticMemory(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.SaveSemanticMemoryRequest, context: Context
    ) -> pb.SaveSemanticMemoryResponse:
        checks.check_save_semantic_memory(request)
        async with self.vault(context) as vault:
            saved = await vault.semantic.save(convert.save_from_pb(request))
        return convert.saved_to_pb(saved)

    async def SaveSemanticMemories(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.SaveSemanticMemoriesRequest], context: Context
    ) -> AsyncIterator[pb.SaveSemanticMemoriesResponse]:
        async with self.vault(context) as vault:
            ahead = ReadAhead(
                partial(_save_run, vault.semantic), keys=_users, weight=pb.SaveSemanticMemoriesRequest.ByteSize
            )
            async for response in ahead.run(request_iterator):
                yield response

    async def SearchSimilar(  # noqa: N802
        self, request: pb.SearchSimilarRequest, context: Context
    ) -> pb.SearchSimilarResponse:
        checks.check_search_similar(request)
        async with self.vault(context) as vault:
            answer = await vault.semantic.search(convert.query_from_pb(request))
        return await convert.answer_to_pb(answer)

    async def GetSemanticMemory(  # noqa: N802
        self, request: pb.GetSemanticMemoryRequest, context: Context
    ) -> pb.GetSemanticMemoryResponse:
        async with self.vault(context) as vault:
            memory = await vault.semantic.get(request.memory_id, embedding=request.include_embedding)
        response = pb.GetSemanticMemoryResponse()
        convert.fill_memory(response.memory, memory)
        return response

    async def ListSemanticMemories(  # noqa: N802
        self, request: pb.ListSemanticMemoriesRequest, context: Context
    ) -> pb.ListSemanticMemoriesResponse:
        checks.check_list_semantic_memories(request)
        query = page_query(request)
        async with self.vault(context) as vault:
            page = await vault.semantic.list(
                convert.filter_from_pb(request.filter),
                after=read_page_token(request.page_token, query),
                limit=page_size(request.page_size),
                show_superseded=request.show_superseded,
            )
        return await convert.page_to_pb(page, next_page_token(page.next_position, query))

    async def DeleteSemanticMemories(  # noqa: N802
        self, request: pb.DeleteSemanticMemoriesRequest, context: Context
    ) -> pb.DeleteSemanticMemoriesResponse:
        checks.check_delete_semantic_memories(request)
        async with self.vault(context) as vault:
            deleted = await vault.semantic.delete(
                tuple(request.memory_ids),
                convert.filter_from_pb(request.filter),
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return convert.deleted_to_pb(deleted)

    async def GetIndexStatus(  # noqa: N802
        self, request: pb.GetIndexStatusRequest, context: Context
    ) -> pb.GetIndexStatusResponse:
        try:
            async with self.vault(context) as vault:
                return convert.status_to_pb(await vault.semantic.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetIndexStatusResponse(state=pb.INDEX_STATE_WARMING, message=report(error).message)

    async def CreateSnapshot(  # noqa: N802
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> pb.CreateSnapshotResponse:
        async with self.vault(context) as vault:
            written, why_not = await vault.semantic.create_snapshot()
        return convert.snapshot_to_pb(written, why_not)


async def _save_run(store: "SemanticStore", request: pb.SaveSemanticMemoriesRequest) -> pb.SaveSemanticMemoriesResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(
        request.requests,
        check=checks.check_save_semantic_memory,
        convert=convert.save_from_pb,
        write=store.save_many,
    )
    return convert.save_results_to_pb(outcomes)


def _users(request: pb.SaveSemanticMemoriesRequest) -> set[str]:
    """What the order of two requests matters for: a statement may repeat or contradict what its user said before."""
    return {item.memory.scope.user for item in request.requests}
