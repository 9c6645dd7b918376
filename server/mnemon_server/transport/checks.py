"""What a message can get wrong before it is a value: what is missing, unset, unknown, or beyond a message's limits.

Limits of the values themselves are the domain's (`domain/validation.py`); they are asked here only to name every
violation of a request at once.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

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
from mnemon_server.transport.convert.records import ACK_LEVELS, SEARCH_MODES, scope_from_pb, value_from_pb

BULK_REQUESTS_MAX = 1000
FILTERS_MAX = METADATA_KEYS_MAX
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1000

Filters = Mapping[str, common_pb2.MetadataValue]


def check_index_document(request: pb.IndexDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("document"):
        raise InvalidArgumentError.of("document", "is required")
    problems = [*_values_that_are_none(request.document.metadata), *_unknown("ack", request.ack, ACK_LEVELS)]
    if problems:
        # The store would not get to see the rest.
        named = {problem.field for problem in problems}
        rest = [*document_violations(document_from_pb(request.document)), *_terms(request)]
        refuse([*problems, *(violation for violation in rest if violation.field not in named)])


def check_index_documents(request: pb.IndexDocumentsRequest) -> None:
    """Raises InvalidArgumentError where the run is empty or too long."""
    if not 1 <= len(request.requests) <= BULK_REQUESTS_MAX:
        raise InvalidArgumentError.of("requests", f"must be 1 to {BULK_REQUESTS_MAX:,}; send several messages")


def check_search_documents(request: pb.SearchDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_search_violations(request))


def check_get_document(request: pb.GetDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*doc_id_violations(request.doc_id), *_unknown("view", request.view, VIEWS)])


def check_list_documents(request: pb.ListDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    problems = [*_query_violations(request.filters, request.scope), *_unknown("view", request.view, VIEWS)]
    if request.page_size < 0:
        problems.append(FieldViolation("page_size", "must not be negative; 0 is the default"))
    refuse(problems)


def check_count_documents(request: pb.CountDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_query_violations(request.filters, request.scope))


def check_delete_document(request: pb.DeleteDocumentRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*doc_id_violations(request.doc_id), *_terms(request), *_unknown("ack", request.ack, ACK_LEVELS)])


def check_delete_documents(request: pb.DeleteDocumentsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_bulk_delete_violations(request))


def _search_violations(request: pb.SearchDocumentsRequest) -> Iterator[FieldViolation]:
    if len(request.query.encode()) > QUERY_BYTES_MAX:
        yield FieldViolation("query", f"must be at most {QUERY_BYTES_MAX:,} bytes of UTF-8")
    if not (math.isfinite(request.min_score) and 0 <= request.min_score <= 1):
        yield FieldViolation("min_score", "must be from 0 to 1")
    yield from _query_violations(request.filters, request.scope)
    yield from _unknown("mode", request.mode, SEARCH_MODES)
    yield from _unknown("view", request.view, VIEWS)


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
    yield from _unknown("ack", request.ack, ACK_LEVELS)


def _terms(request: pb.IndexDocumentRequest | pb.DeleteDocumentRequest) -> Iterator[FieldViolation]:
    yield from request_id_violations(request.request_id)
    if request.HasField("expected_revision"):
        yield from revision_violations(request.expected_revision)


def _query_violations(filters: Filters, scope: common_pb2.Scope) -> Iterator[FieldViolation]:
    # A document has no more keys, so that more filters could match none; each one costs a look into the records.
    if len(filters) > FILTERS_MAX:
        yield FieldViolation("filters", f"must be at most {FILTERS_MAX}")
    yield from scope_violations(scope_from_pb(scope))


def _values_that_are_none(metadata: Filters) -> Iterator[FieldViolation]:
    for key, value in metadata.items():
        if value_from_pb(value) is None:
            problem = "must be set; null is not a value"
            if value.HasField("timestamp_value"):
                problem = "must be a time from year 1 to 9999, with 0 to 999,999,999 nanoseconds"
            yield FieldViolation(f"document.metadata.{key}", problem)


def _unknown(field: str, number: int, known: Collection[int]) -> Iterable[FieldViolation]:
    """A promise that this server does not know must not be broken without a word."""
    if number not in known:
        yield FieldViolation(field, f"must be one of {', '.join(map(str, sorted(known)))}; {number} is not known")
