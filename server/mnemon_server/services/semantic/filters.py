"""Turns filters of callers into filters of the records."""

from collections.abc import Iterable
from dataclasses import replace

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import Condition, Expression, Operator, RecordFilter, expression_violations
from mnemon_server.domain.semantic import FILTER_FIELDS, SemanticFilter
from mnemon_server.domain.validation import scope_violations
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.reading.filter_expressions import joined, unmet_conditions, utc, with_engine_names

_ENGINE_NAMES = {"memory_id": "id", "create_time": "time"}


def context_filter(where: SemanticFilter, *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records, without the time window."""
    expression = where.expression and with_engine_names(where.expression, FILTER_FIELDS, _ENGINE_NAMES)
    return RecordFilter(scope=where.scope, expression=expression, hidden=hidden)


def record_filter(where: SemanticFilter, *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records: exactly the statements that match."""
    context = context_filter(where, hidden=hidden)
    return replace(context, expression=joined([window(where), context.expression]))


def window(where: SemanticFilter) -> Expression | None:
    """The condition of the time window; None if the filter has no window."""
    bounds = ((Operator.GTE, where.created_from), (Operator.LTE, where.created_to))
    return joined(Condition("time", operator, (utc(time),)) for operator, time in bounds if time is not None)


def filter_violations(where: SemanticFilter, field: str = "filter") -> Iterable[FieldViolation]:
    """Violations in a filter."""
    yield from scope_violations(where.scope, f"{field}.scope")
    if where.created_from and where.created_to and utc(where.created_to) < utc(where.created_from):
        yield FieldViolation(f"{field}.created.end_time", f"must not be before {field}.created.start_time")
    if where.expression is not None:
        yield from expression_violations(where.expression, FILTER_FIELDS, f"{field}.filter")


def unmet_violations(records: RecordEngine, where: SemanticFilter) -> Iterable[FieldViolation]:
    """The conditions of a filter that are typing errors; see `unmet_conditions`."""
    return unmet_conditions(where.expression, records.has_metadata_key, "filter.filter", "statement")


def among(field: str, values: Iterable[str], *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records whose field equals one of these texts."""
    return RecordFilter(expression=Condition(field, Operator.IN, tuple(values)), hidden=hidden)
