"""Checks of memories, their filters, searches and changes: every problem is named with its field."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import (
    Condition,
    Expression,
    NoneOf,
    Operator,
    RecordFilter,
    expression_violations,
)
from mnemon_server.domain.memories import (
    FILTER_FIELDS,
    LIMIT_MAX,
    TAG_BYTES_MAX,
    TAGS,
    CreateMemory,
    Memory,
    MemoryFilter,
    MemoryQuery,
    UpdateMemory,
)
from mnemon_server.domain.records import METADATA_KEYS_MAX, MetadataValue, filter_value_problem, metadata_key_problem
from mnemon_server.domain.validation import (
    content_violations,
    doc_id_violations,
    is_text,
    metadata_violations,
    request_id_violations,
    revision_violations,
    scope_violations,
    share_violations,
    text_violations,
)
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.reading.filter_expressions import (
    joined,
    type_problem,
    unmet_conditions,
    utc,
    with_engine_names,
)
from mnemon_server.services.writing import field_masks as masks
from mnemon_server.services.writing.writes import vector_violations

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
    yield from masks.change_violations(request, FIELDS, output_only=_OUTPUT_ONLY)
    yield from masks.in_mask(memory_violations(request.memory), request, "memory")
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


def record_filter(
    where: MemoryFilter, confidence: ConfidenceModel, now: datetime, *, hidden: bool | None = False
) -> RecordFilter:
    """The filter for the records: exactly the memories that match, with their confidence computed at `now`."""
    parts = _field_conditions(where)
    if where.min_confidence:
        parts.append(confidence.at_least(where.min_confidence, now))
    parts.append(with_engine_names(where.expression, FILTER_FIELDS))
    return RecordFilter(dict(where.metadata), where.scope, joined(parts), hidden)


def fading_filter(
    where: MemoryFilter, confidence: ConfidenceModel, now: datetime, *, bound: float, by: datetime
) -> RecordFilter:
    """The filter for the memories that match now and whose confidence is below `bound` at the time `by`."""
    matching = record_filter(where, confidence, now)
    return replace(matching, expression=joined([matching.expression, NoneOf((confidence.at_least(bound, by),))]))


def filter_violations(where: MemoryFilter) -> Iterable[FieldViolation]:
    """Violations in a filter."""
    yield from scope_violations(where.scope, "filter.scope")
    yield from tag_violations(where, "filter")
    yield from _span_violations(where.created_from, where.created_to, "filter.created")
    yield from _span_violations(where.reinforced_from, where.reinforced_to, "filter.reinforced")
    yield from share_violations(where.min_confidence, "filter.min_confidence")
    # No memory has more keys, so a larger filter could not match.
    if len(where.metadata) > METADATA_KEYS_MAX:
        yield FieldViolation("filter.metadata", f"must have at most {METADATA_KEYS_MAX} keys")
    for key, value in where.metadata.items():
        if problem := metadata_key_problem(key):
            yield FieldViolation("filter.metadata", f"key {str(key)[:80]!r}: {problem}")
        elif problem := filter_value_problem(value):
            yield FieldViolation(f"filter.metadata.{key}", problem)
    yield from expression_violations(where.expression, FILTER_FIELDS)


def unmet_violations(records: RecordEngine, where: MemoryFilter) -> Iterable[FieldViolation]:
    """The conditions of a filter that are typing errors; see `unmet_conditions`."""
    for key, value in where.metadata.items():
        if not records.has_metadata_key(key):
            yield FieldViolation(f"filter.metadata.{key}", "no memory has this key")
        elif problem := type_problem(records.has_metadata_key, key, value, "memory"):
            yield FieldViolation(f"filter.metadata.{key}", problem)
    yield from unmet_conditions(where.expression, records.has_metadata_key, FILTER_FIELDS)


def tag_violations(given: Memory | MemoryFilter, field: str) -> Iterable[FieldViolation]:
    """Violations in the tags of a memory or of a filter."""
    for name in TAGS:
        if not is_text(text := getattr(given, name), TAG_BYTES_MAX):
            yield from text_violations(text, f"{field}.{name}", TAG_BYTES_MAX)


def _span_violations(start: datetime | None, end: datetime | None, field: str) -> Iterable[FieldViolation]:
    if start and end and utc(end) < utc(start):
        yield FieldViolation(f"{field}.end_time", f"must not be before {field}.start_time")


def _field_conditions(where: MemoryFilter) -> list[Expression | None]:
    return [
        *(_condition(name, Operator.EQ, getattr(where, name) or None) for name in TAGS),
        _condition("global", Operator.EQ, where.is_global),
        _condition("create_time", Operator.GTE, where.created_from),
        _condition("create_time", Operator.LTE, where.created_to),
        _condition("reinforce_time", Operator.GTE, where.reinforced_from),
        _condition("reinforce_time", Operator.LTE, where.reinforced_to),
    ]


def _condition(field: str, operator: Operator, value: MetadataValue | None) -> Condition | None:
    return None if value is None else Condition(field, operator, (utc(value),))


FIELDS = ("content", "scope", *TAGS, "is_global", "decay_policy", "metadata")
_OUTPUT_ONLY = ("memory_id", "confidence", "revision", "create_time", "update_time", "reinforce_time", "delete_time")
