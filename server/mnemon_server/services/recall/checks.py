"""Checks of recalls."""

from collections.abc import Iterable, Iterator

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import expression_violations
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import namespace_violations
from mnemon_server.domain.recall import (
    KINDS_MAX,
    LIMIT_MAX,
    MESSAGES_MAX,
    RECALLED,
    ROLE_BYTES_MAX,
    TOKENS_MAX,
    RecallQuery,
)
from mnemon_server.domain.validation import scope_violations, share_violations, text_violations
from mnemon_server.services.reading.filter_expressions import FIELDS_OF
from mnemon_server.services.writing.writes import vector_violations

_CHOICE = ", ".join(RECALLED)


def query_violations(query: RecallQuery, dimension: int) -> Iterator[FieldViolation]:
    """Violations in a recall."""
    yield from _question_violations(query, dimension)
    yield from scope_violations(query.scope)
    if query.namespace:
        yield from namespace_violations(query.namespace, "namespace")
    yield from _kind_violations(query)
    if query.start is not None and query.end is not None and query.start > query.end:
        yield FieldViolation("time.end_time", "must not be before time.start_time")
    if not 0 <= query.limit <= LIMIT_MAX:
        yield FieldViolation("limit", f"must be 1 to {LIMIT_MAX}, or 0 for the default")
    if not 0 <= query.max_tokens <= TOKENS_MAX:
        yield FieldViolation("max_tokens", f"must be 1 to {TOKENS_MAX:,}, or 0 for the default")
    yield from share_violations(query.min_relevance, "min_relevance")
    yield from share_violations(query.min_confidence, "min_confidence")


def _question_violations(query: RecallQuery, dimension: int) -> Iterator[FieldViolation]:
    yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
    yield from vector_violations(query.vector, dimension, "vector")
    if query.messages and (query.text or query.vector is not None):
        yield FieldViolation("messages", "must be empty if there is a query or a vector: the question is in them")
    if len(query.messages) > MESSAGES_MAX:
        yield FieldViolation("messages", f"must be at most {MESSAGES_MAX}: the newest ones are enough")
        return
    for number, message in enumerate(query.messages):
        yield from text_violations(message.role, f"messages[{number}].role", ROLE_BYTES_MAX)
        yield from text_violations(message.content, f"messages[{number}].content", QUERY_BYTES_MAX)


def _kind_violations(query: RecallQuery) -> Iterable[FieldViolation]:
    if len(query.kinds) > KINDS_MAX:
        yield FieldViolation("kinds", f"must be at most {KINDS_MAX}; each one is needed once only")
        return
    for number, kind in enumerate(query.kinds):
        if kind not in RECALLED:
            yield FieldViolation(f"kinds[{number}]", f"must be one of {_CHOICE}; no other kind is searched by text")
    seen = set[RecordKind]()
    for number, (kind, expression) in enumerate(query.filters):
        if kind not in RECALLED:
            yield FieldViolation(f"kind_filters[{number}].kind", f"must be one of {_CHOICE}")
            continue
        if kind in seen:
            yield FieldViolation(
                f"kind_filters[{number}].kind", f"must name each kind once; join both filters of {kind}"
            )
        seen.add(kind)
        yield from expression_violations(expression, FIELDS_OF[kind], f"kind_filters[{number}].filter")
