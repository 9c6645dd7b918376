"""Checks of the knowledge store's requests."""

from collections.abc import Callable, Iterable, Iterator

from mnemon.v1 import knowledge_store_pb2 as pb

from mnemon_server.domain.documents import QUERY_BYTES_MAX, DocumentFilter
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.records import METADATA_KEYS_MAX
from mnemon_server.domain.validation import (
    doc_id_violations,
    document_violations,
    refuse,
    request_id_violations,
    revision_violations,
)
from mnemon_server.services.documents.changes import update_violations
from mnemon_server.services.documents.filters import filter_violations, strict_violations
from mnemon_server.transport.checks.filters import shape_violations
from mnemon_server.transport.convert.documents import (
    Filtered,
    document_from_pb,
    update_request_from_pb,
    where_from_pb,
)
from mnemon_server.transport.convert.shared.reading import (
    others,
    page_size_violations,
    share_violations,
    unknown,
    unset_values,
)
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES, VIEWS

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


def check_update_document(request: pb.UpdateDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong; of the document, only what the mask names counts."""
    if not request.HasField("document"):
        raise InvalidArgumentError.of("document", "is required")
    problems = [*unset_values("set_metadata", request.set_metadata), *unknown("ack", request.ack, ACK_LEVELS)]
    if "metadata" in request.update_mask.paths:
        problems += unset_values("document.metadata", request.document.metadata)
    if problems:
        # The store would not get to see the rest.
        request.ClearField("ack")
        refuse(others(problems, update_violations(update_request_from_pb(request))))


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
            *_where_violations(request),
            *unknown("view", request.view, VIEWS),
            *page_size_violations(request.page_size),
        ]
    )


def check_count_documents(request: pb.CountDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_where_violations(request))


def check_delete_document(request: pb.DeleteDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*doc_id_violations(request.doc_id), *_terms(request), *unknown("ack", request.ack, ACK_LEVELS)])


def check_delete_documents(request: pb.DeleteDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_bulk_delete_violations(request))


def _search_violations(request: pb.SearchDocumentsRequest) -> Iterator[FieldViolation]:
    if len(request.query.encode()) > QUERY_BYTES_MAX:
        yield FieldViolation("query", f"must be at most {QUERY_BYTES_MAX:,} bytes of UTF-8")
    if request.limit < 0:
        yield FieldViolation("limit", "must not be negative; 0 is the default")
    yield from share_violations("min_score", request.min_score)
    yield from _where_violations(request)
    yield from unknown("mode", request.mode, SEARCH_MODES)
    yield from unknown("view", request.view, VIEWS)


def _bulk_delete_violations(request: pb.DeleteDocumentsRequest) -> Iterator[FieldViolation]:
    yield from _where_violations(request, filter_violations=strict_violations)
    yield from request_id_violations(request.request_id)
    yield from unknown("ack", request.ack, ACK_LEVELS)


def _terms(request: pb.IndexDocumentRequest | pb.DeleteDocumentRequest) -> Iterator[FieldViolation]:
    yield from request_id_violations(request.request_id)
    if request.HasField("expected_revision"):
        yield from revision_violations(request.expected_revision)


def _where_violations(
    request: Filtered, *, filter_violations: Callable[[DocumentFilter], Iterable[FieldViolation]] = filter_violations
) -> list[FieldViolation]:
    found = []
    # A document has no more keys, so that more filters could match none; each one costs a look into the records.
    if len(request.filters) > FILTERS_MAX:
        found.append(FieldViolation("filters", f"must be at most {FILTERS_MAX}"))
    if request.filter.HasField("filter") and (problems := shape_violations("filter.filter", request.filter.filter)):
        found += problems
        # What is no expression is no filter yet; the rest of it is.
        request.filter.ClearField("filter")
    return [*found, *filter_violations(where_from_pb(request))]
