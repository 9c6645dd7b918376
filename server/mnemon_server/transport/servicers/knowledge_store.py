"""KnowledgeStoreService over gRPC. Every method has the same steps: read, call, write."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mnemon.v1 import common_pb2, knowledge_store_pb2_grpc
from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import View
from mnemon_server.transport.convert import documents as convert
from mnemon_server.transport.convert.shared import versions
from mnemon_server.transport.convert.shared.reader import check_bulk, expected_revision, read_page_size
from mnemon_server.transport.convert.shared.results import with_receipts
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import answer_each, write_each
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, known
from mnemon_server.wire.values import filter_notes_to_pb, receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault


class KnowledgeStoreServicer(TenantServicer, knowledge_store_pb2_grpc.KnowledgeStoreServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only CheckHealth never fails."""

    async def IndexDocument(self, request: pb.IndexDocumentRequest, context: Context) -> pb.IndexDocumentResponse:
        index = convert.read_index(request)
        async with self.vault() as vault:
            receipt = await vault.documents.index(index)
        return pb.IndexDocumentResponse(receipt=receipt_to_pb(receipt))

    def BulkIndexDocuments(
        self, request_iterator: AsyncIterator[pb.BulkIndexDocumentsRequest], context: Context
    ) -> AsyncIterator[pb.BulkIndexDocumentsResponse]:
        return answer_each(request_iterator, self.vault, _index_run, keys=_doc_ids)

    async def UpdateDocument(self, request: pb.UpdateDocumentRequest, context: Context) -> pb.UpdateDocumentResponse:
        change = convert.read_update(request)
        async with self.vault() as vault:
            receipt = await vault.documents.update(change)
        return pb.UpdateDocumentResponse(receipt=receipt_to_pb(receipt))

    async def SearchDocuments(self, request: pb.SearchDocumentsRequest, context: Context) -> pb.SearchDocumentsResponse:
        query = convert.read_search(request)
        room = self.room(vectors=query.view is View.FULL)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.DOCUMENT)
            answer = await then.vault.documents.search(query, room=room)
        response = await convert.answer_to_pb(answer, query.view, truncated=room.is_full)
        response.history_incomplete = then.is_incomplete
        return response

    async def GetDocument(self, request: pb.GetDocumentRequest, context: Context) -> pb.GetDocumentResponse:
        view = convert.read_view(request)
        room = self.room(vectors=view is View.FULL)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.DOCUMENT)
            document = await then.found(then.vault.documents.get(request.doc_id, view=view, room=room))
        found = convert.document_to_pb(document, view)
        return pb.GetDocumentResponse(document=found, history_incomplete=then.is_incomplete)

    async def ListDocuments(self, request: pb.ListDocumentsRequest, context: Context) -> pb.ListDocumentsResponse:
        where, limit, view = convert.read_list(request)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.DOCUMENT)
            pages = PageTokens(vault.page_key, request)
            page = await then.vault.documents.list(
                where=where,
                after=pages.position(),
                limit=limit,
                view=view,
                room=self.room(vectors=view is View.FULL),
            )
        response = await convert.page_to_pb(page, view, pages.next(page.next_position))
        response.history_incomplete = then.is_incomplete
        return response

    async def CountDocuments(self, request: pb.CountDocumentsRequest, context: Context) -> pb.CountDocumentsResponse:
        where = convert.read_count(request)
        async with self.vault() as vault:
            count, notes = await vault.documents.count(where)
        return pb.CountDocumentsResponse(count=count, **filter_notes_to_pb(notes))

    async def ListDocumentVersions(
        self, request: pb.ListDocumentVersionsRequest, context: Context
    ) -> pb.ListDocumentVersionsResponse:
        limit = read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.history.list(
                RecordKind.DOCUMENT, request.doc_id, after=pages.position(), limit=limit, room=self.room()
            )
        response = pb.ListDocumentVersionsResponse(next_page_token=pages.next(page.next_position))
        documents = [version.document for version in page.items]
        await versions.fill_versions(response.versions, page, documents, "document", convert.fill_document)
        return response

    async def RestoreDocumentVersion(
        self, request: pb.RestoreDocumentVersionRequest, context: Context
    ) -> pb.RestoreDocumentVersionResponse:
        asked = versions.read_restoration(request, RecordKind.DOCUMENT, request.doc_id)
        async with self.vault() as vault:
            receipt = await vault.history.restore(asked)
        return pb.RestoreDocumentVersionResponse(receipt=receipt_to_pb(receipt))

    async def DeleteDocument(self, request: pb.DeleteDocumentRequest, context: Context) -> pb.DeleteDocumentResponse:
        ack = convert.read_deletion(request)
        async with self.vault() as vault:
            receipt = await vault.documents.delete(
                request.doc_id,
                request_id=request.request_id,
                expected_revision=expected_revision(request),
                allow_missing=request.allow_missing,
                ack=ack,
            )
        return pb.DeleteDocumentResponse(receipt=receipt_to_pb(receipt))

    async def DeleteDocuments(self, request: pb.DeleteDocumentsRequest, context: Context) -> pb.DeleteDocumentsResponse:
        where, ack = convert.read_deletions(request)
        async with self.vault() as vault:
            receipt = await vault.documents.delete_many(
                where, dry_run=request.dry_run, request_id=request.request_id, ack=ack
            )
        return pb.DeleteDocumentsResponse(deleted_count=receipt.deleted_count, replayed=receipt.replayed)

    async def RebuildIndex(
        self, request: pb.RebuildIndexRequest, context: Context
    ) -> AsyncIterator[pb.RebuildIndexResponse]:
        async with self.vault() as vault:
            async for progress in vault.documents.rebuild_index():
                yield pb.RebuildIndexResponse(done=progress.done, total=progress.total)

    async def CheckHealth(self, request: pb.CheckHealthRequest, context: Context) -> pb.CheckHealthResponse:
        try:
            async with self.vault() as vault:
                return convert.health_to_pb(await vault.documents.check_health())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.CheckHealthResponse(state=common_pb2.STATE_UNAVAILABLE, message=report(error).message)


async def _index_run(vault: "OpenVault", request: pb.BulkIndexDocumentsRequest) -> pb.BulkIndexDocumentsResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(request.requests, read=convert.read_index, write=vault.documents.index_many)
    response = with_receipts(pb.BulkIndexDocumentsResponse(), outcomes)
    for result, item in zip(response.results, request.requests, strict=True):
        result.doc_id = item.document.doc_id
    return response


def _doc_ids(request: pb.BulkIndexDocumentsRequest) -> list[str]:
    return [item.document.doc_id for item in request.requests]
