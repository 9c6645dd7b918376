"""KnowledgeStoreService over gRPC. Every method has the same four steps: check, convert, call, convert."""

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1 import knowledge_store_pb2_grpc

from mnemon_server.transport.checks import documents as checks
from mnemon_server.transport.convert import documents as convert
from mnemon_server.transport.convert.shared.reading import check_bulk, page_size
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import ReadAhead, write_each
from mnemon_server.transport.servicers.page_tokens import next_page_token, page_query, read_page_token
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.wire.values import (
    ACK_LEVELS,
    ignored_to_pb,
    metadata_from_pb,
    receipt_to_pb,
    scope_from_pb,
)

if TYPE_CHECKING:
    from mnemon_server.services.documents.store import DocumentStore


class KnowledgeStoreServicer(TenantServicer, knowledge_store_pb2_grpc.KnowledgeStoreServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only CheckHealth never fails."""

    async def IndexDocument(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.IndexDocumentRequest, context: Context
    ) -> pb.IndexDocumentResponse:
        checks.check_index_document(request)
        async with self.vault(context) as vault:
            receipt = await vault.documents.index(convert.index_request_from_pb(request))
        return pb.IndexDocumentResponse(receipt=receipt_to_pb(receipt))

    async def IndexDocuments(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.IndexDocumentsRequest], context: Context
    ) -> AsyncIterator[pb.IndexDocumentsResponse]:
        async with self.vault(context) as vault:
            ahead = ReadAhead(
                partial(_index_run, vault.documents), keys=_doc_ids, weight=pb.IndexDocumentsRequest.ByteSize
            )
            async for response in ahead.run(request_iterator):
                yield response

    async def SearchDocuments(  # noqa: N802
        self, request: pb.SearchDocumentsRequest, context: Context
    ) -> pb.SearchDocumentsResponse:
        checks.check_search_documents(request)
        async with self.vault(context) as vault:
            answer = await vault.documents.find(convert.search_query_from_pb(request))
        return await convert.answer_to_pb(answer, convert.VIEWS[request.view])

    async def GetDocument(self, request: pb.GetDocumentRequest, context: Context) -> pb.GetDocumentResponse:  # noqa: N802
        checks.check_get_document(request)
        view = convert.VIEWS[request.view]
        async with self.vault(context) as vault:
            document = await vault.documents.get(request.doc_id, vectors=view.vectors)
        return pb.GetDocumentResponse(document=convert.document_to_pb(document, view))

    async def ListDocuments(  # noqa: N802
        self, request: pb.ListDocumentsRequest, context: Context
    ) -> pb.ListDocumentsResponse:
        checks.check_list_documents(request)
        query, view = page_query(request), convert.VIEWS[request.view]
        async with self.vault(context) as vault:
            page = await vault.documents.list(
                filters=metadata_from_pb(request.filters),
                scope=scope_from_pb(request.scope),
                after=read_page_token(request.page_token, query),
                limit=page_size(request.page_size),
                vectors=view.vectors,
            )
        return await convert.page_to_pb(page, view, next_page_token(page.next_position, query))

    async def CountDocuments(  # noqa: N802
        self, request: pb.CountDocumentsRequest, context: Context
    ) -> pb.CountDocumentsResponse:
        checks.check_count_documents(request)
        async with self.vault(context) as vault:
            count, ignored = await vault.documents.count(
                filters=metadata_from_pb(request.filters), scope=scope_from_pb(request.scope)
            )
        return pb.CountDocumentsResponse(count=count, ignored_filters=ignored_to_pb(ignored))

    async def DeleteDocument(  # noqa: N802
        self, request: pb.DeleteDocumentRequest, context: Context
    ) -> pb.DeleteDocumentResponse:
        checks.check_delete_document(request)
        async with self.vault(context) as vault:
            receipt = await vault.documents.remove(
                request.doc_id,
                request_id=request.request_id,
                expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
                allow_missing=request.allow_missing,
                ack=ACK_LEVELS[request.ack],
            )
        return pb.DeleteDocumentResponse(receipt=receipt_to_pb(receipt))

    async def DeleteDocuments(  # noqa: N802
        self, request: pb.DeleteDocumentsRequest, context: Context
    ) -> pb.DeleteDocumentsResponse:
        checks.check_delete_documents(request)
        async with self.vault(context) as vault:
            receipt = await vault.documents.remove_matching(
                filters=metadata_from_pb(request.filters),
                scope=scope_from_pb(request.scope),
                dry_run=request.dry_run,
                request_id=request.request_id,
                ack=ACK_LEVELS[request.ack],
            )
        return pb.DeleteDocumentsResponse(deleted_count=receipt.deleted_count, replayed=receipt.replayed)

    async def RebuildIndex(  # noqa: N802
        self, request: pb.RebuildIndexRequest, context: Context
    ) -> AsyncIterator[pb.RebuildIndexResponse]:
        async with self.vault(context) as vault:
            async for progress in vault.documents.rebuild_index():
                yield pb.RebuildIndexResponse(done=progress.done, total=progress.total)

    async def CheckHealth(self, request: pb.CheckHealthRequest, context: Context) -> pb.CheckHealthResponse:  # noqa: N802
        try:
            async with self.vault(context) as vault:
                return convert.health_to_pb(await vault.documents.check_health())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.CheckHealthResponse(status=pb.HEALTH_STATUS_UNHEALTHY, message=report(error).message)


async def _index_run(store: "DocumentStore", request: pb.IndexDocumentsRequest) -> pb.IndexDocumentsResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_each(
        request.requests,
        check=checks.check_index_document,
        convert=convert.index_request_from_pb,
        write=store.index_many,
    )
    return convert.index_results_to_pb((item.document.doc_id for item in request.requests), outcomes)


def _doc_ids(request: pb.IndexDocumentsRequest) -> list[str]:
    return [item.document.doc_id for item in request.requests]
