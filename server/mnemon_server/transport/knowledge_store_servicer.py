"""KnowledgeStoreService over gRPC. Every method has the same four steps: check, convert, call, convert."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1 import knowledge_store_pb2_grpc

from mnemon_server.domain.errors import InvalidArgumentError, MnemonError, NotServingError
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.transport import checks
from mnemon_server.transport.bulk import ReadAhead
from mnemon_server.transport.convert import documents as convert
from mnemon_server.transport.convert.records import (
    ACK_LEVELS,
    ignored_to_pb,
    metadata_from_pb,
    receipt_to_pb,
    scope_from_pb,
)
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.page_tokens import make_page_token, read_page_token
from mnemon_server.transport.status import Failure

if TYPE_CHECKING:
    from mnemon_server.services.knowledge_store import DocumentStore

BULK_REQUESTS_AHEAD, BULK_BYTES_AHEAD = 4, 4 << 20
"""Requests of one stream in work at once: enough to fill the embedder's batches while answers travel."""


_STARTING = pb.CheckHealthResponse(status=pb.HEALTH_STATUS_UNHEALTHY, message="the server is starting")


class KnowledgeStoreServicer(knowledge_store_pb2_grpc.KnowledgeStoreServiceServicer):
    """Answers UNAVAILABLE until a store is attached; only CheckHealth never fails."""

    def __init__(self) -> None:
        self._attached: DocumentStore | None = None

    def attach(self, store: "DocumentStore") -> None:
        """Serves this store from now on."""
        self._attached = store

    async def IndexDocument(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.IndexDocumentRequest, context: Context
    ) -> pb.IndexDocumentResponse:
        checks.check_index_document(request)
        receipt = await self._store.index(convert.index_request_from_pb(request))
        return pb.IndexDocumentResponse(receipt=receipt_to_pb(receipt))

    async def IndexDocuments(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.IndexDocumentsRequest], context: Context
    ) -> AsyncIterator[pb.IndexDocumentsResponse]:
        ahead = ReadAhead(
            self._index_run,
            keys=_doc_ids,
            weight=pb.IndexDocumentsRequest.ByteSize,
            ahead=BULK_REQUESTS_AHEAD,
            weight_max=BULK_BYTES_AHEAD,
        )
        async for response in ahead.run(request_iterator):
            yield response

    async def SearchDocuments(  # noqa: N802
        self, request: pb.SearchDocumentsRequest, context: Context
    ) -> pb.SearchDocumentsResponse:
        checks.check_search_documents(request)
        answer = await self._store.find(convert.search_query_from_pb(request))
        return await convert.answer_to_pb(answer, convert.VIEWS[request.view])

    async def GetDocument(self, request: pb.GetDocumentRequest, context: Context) -> pb.GetDocumentResponse:  # noqa: N802
        checks.check_get_document(request)
        view = convert.VIEWS[request.view]
        document = await self._store.get(request.doc_id, vectors=view.vectors)
        return pb.GetDocumentResponse(document=convert.document_to_pb(document, view))

    async def ListDocuments(  # noqa: N802
        self, request: pb.ListDocumentsRequest, context: Context
    ) -> pb.ListDocumentsResponse:
        checks.check_list_documents(request)
        query, view = _page_query(request), convert.VIEWS[request.view]
        page = await self._store.list(
            filters=metadata_from_pb(request.filters),
            scope=scope_from_pb(request.scope),
            after=read_page_token(request.page_token, query),
            limit=min(request.page_size or checks.PAGE_SIZE_DEFAULT, checks.PAGE_SIZE_MAX),
            vectors=view.vectors,
        )
        token = "" if page.next_position is None else make_page_token(page.next_position, query)
        return await convert.page_to_pb(page, view, token)

    async def CountDocuments(  # noqa: N802
        self, request: pb.CountDocumentsRequest, context: Context
    ) -> pb.CountDocumentsResponse:
        checks.check_count_documents(request)
        count, ignored = await self._store.count(
            filters=metadata_from_pb(request.filters), scope=scope_from_pb(request.scope)
        )
        return pb.CountDocumentsResponse(count=count, ignored_filters=ignored_to_pb(ignored))

    async def DeleteDocument(  # noqa: N802
        self, request: pb.DeleteDocumentRequest, context: Context
    ) -> pb.DeleteDocumentResponse:
        checks.check_delete_document(request)
        receipt = await self._store.remove(
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
        receipt = await self._store.remove_matching(
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
        async for progress in self._store.rebuild_index():
            yield pb.RebuildIndexResponse(done=progress.done, total=progress.total)

    async def CheckHealth(self, request: pb.CheckHealthRequest, context: Context) -> pb.CheckHealthResponse:  # noqa: N802
        if self._attached is None:
            return _STARTING
        return convert.health_to_pb(await self._attached.check_health())

    @property
    def _store(self) -> "DocumentStore":
        if self._attached is None:
            raise NotServingError("the server is starting")
        return self._attached

    async def _index_run(self, request: pb.IndexDocumentsRequest) -> pb.IndexDocumentsResponse:
        """One request of the bulk stream. A document whose check fails is left out of the call, not of the answer."""
        checks.check_index_documents(request)
        failures = [_failure(item) for item in request.requests]
        good = [
            convert.index_request_from_pb(item)
            for item, failure in zip(request.requests, failures, strict=True)
            if failure is None
        ]
        written = iter(await self._store.index_many(good))
        outcomes = [failure or _outcome(next(written)) for failure in failures]
        return convert.index_results_to_pb((item.document.doc_id for item in request.requests), outcomes)


def _failure(item: pb.IndexDocumentRequest) -> Failure | None:
    try:
        checks.check_index_document(item)
    except InvalidArgumentError as error:
        return Failure.of(error)
    return None


def _outcome(result: WriteReceipt | MnemonError) -> WriteReceipt | Failure:
    return report(result) if isinstance(result, MnemonError) else result


def _doc_ids(request: pb.IndexDocumentsRequest) -> list[str]:
    return [item.document.doc_id for item in request.requests]


def _page_query(request: pb.ListDocumentsRequest) -> bytes:
    """What a page token is bound to: all but the token itself and the size of the page."""
    query = pb.ListDocumentsRequest()
    query.CopyFrom(request)
    query.ClearField("page_token")
    query.ClearField("page_size")
    return query.SerializeToString(deterministic=True)
