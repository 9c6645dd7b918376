"""Checks of the knowledge store's requests."""

from collections.abc import Iterator

from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.records import METADATA_KEYS_MAX, filter_value_problem, metadata_key_problem
from mnemon_server.domain.validation import (
    doc_id_violations,
    document_violations,
    refuse,
    request_id_violations,
    revision_violations,
    scope_violations,
)
from mnemon_server.transport.convert.documents import VIEWS, document_from_pb
from mnemon_server.transport.convert.shared.reading import (
    Metadata,
    others,
    page_size_violations,
    share_violations,
    unknown,
    unset_values,
)
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES, scope_from_pb, value_from_pb

FILTERS_MAX = METADATA_KEYS_MAX


def check_index_document(request: pb.IndexDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("document"):
        raise InvalidArgumentError.of("document", "is required")
    problems = [
        *unset_values("document.metadata", request.document.metadata),
        *unknown("ack", request.ack, ACK_LEVELS),
    ]
    if problems:
        # The store would not get to see the rest.
        rest = [*document_violations(document_from_pb(request.document)), *_terms(request)]
        refuse(others(problems, rest))


def check_search_documents(request: pb.SearchDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_search_violations(request))


def check_get_document(request: pb.GetDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*doc_id_violations(request.doc_id), *unknown("view", request.view, VIEWS)])


def check_list_documents(request: pb.ListDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(
        [
            *_query_violations(request.filters, request.scope),
            *unknown("view", request.view, VIEWS),
            *page_size_violations(request.page_size),
        ]
    )


def check_count_documents(request: pb.CountDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_query_violations(request.filters, request.scope))


def check_delete_document(request: pb.DeleteDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*doc_id_violations(request.doc_id), *_terms(request), *unknown("ack", request.ack, ACK_LEVELS)])


def check_delete_documents(request: pb.DeleteDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_bulk_delete_violations(request))


def _search_violations(request: pb.SearchDocumentsRequest) -> Iterator[FieldViolation]:
    if len(request.query.encode()) > QUERY_BYTES_MAX:
        yield FieldViolation("query", f"must be at most {QUERY_BYTES_MAX:,} bytes of UTF-8")
    yield from share_violations("min_score", request.min_score)
    yield from _query_violations(request.filters, request.scope)
    yield from unknown("mode", request.mode, SEARCH_MODES)
    yield from unknown("view", request.view, VIEWS)


def _bulk_delete_violations(request: pb.DeleteDocumentsRequest) -> Iterator[FieldViolation]:
    if not request.filters and request.scope == common_pb2.Scope():
        yield FieldViolation("filters", "must not be empty where scope is: that would delete everything")
    yield from _query_violations(request.filters, request.scope)
    for key, value in request.filters.items():
        if problem := metadata_key_problem(key):
            yield FieldViolation("filters", f"key {key[:80]!r}: {problem}")
        elif problem := filter_value_problem(value_from_pb(value)):
            yield FieldViolation(f"filters.{key}", problem)
    yield from request_id_violations(request.request_id)
    yield from unknown("ack", request.ack, ACK_LEVELS)


def _terms(request: pb.IndexDocumentRequest | pb.DeleteDocumentRequest) -> Iterator[FieldViolation]:
    yield from request_id_violations(request.request_id)
    if request.HasField("expected_revision"):
        yield from revision_violations(request.expected_revision)


def _query_violations(filters: Metadata, scope: common_pb2.Scope) -> Iterator[FieldViolation]:
    # A document has no more keys, so that more filters could match none; each one costs a look into the records.
    if len(filters) > FILTERS_MAX:
        yield FieldViolation("filters", f"must be at most {FILTERS_MAX}")
    yield from scope_violations(scope_from_pb(scope))
