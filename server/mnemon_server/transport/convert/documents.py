"""The knowledge store's requests and answers."""

from functools import partial
from itertools import chain
from typing import NamedTuple

from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import (
    TOP_K_DEFAULT,
    Document,
    DocumentFilter,
    DocumentPage,
    IndexRequest,
    Passage,
    SearchAnswer,
    SearchQuery,
    SearchResult,
    StoreHealth,
    UpdateDocument,
)
from mnemon_server.domain.records import METADATA_KEYS_MAX, AckLevel, View
from mnemon_server.domain.validation import doc_id_violations, request_id_violations
from mnemon_server.services.documents.checks import (
    index_violations,
    query_violations,
    removal_violations,
    update_violations,
)
from mnemon_server.services.documents.filters import filter_violations, strict_violations
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import (
    Reader,
    expected_revision,
    named,
    read_conditions,
    require,
    vector_from_pb,
)
from mnemon_server.transport.convert.shared.several import fill_each
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    STATES_TO_PB,
    VIEWS,
    fill_diagnostics,
    fill_metadata,
    fill_scope,
    fill_score,
    fill_time,
    filter_notes_to_pb,
    metadata_from_pb,
    scope_of,
)


def document_to_pb(document: Document, view: View) -> pb.Document:
    """The document, as much of it as the view shows."""
    message = pb.Document()
    fill_document(message, document, view)
    return message


def fill_document(target: pb.Document, document: Document, view: View = View.STANDARD) -> None:
    """Writes as much of a document as the view shows into a message of its own."""
    target.doc_id, target.revision = document.doc_id, document.revision
    if view is View.IDS:
        return
    target.content = document.content
    fill_scope(target, document.scope)
    fill_metadata(target.metadata, document.metadata)
    fill_time(target.create_time, document.create_time)
    fill_time(target.update_time, document.update_time)
    target.passage_count = len(document.passages)
    if view is View.FULL:
        for passage in document.passages:
            target.embeddings.add(values=passage.embedding or ())


async def page_to_pb(page: DocumentPage, view: View, next_page_token: str) -> pb.ListDocumentsResponse:
    """The page; yields to other calls."""
    message = pb.ListDocumentsResponse(next_page_token=next_page_token, **filter_notes_to_pb(page.filters))
    await fill_each(message.documents, page.documents, partial(fill_document, view=view))
    return message


async def answer_to_pb(answer: SearchAnswer, view: View, *, truncated: bool = False) -> pb.SearchDocumentsResponse:
    """The answer to a search; yields to other calls."""
    message = pb.SearchDocumentsResponse(truncated=truncated, **filter_notes_to_pb(answer.filters))
    fill_diagnostics(message.diagnostics, answer.diagnostics)
    message.diagnostics.returned = len(answer.results)
    await fill_each(message.results, answer.results, partial(_fill_match, view=view))
    return message


def health_to_pb(health: StoreHealth) -> pb.CheckHealthResponse:
    """The health of the store."""
    model = common_pb2.EmbeddingModel(
        name=health.model_name,
        revision=health.model_revision,
        precision=health.model_precision,
        dimension=health.dimension,
    )
    state, pending = STATES_TO_PB[health.status], health.pending
    return filled(pb.CheckHealthResponse(), health, state=state, embedding_model=model, pending_count=pending)


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


Filtered = pb.SearchDocumentsRequest | pb.ListDocumentsRequest | pb.CountDocumentsRequest | pb.DeleteDocumentsRequest
"""A request that says which documents it is about."""


class Page(NamedTuple):
    """Which documents a page is of, how many it has at most, and how much of each is shown."""

    where: DocumentFilter
    limit: int
    view: View


def read_index(request: pb.IndexDocumentRequest) -> IndexRequest:
    """The document to store."""
    require(request, "document")
    reader = Reader()
    index = IndexRequest(
        document=_document(reader, request.document),
        request_id=request.request_id,
        expected_revision=expected_revision(request),
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
    )
    reader.finish(index_violations(index))
    return index


def read_update(request: pb.UpdateDocumentRequest) -> UpdateDocument:
    """The change of a document; of the document that comes with it, only what the mask names counts."""
    require(request, "document")
    mask = tuple(request.update_mask.paths)
    of_document, reader = Reader(), Reader()
    document = _document(of_document, request.document)
    reader.violations += named(of_document.violations, mask, "document")
    change = UpdateDocument(
        document=document,
        mask=mask,
        set_metadata=reader.metadata("set_metadata", request.set_metadata),
        remove_metadata=tuple(request.remove_metadata),
        request_id=request.request_id,
        expected_revision=expected_revision(request),
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
    )
    reader.finish(update_violations(change))
    return change


def read_search(request: pb.SearchDocumentsRequest) -> SearchQuery:
    """The search."""
    reader = Reader()
    reader.as_of(request)
    if request.limit < 0:
        reader.note("limit", "must not be negative; 0 is the default")
    query = SearchQuery(
        text=request.query,
        vector=vector_from_pb(request.vector),
        top_k=request.limit or TOP_K_DEFAULT,
        where=_where(reader, request),
        mode=reader.enum("mode", request.mode, SEARCH_MODES) if request.mode else None,
        min_score=request.min_score,
        view=reader.enum("view", request.view, VIEWS),
    )
    reader.finish(query_violations(query, len(request.vector)))
    return query


def read_view(request: pb.GetDocumentRequest) -> View:
    """How much of a document is asked for."""
    reader = Reader()
    reader.as_of(request)
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(doc_id_violations(request.doc_id))
    return view


def read_list(request: pb.ListDocumentsRequest) -> Page:
    """The page."""
    reader = Reader()
    reader.as_of(request)
    page = Page(
        where=_where(reader, request),
        limit=reader.page_size(request.page_size),
        view=reader.enum("view", request.view, VIEWS),
    )
    reader.finish(filter_violations(page.where))
    return page


def read_count(request: pb.CountDocumentsRequest) -> DocumentFilter:
    """Which documents are to be counted."""
    reader = Reader()
    where = _where(reader, request)
    reader.finish(filter_violations(where))
    return where


def read_deletion(request: pb.DeleteDocumentRequest) -> AckLevel:
    """When a deletion is to be answered."""
    reader = Reader()
    ack = reader.enum("ack", request.ack, ACK_LEVELS)
    reader.finish(removal_violations(request.doc_id, request.request_id, expected_revision(request)))
    return ack


def read_deletions(request: pb.DeleteDocumentsRequest) -> tuple[DocumentFilter, AckLevel]:
    """Which documents are to be deleted, and when to answer."""
    reader = Reader()
    where = _where(reader, request)
    ack = reader.enum("ack", request.ack, ACK_LEVELS)
    reader.finish(chain(strict_violations(where), request_id_violations(request.request_id)))
    return where, ack


def _document(reader: Reader, message: pb.Document) -> Document:
    """The document; what only the server sets is left out."""
    return Document(
        doc_id=message.doc_id,
        content=message.content,
        metadata=reader.metadata("document.metadata", message.metadata),
        scope=scope_of(message),
    )


def _where(reader: Reader, request: Filtered) -> DocumentFilter:
    """The filter of documents. `filters` are not checked here, since the service ignores or refuses invalid ones."""
    # A document has no more keys, so that more filters could match none; each one costs a look into the records.
    if len(request.filters) > METADATA_KEYS_MAX:
        reader.note("filters", f"must be at most {METADATA_KEYS_MAX}")
    message = request.filter
    return DocumentFilter(
        filters=metadata_from_pb(request.filters),
        scope=scope_of(message),
        expression=read_conditions(reader, message),
    )
