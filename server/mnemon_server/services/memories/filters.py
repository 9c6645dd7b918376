"""Turns filters of callers into filters of the records."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import (
    Condition,
    Expression,
    NoneOf,
    Operator,
    RecordFilter,
    expression_violations,
)
from mnemon_server.domain.memories import FILTER_FIELDS, TAG_BYTES_MAX, TAGS, Memory, MemoryFilter
from mnemon_server.domain.records import METADATA_KEYS_MAX, MetadataValue, filter_value_problem, metadata_key_problem
from mnemon_server.domain.validation import is_text, scope_violations, share_violations, text_violations
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.reading.filter_expressions import (
    joined,
    type_problem,
    unmet_conditions,
    utc,
    with_engine_names,
)

_ENGINE_NAMES = {"memory_id": "id", "is_global": "global"}


def record_filter(
    where: MemoryFilter, confidence: ConfidenceModel, now: datetime, *, hidden: bool | None = False
) -> RecordFilter:
    """The filter for the records: exactly the memories that match, with their confidence computed at `now`."""
    parts = _field_conditions(where)
    if where.min_confidence:
        parts.append(confidence.at_least(where.min_confidence, now))
    if where.expression is not None:
        parts.append(with_engine_names(where.expression, FILTER_FIELDS, _ENGINE_NAMES))
    return RecordFilter(dict(where.metadata), where.scope, joined(parts), hidden)


def fading_filter(
    where: MemoryFilter, confidence: ConfidenceModel, now: datetime, *, bound: float, by: datetime
) -> RecordFilter:
    """The filter for the memories that match now and whose confidence is below `bound` at the time `by`."""
    matching = record_filter(where, confidence, now)
    return replace(matching, expression=joined([matching.expression, NoneOf((confidence.at_least(bound, by),))]))


def filter_violations(where: MemoryFilter, field: str = "filter") -> Iterable[FieldViolation]:
    """Violations in a filter."""
    yield from scope_violations(where.scope, f"{field}.scope")
    yield from tag_violations(where, field)
    yield from _span_violations(where.created_from, where.created_to, f"{field}.created")
    yield from _span_violations(where.reinforced_from, where.reinforced_to, f"{field}.reinforced")
    if where.min_confidence is not None:
        yield from share_violations(where.min_confidence, f"{field}.min_confidence")
    # No memory has more keys, so a larger filter could not match.
    if len(where.metadata) > METADATA_KEYS_MAX:
        yield FieldViolation(f"{field}.metadata", f"must have at most {METADATA_KEYS_MAX} keys")
    for key, value in where.metadata.items():
        if problem := metadata_key_problem(key):
            yield FieldViolation(f"{field}.metadata", f"key {str(key)[:80]!r}: {problem}")
        elif problem := filter_value_problem(value):
            yield FieldViolation(f"{field}.metadata.{key}", problem)
    if where.expression is not None:
        yield from expression_violations(where.expression, FILTER_FIELDS, f"{field}.filter")


def unmet_violations(records: RecordEngine, where: MemoryFilter, field: str = "filter") -> Iterable[FieldViolation]:
    """The conditions of a filter that are typing errors; see `unmet_conditions`."""
    for key, value in where.metadata.items():
        if not records.has_metadata_key(key):
            yield FieldViolation(f"{field}.metadata.{key}", "no memory has this key")
        elif problem := type_problem(records.has_metadata_key, key, value, "memory"):
            yield FieldViolation(f"{field}.metadata.{key}", problem)
    yield from unmet_conditions(where.expression, records.has_metadata_key, f"{field}.filter", "memory")


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
