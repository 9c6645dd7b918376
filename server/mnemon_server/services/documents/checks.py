"""Checks of requests to the knowledge store, which name every problem with its field."""

from collections.abc import Iterable

from mnemon_server.domain.documents import QUERY_BYTES_MAX, IndexRequest, SearchQuery, UpdateDocument
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.validation import (
    doc_id_violations,
    document_violations,
    request_id_violations,
    revision_violations,
    share_violations,
)
from mnemon_server.services.documents.filters import filter_violations
from mnemon_server.services.writing.field_masks import change_violations, in_mask
from mnemon_server.services.writing.writes import vector_violations

FIELDS = ("content", "metadata", "scope")
_OUTPUT_ONLY = ("doc_id", "revision", "create_time", "update_time", "passage_count", "embeddings")


def index_violations(request: IndexRequest) -> Iterable[FieldViolation]:
    """Violations in a request to store a document."""
    yield from document_violations(request.document)
    yield from request_id_violations(request.request_id)
    yield from revision_violations(request.expected_revision)


def update_violations(request: UpdateDocument) -> Iterable[FieldViolation]:
    """Violations in a change, as far as they show without the document; only values that count are checked."""
    document = request.document
    yield from doc_id_violations(document.doc_id, "document.doc_id")
    yield from change_violations(request, FIELDS, output_only=_OUTPUT_ONLY)
    yield from in_mask(document_violations(document), request, "document")
    yield from request_id_violations(request.request_id)
    yield from revision_violations(request.expected_revision)


def query_violations(query: SearchQuery, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a search, except in ignored parts; `dimension` is the model's."""
    if len(query.text.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
        yield FieldViolation("query", f"must be at most {QUERY_BYTES_MAX:,} bytes of UTF-8")
    yield from vector_violations(query.vector, dimension, "vector")
    yield from share_violations(query.min_score, "min_score")
    yield from filter_violations(query.where)


def removal_violations(doc_id: str, request_id: str, expected_revision: int | None) -> Iterable[FieldViolation]:
    """Violations in the removal of a document."""
    yield from doc_id_violations(doc_id)
    yield from request_id_violations(request_id)
    yield from revision_violations(expected_revision)
