"""From what a caller wants to filter by to what the records can be asked."""

from collections.abc import Mapping
from typing import Any

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import (
    FilterValue,
    IgnoredFilter,
    Scope,
    filter_value_problem,
    metadata_key_problem,
)
from mnemon_server.domain.validation import refuse, scope_violations
from mnemon_server.engines.base import RecordEngine


def lenient_filter(
    records: RecordEngine, filters: Mapping[Any, Any], scope: Scope
) -> tuple[RecordFilter, tuple[IgnoredFilter, ...]]:
    """The filter of a search: what is not valid, and what no document carries, is left out and named."""
    refuse(scope_violations(scope))
    equal: dict[str, FilterValue] = {}
    ignored = []
    for key, value in filters.items():
        if problem := metadata_key_problem(key) or filter_value_problem(value):
            ignored.append(IgnoredFilter(str(key)[:80], problem))
        elif not records.has_metadata_key(key):
            ignored.append(IgnoredFilter(key, "no document carries this key"))
        else:
            equal[key] = value
    return RecordFilter(equal, scope), tuple(ignored)


def strict_filter(filters: Mapping[Any, Any], scope: Scope) -> RecordFilter:
    """The filter of a deletion: what is not valid is refused, since leaving it out would delete more.

    Raises:
        InvalidArgumentError: a key or value is not valid, or everything would match.
    """
    refuse(scope_violations(scope))
    refuse(
        FieldViolation(f"filters.{str(key)[:80]}", problem)
        for key, value in filters.items()
        if (problem := metadata_key_problem(key) or filter_value_problem(value))
    )
    where = RecordFilter(dict(filters), scope)
    if not where:
        refuse([FieldViolation("filters", "filters and scope may not both be empty: that would delete everything")])
    return where
