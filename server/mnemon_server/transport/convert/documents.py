"""Conversion of the knowledge store's requests and answers. Both directions."""

from collections.abc import Iterable
from dataclasses import dataclass

from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import (
    TOP_K_DEFAULT,
    Document,
    DocumentPage,
    HealthStatus,
    IndexRequest,
    Passage,
    SearchAnswer,
    SearchQuery,
    SearchResult,
    StoreHealth,
)
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.transport.convert.shared.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    diagnostics_to_pb,
    duration_to_pb,
    fill_metadata,
    fill_scope,
    fill_time,
    ignored_to_pb,
    metadata_from_pb,
    receipt_to_pb,
    scope_from_pb,
)

_STATUSES_TO_PB = {status: pb.HealthStatus.Value(f"HEALTH_STATUS_{status.name}") for status in HealthStatus}


@dataclass(frozen=True, slots=True)
class View:
    """What of a document is returned."""

    content: bool
    vectors: bool


VIEWS = {
    pb.DOCUMENT_VIEW_UNSPECIFIED: View(content=True, vectors=False),
    pb.DOCUMENT_VIEW_BASIC: View(content=False, vectors=False),
    pb.DOCUMENT_VIEW_STANDARD: View(content=True, vectors=False),
    pb.DOCUMENT_VIEW_FULL: View(content=True, vectors=True),
}


def document_from_pb(message: pb.Document) -> Document:
    """The document to store; what only the server sets is left out."""
    return Document(
        doc_id=message.doc_id,
        content=message.content,
        metadata=metadata_from_pb(message.metadata),
        scope=scope_from_pb(message.scope),
    )


def index_request_from_pb(message: pb.IndexDocumentRequest) -> IndexRequest:
    """The request to store a document."""
    return IndexRequest(
        document=document_from_pb(message.document),
        request_id=message.request_id,
        expected_revision=message.expected_revision if message.HasField("expected_revision") else None,
        ack=ACK_LEVELS[message.ack],
    )


def search_query_from_pb(message: pb.SearchDocumentsRequest) -> SearchQuery:
    """The search; filters are as they came, valid or not."""
    return SearchQuery(
        text=message.query,
        top_k=message.top_k if message.HasField("top_k") else TOP_K_DEFAULT,
        filters=metadata_from_pb(message.filters),
        scope=scope_from_pb(message.scope),
        mode=SEARCH_MODES[message.mode],
        min_score=message.min_score,
        vectors=VIEWS[message.view].vectors,
    )


def document_to_pb(document: Document, view: View) -> pb.Document:
    """The document, as much of it as the view shows."""
    message = pb.Document()
    fill_document(message, document, view)
    return message


def fill_document(target: pb.Document, document: Document, view: View) -> None:
    """Writes as much of a document as the view shows into a message of its own."""
    target.doc_id = document.doc_id
    if view.content:
        target.content = document.content
    fill_scope(target, document.scope)
    fill_metadata(target.metadata, document.metadata)
    target.revision = document.revision
    if document.create_time:
        fill_time(target.create_time, document.create_time)
    if document.update_time:
        fill_time(target.update_time, document.update_time)
    target.passage_count = len(document.passages)
    if view.vectors:
        for passage in document.passages:
            target.embeddings.add(values=passage.embedding or ())


async def page_to_pb(page: DocumentPage, view: View, next_page_token: str) -> pb.ListDocumentsResponse:
    """The page; lets other calls through where it is long."""
    message = pb.ListDocumentsResponse(
        next_page_token=next_page_token, ignored_filters=ignored_to_pb(page.ignored_filters)
    )
    pause = Pause()
    for document in page.documents:
        fill_document(message.documents.add(), document, view)
        await pause.where_due()
    return message


async def answer_to_pb(answer: SearchAnswer, view: View) -> pb.SearchDocumentsResponse:
    """The answer to a search; lets other calls through where it is long."""
    message = pb.SearchDocumentsResponse(
        ignored_filters=ignored_to_pb(answer.ignored_filters), diagnostics=diagnostics_to_pb(answer.diagnostics)
    )
    pause = Pause()
    for result in answer.results:
        _fill_result(message.results.add(), result, view)
        await pause.where_due()
    return message


def index_results_to_pb(
    doc_ids: Iterable[str], outcomes: Iterable[WriteReceipt | Failure]
) -> pb.IndexDocumentsResponse:
    """What became of each document of a run."""
    results = []
    for doc_id, outcome in zip(doc_ids, outcomes, strict=True):
        if isinstance(outcome, Failure):
            results.append(pb.IndexDocumentResult(doc_id=doc_id, error=outcome.to_item_error()))
        else:
            results.append(pb.IndexDocumentResult(doc_id=doc_id, receipt=receipt_to_pb(outcome)))
    return pb.IndexDocumentsResponse(results=results)


def health_to_pb(health: StoreHealth) -> pb.CheckHealthResponse:
    """How the store is."""
    return pb.CheckHealthResponse(
        status=_STATUSES_TO_PB[health.status],
        message=health.message,
        backend=health.backend,
        host=health.host,
        collection=health.collection,
        embedding_model=pb.EmbeddingModel(
            name=health.model_name,
            revision=health.model_revision,
            precision=health.model_precision,
            dimension=health.dimension,
        ),
        document_count=health.document_count,
        passage_count=health.passage_count,
        pending=health.pending,
        latency=None if health.latency_s is None else duration_to_pb(health.latency_s),
    )


def _fill_result(target: pb.SearchResult, result: SearchResult, view: View) -> None:
    document = result.document or Document(result.doc_id, result.content, result.metadata)
    fill_document(target.document, document, view)
    target.score, target.source = result.score, result.source
    if result.vector_score is not None:
        target.vector_score = result.vector_score
    if result.keyword_score is not None:
        target.keyword_score = result.keyword_score
    if result.passage is not None:
        _fill_passage(target.passage, result.passage)


def _fill_passage(target: pb.Passage, passage: Passage) -> None:
    # Also where all of it is zero, there is a passage.
    target.SetInParent()
    target.index, target.start, target.end = passage.index, passage.start, passage.end
