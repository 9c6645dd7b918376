"""From the filter of a caller to the filter for the records."""

from collections.abc import Iterable, Mapping
from typing import Any

from mnemon_server.domain.documents import FILTER_FIELDS, DocumentFilter
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import RecordFilter, expression_violations
from mnemon_server.domain.records import IgnoredFilter, filter_value_problem, metadata_key_problem, value_type
from mnemon_server.domain.validation import scope_violations
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.shared.filter_expressions import unknown_keys, with_engine_names

_ENGINE_NAMES = {"doc_id": "id"}
_KINDS: Mapping[type | None, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number with a fraction, such as 1.0",
}


def lenient_filter(records: RecordEngine, where: DocumentFilter) -> tuple[RecordFilter, tuple[IgnoredFilter, ...]]:
    """The filter of a search that was checked: an invalid key, and what no document carries, is left out and named.

    So is a key that documents carry with values of other types alone; 1, 1.0, true and "1" are of four types.
    """
    reasons = {key: _reason(records, key, value) for key, value in where.filters.items()}
    ignored = tuple(IgnoredFilter(str(key)[:80], reason) for key, reason in reasons.items() if reason)
    return _record_filter(where, {key for key, reason in reasons.items() if not reason}), ignored


def strict_filter(where: DocumentFilter) -> RecordFilter:
    """The filter of a deletion that was checked: nothing is left out, since that would delete more."""
    return _record_filter(where, where.filters)


def filter_violations(where: DocumentFilter) -> Iterable[FieldViolation]:
    """What is wrong with a filter, except for what is ignored."""
    yield from scope_violations(where.scope, "filter.scope")
    if where.expression is not None:
        yield from expression_violations(where.expression, FILTER_FIELDS, "filter.filter")


def strict_violations(where: DocumentFilter) -> Iterable[FieldViolation]:
    """What is wrong with a strict filter, as far as that can be known without the records."""
    yield from filter_violations(where)
    for key, value in where.filters.items():
        if problem := _problem(key, value):
            yield FieldViolation(_field(key), problem)
    if where == DocumentFilter():
        yield FieldViolation("filters", "must not be empty if filter is: that would delete everything")


def unmet_violations(records: RecordEngine, where: DocumentFilter) -> Iterable[FieldViolation]:
    """The filters that no document can match. In a deletion they are typing errors, and are refused."""
    for key, value in where.filters.items():
        if reason := _reason(records, key, value):
            yield FieldViolation(_field(key), reason)
    yield from unknown_keys(where.expression, records.has_metadata_key, "filter.filter", "document")


def _record_filter(where: DocumentFilter, keys: Iterable[str]) -> RecordFilter:
    expression = where.expression and with_engine_names(where.expression, FILTER_FIELDS, _ENGINE_NAMES)
    return RecordFilter({key: where.filters[key] for key in keys}, where.scope, expression)


def _reason(records: RecordEngine, key: str, value: Any) -> str:
    """Why a filter cannot be applied; empty if it can."""
    if problem := _problem(key, value):
        return problem
    if not records.has_metadata_key(key):
        return "no document has this key"
    if not records.has_metadata_key(key, like=value):
        return f"no document has this key with {_KINDS[value_type(value)]}"
    return ""


def _problem(key: object, value: object) -> str | None:
    return metadata_key_problem(key) or filter_value_problem(value)


def _field(key: object) -> str:
    return f"filters.{str(key)[:80]}"
