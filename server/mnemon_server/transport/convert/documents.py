"""Answers of the knowledge store as messages."""

from collections.abc import Iterable

from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import (
    Document,
    DocumentPage,
    Passage,
    SearchAnswer,
    SearchResult,
    StoreHealth,
)
from mnemon_server.domain.records import View, WriteReceipt
from mnemon_server.services.background.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    STATES_TO_PB,
    diagnostics_to_pb,
    duration_to_pb,
    fill_metadata,
    fill_scope,
    fill_score,
    fill_time,
    filter_notes_to_pb,
    receipt_to_pb,
)


def document_to_pb(document: Document, view: View) -> pb.Document:
    """The document, as much of it as the view shows."""
    message = pb.Document()
    fill_document(message, document, view)
    return message


def fill_document(target: pb.Document, document: Document, view: View) -> None:
    """Writes as much of a document as the view shows into a message of its own."""
    target.doc_id, target.revision = document.doc_id, document.revision
    if view is View.IDS:
        return
    target.content = document.content
    fill_scope(target, document.scope)
    fill_metadata(target.metadata, document.metadata)
    if document.create_time:
        fill_time(target.create_time, document.create_time)
    if document.update_time:
        fill_time(target.update_time, document.update_time)
    target.passage_count = len(document.passages)
    if view is View.FULL:
        for passage in document.passages:
            target.embeddings.add(values=passage.embedding or ())


async def page_to_pb(page: DocumentPage, view: View, next_page_token: str) -> pb.ListDocumentsResponse:
    """The page; yields to other calls."""
    message = pb.ListDocumentsResponse(next_page_token=next_page_token, **filter_notes_to_pb(page.filters))
    pause = Pause()
    for document in page.documents:
        fill_document(message.documents.add(), document, view)
        await pause.where_due()
    return message


async def answer_to_pb(answer: SearchAnswer, view: View, *, truncated: bool = False) -> pb.SearchDocumentsResponse:
    """The answer to a search; yields to other calls."""
    message = pb.SearchDocumentsResponse(
        diagnostics=diagnostics_to_pb(answer.diagnostics), truncated=truncated, **filter_notes_to_pb(answer.filters)
    )
    message.diagnostics.returned = len(answer.results)
    pause = Pause()
    for result in answer.results:
        _fill_match(message.results.add(), result, view)
        await pause.where_due()
    return message


def index_results_to_pb(
    doc_ids: Iterable[str], outcomes: Iterable[WriteReceipt | Failure]
) -> pb.BulkIndexDocumentsResponse:
    """The outcome of each document of a run."""
    results = []
    for doc_id, outcome in zip(doc_ids, outcomes, strict=True):
        if isinstance(outcome, Failure):
            results.append(pb.IndexDocumentResult(doc_id=doc_id, error=outcome.to_item_error()))
        else:
            results.append(pb.IndexDocumentResult(doc_id=doc_id, receipt=receipt_to_pb(outcome)))
    return pb.BulkIndexDocumentsResponse(results=results)


def health_to_pb(health: StoreHealth) -> pb.CheckHealthResponse:
    """The health of the store."""
    return pb.CheckHealthResponse(
        state=STATES_TO_PB[health.status],
        message=health.message,
        backend=health.backend,
        host=health.host,
        collection=health.collection,
        embedding_model=common_pb2.EmbeddingModel(
            name=health.model_name,
            revision=health.model_revision,
            precision=health.model_precision,
            dimension=health.dimension,
        ),
        document_count=health.document_count,
        passage_count=health.passage_count,
        pending_count=health.pending,
        latency=None if health.latency_s is None else duration_to_pb(health.latency_s),
        removal_pending_count=health.removal_pending_count,
        removal_out_of_reach_count=health.removal_out_of_reach_count,
    )


def _fill_match(target: pb.DocumentMatch, result: SearchResult, view: View) -> None:
    document = result.document or Document(result.doc_id, result.content, result.metadata)
    fill_document(target.document, document, view)
    fill_score(target.score, result.score, vector=result.vector_score, keyword=result.keyword_score)
    target.source = result.source
    if result.passage is not None:
        _fill_passage(target.passage, result.passage)


def _fill_passage(target: pb.Passage, passage: Passage) -> None:
    # A passage is set even if all of its fields are zero.
    target.SetInParent()
    target.index, target.start, target.end = passage.index, passage.start, passage.end
