"""From the filter of a caller to the filter for the records."""

from collections.abc import Iterable, Mapping
from typing import Any

from mnemon_server.domain.documents import FILTER_FIELDS, DocumentFilter
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import AnyOf, RecordFilter, expression_violations
from mnemon_server.domain.records import (
    FilterNote,
    FilterNotes,
    filter_value_problem,
    metadata_key_problem,
)
from mnemon_server.domain.validation import scope_violations
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.reading.filter_expressions import type_problem, unmet_conditions, with_engine_names

_NOTHING = RecordFilter(expression=AnyOf(()))
_SHOWN_MAX = 80


def lenient_filter(records: RecordEngine, where: DocumentFilter) -> tuple[RecordFilter, FilterNotes]:
    """The checked filter of a search, and the notes for its caller.

    An invalid key, and one that no document has, is left out. A key that documents have, but not with a value of this
    type, finds nothing: a filter is never left out because of its value.
    """
    ignored = {key: reason for key in where.filters if (reason := _key_problem(records, key))}
    applied = {key: value for key, value in where.filters.items() if key not in ignored}
    unmatched = {key: reason for key, value in applied.items() if (reason := _value_problem(records, key, value))}
    notes = FilterNotes(_notes(ignored), _notes(unmatched))
    return _NOTHING if unmatched else _record_filter(where, applied), notes


def strict_filter(where: DocumentFilter) -> RecordFilter:
    """The filter of a deletion that was checked: nothing is left out, since that would delete more."""
    return _record_filter(where, dict(where.filters))


def filter_violations(where: DocumentFilter) -> Iterable[FieldViolation]:
    """Violations in a filter, except in ignored parts."""
    yield from scope_violations(where.scope, "filter.scope")
    yield from expression_violations(where.expression, FILTER_FIELDS)


def strict_violations(where: DocumentFilter) -> Iterable[FieldViolation]:
    """Violations in a strict filter, as far as that can be known without the records."""
    yield from filter_violations(where)
    for key, value in where.filters.items():
        if problem := metadata_key_problem(key) or filter_value_problem(value):
            yield FieldViolation(_field(key), problem)
    if where == DocumentFilter():
        yield FieldViolation("filters", "must not be empty if `filter` is: that would delete everything")


def unmet_violations(records: RecordEngine, where: DocumentFilter) -> Iterable[FieldViolation]:
    """The filters that no document can match. In a deletion they are typing errors, and are refused."""
    for key, value in where.filters.items():
        if reason := _key_problem(records, key) or _value_problem(records, key, value):
            yield FieldViolation(_field(key), reason)
    yield from unmet_conditions(where.expression, records.has_metadata_key, FILTER_FIELDS)


def _record_filter(where: DocumentFilter, equal: Mapping[str, Any]) -> RecordFilter:
    return RecordFilter(equal, where.scope, with_engine_names(where.expression, FILTER_FIELDS))


def _key_problem(records: RecordEngine, key: str) -> str | None:
    """The reason why this key cannot occur, or does not occur, in any document."""
    return metadata_key_problem(key) or (None if records.has_metadata_key(key) else "no document has this key")


def _value_problem(records: RecordEngine, key: str, value: Any) -> str | None:
    """The reason why a value of this type cannot match under a key that documents have."""
    if problem := filter_value_problem(value):
        return problem
    problem = type_problem(records.has_metadata_key, key, value, "document")
    if problem is None or any(records.has_metadata_key(key, like=plain) for plain in ("", 0, True)):
        return problem
    return f"{problem}, which `filter` compares"


def _notes(reasons: Mapping[str, str]) -> tuple[FilterNote, ...]:
    return tuple(FilterNote(str(key)[:_SHOWN_MAX], reason) for key, reason in reasons.items())


def _field(key: object) -> str:
    return f"filters.{str(key)[:_SHOWN_MAX]}"
