"""Checks of statements, of searches for them and of deletions: every problem is named with its field."""

from collections.abc import Iterable, Sequence

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.records import SearchMode
from mnemon_server.domain.rules import RULE_NAME_BYTES_MAX
from mnemon_server.domain.semantic import (
    IDS_MAX,
    KEYWORD_BYTES_MAX,
    KEYWORDS_MAX,
    SOURCE_BYTES_MAX,
    SUMMARY_BYTES_MAX,
    TOP_K_MAX,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarQuery,
)
from mnemon_server.domain.validation import (
    content_violations,
    doc_id_violations,
    metadata_violations,
    request_id_violations,
    revision_violations,
    scope_violations,
    share_violations,
    text_violations,
)
from mnemon_server.services.semantic.filters import filter_violations
from mnemon_server.services.writing.writes import vector_violations


def refuse_other_scope(memory: SemanticMemory, other: SemanticMemory, field: str, other_field: str) -> None:
    """Raises InvalidArgumentError if two statements do not belong to the same user, household and persona."""
    for name in ("user", "household", "persona"):
        if getattr(memory.scope, name) != getattr(other.scope, name):
            raise InvalidArgumentError.of(field, f"must belong to the same {name} as {other_field}")


def save_violations(request: SaveSemantic, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a statement that is to be stored."""
    yield from statement_violations(request.memory)
    yield from vector_violations(request.embedding, dimension, "embedding")
    yield from text_violations(request.rule, "rule", RULE_NAME_BYTES_MAX)
    yield from request_id_violations(request.request_id)


def statement_violations(memory: SemanticMemory, field: str = "memory") -> Iterable[FieldViolation]:
    """Violations in a statement from a caller."""
    yield from content_violations(memory.content, f"{field}.content")
    yield from text_violations(memory.summary, f"{field}.summary", SUMMARY_BYTES_MAX)
    if not memory.scope.user:
        yield FieldViolation(f"{field}.scope.user", "must name the user that the statement belongs to")
    yield from scope_violations(memory.scope, f"{field}.scope")
    yield from share_violations(memory.importance, f"{field}.importance")
    yield from _keyword_violations(memory.keywords, f"{field}.keywords")
    yield from text_violations(memory.source, f"{field}.source", SOURCE_BYTES_MAX)
    yield from metadata_violations(memory.metadata, f"{field}.metadata")


def query_violations(query: SimilarQuery, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a search."""
    yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
    yield from vector_violations(query.vector, dimension, "vector")
    if not 1 <= query.top_k <= TOP_K_MAX:
        yield FieldViolation("limit", f"must be 1 to {TOP_K_MAX}")
    if query.min_similarity is not None:
        yield from share_violations(query.min_similarity, "min_score")
        if query.mode is SearchMode.KEYWORD:
            yield FieldViolation(
                "min_score",
                "must be unset if mode is keyword: it bounds the cosine similarity, which is not computed then",
            )
    yield from filter_violations(query.where)


def deletion_violations(
    memory_ids: Sequence[str], where: SemanticFilter | None, request_id: str, expected_revision: int | None = None
) -> Iterable[FieldViolation]:
    """Violations in a deletion. It names statements by their ids, or selects them by a filter."""
    if memory_ids and where:
        yield FieldViolation("filter", "must not be set together with memory_ids")
    elif not memory_ids and not where:
        yield FieldViolation("filter", "must not be empty if memory_ids is: it would mean every statement")
    if expected_revision is not None and len(memory_ids) != 1:
        yield FieldViolation("expected_revision", "must be set only with exactly one of memory_ids")
    if len(memory_ids) > IDS_MAX:
        yield FieldViolation("memory_ids", f"must be at most {IDS_MAX:,}")
    else:
        for number, memory_id in enumerate(memory_ids):
            yield from doc_id_violations(memory_id, f"memory_ids[{number}]")
    yield from filter_violations(where or SemanticFilter())
    yield from request_id_violations(request_id)
    yield from revision_violations(expected_revision)


def _keyword_violations(keywords: Sequence[str], field: str) -> Iterable[FieldViolation]:
    if len(keywords) > KEYWORDS_MAX:
        yield FieldViolation(field, f"must be at most {KEYWORDS_MAX}")
        return
    for number, keyword in enumerate(keywords):
        if not keyword.strip():
            yield FieldViolation(f"{field}[{number}]", "must not be blank")
        yield from text_violations(keyword, f"{field}[{number}]", KEYWORD_BYTES_MAX)
