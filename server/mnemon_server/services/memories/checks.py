"""Checks of memories, of searches for them and of changes to them: every problem is named with its field."""

import re
from collections.abc import Iterable

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.memories import (
    LIMIT_MAX,
    CreateMemory,
    Memory,
    MemoryQuery,
    UpdateMemory,
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
from mnemon_server.services.memories.field_masks import change_violations
from mnemon_server.services.memories.filters import filter_violations, tag_violations
from mnemon_server.services.writing.field_masks import covers
from mnemon_server.services.writing.vectors import vector_violations

UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def create_violations(request: CreateMemory, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a memory that is to be stored."""
    if request.memory.memory_id:
        yield from memory_id_violations(request.memory.memory_id, "memory.memory_id")
    yield from memory_violations(request.memory)
    yield from vector_violations(request.embedding, dimension, "embedding")
    yield from request_id_violations(request.request_id)


def memory_id_violations(memory_id: str, field: str) -> Iterable[FieldViolation]:
    """Violations in an id that the caller chose."""
    if not UUID.fullmatch(memory_id):
        example = "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11"
        yield FieldViolation(field, f"must be a UUID in its usual form, such as {example}, or left out for a new one")


def update_violations(request: UpdateMemory, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a change, apart from what depends on the stored memory. Checks no values outside the mask."""
    yield from doc_id_violations(request.memory.memory_id, "memory.memory_id")
    yield from change_violations(request)
    for violation in memory_violations(request.memory):
        if any(covers(path, violation.field.removeprefix("memory.")) for path in request.mask):
            yield violation
    yield from vector_violations(request.embedding, dimension, "embedding")
    if request.embedding is not None and "content" not in request.mask:
        yield FieldViolation(
            "embedding", 'must come with new content: add "content" to update_mask, or leave embedding out'
        )
    yield from revision_violations(request.expected_revision)
    yield from request_id_violations(request.request_id)


def call_violations(memory_id: str, request_id: str, expected_revision: int | None) -> Iterable[FieldViolation]:
    """Violations in a change that takes only the id of a memory."""
    yield from doc_id_violations(memory_id, "memory_id")
    yield from request_id_violations(request_id)
    yield from revision_violations(expected_revision)


def bound_violations(bound: float) -> Iterable[FieldViolation]:
    """Violations in the confidence below which a memory counts as faded."""
    if not 0.0 < bound <= 1.0:
        yield FieldViolation("min_confidence", "must be more than 0 and at most 1")


def memory_violations(memory: Memory, field: str = "memory") -> Iterable[FieldViolation]:
    """Violations in the fields of a memory that the caller sets."""
    yield from content_violations(memory.content, f"{field}.content")
    yield from metadata_violations(memory.metadata, f"{field}.metadata")
    yield from scope_violations(memory.scope, f"{field}.scope")
    yield from tag_violations(memory, field)


def query_violations(query: MemoryQuery, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a search."""
    yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
    yield from vector_violations(query.vector, dimension, "vector")
    if not 1 <= query.limit <= LIMIT_MAX:
        yield FieldViolation("limit", f"must be 1 to {LIMIT_MAX:,}")
    yield from share_violations(query.min_score, "min_score")
    yield from filter_violations(query.where)
