"""Requests to the knowledge store as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`.
"""

from itertools import chain
from typing import NamedTuple

from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import (
    TOP_K_DEFAULT,
    Document,
    DocumentFilter,
    IndexRequest,
    SearchQuery,
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
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision, named, require
from mnemon_server.transport.convert.shared.vectors import vector_from_pb
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES, VIEWS, metadata_from_pb, scope_of

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
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(doc_id_violations(request.doc_id))
    return view


def read_list(request: pb.ListDocumentsRequest) -> Page:
    """The page."""
    reader = Reader()
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
        expression=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
    )
