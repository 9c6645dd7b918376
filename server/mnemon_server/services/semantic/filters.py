"""Turns filters of callers into filters of the records."""

from collections.abc import Iterable
from dataclasses import replace

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import Condition, Expression, Operator, RecordFilter, expression_violations
from mnemon_server.domain.semantic import FILTER_FIELDS, SemanticFilter
from mnemon_server.domain.validation import scope_violations
from mnemon_server.services.reading.filter_expressions import joined, utc, with_engine_names


def context_filter(where: SemanticFilter, *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records, without the time window."""
    return RecordFilter(scope=where.scope, expression=with_engine_names(where.expression, FILTER_FIELDS), hidden=hidden)


def record_filter(where: SemanticFilter, *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records: exactly the statements that match."""
    context = context_filter(where, hidden=hidden)
    return replace(context, expression=joined([window(where), context.expression]))


def window(where: SemanticFilter) -> Expression | None:
    """The condition of the time window; None if the filter has no window."""
    bounds = ((Operator.GTE, where.created_from), (Operator.LTE, where.created_to))
    return joined(Condition("time", operator, (utc(time),)) for operator, time in bounds if time is not None)


def filter_violations(where: SemanticFilter) -> Iterable[FieldViolation]:
    """Violations in a filter."""
    yield from scope_violations(where.scope, "filter.scope")
    if where.created_from and where.created_to and utc(where.created_to) < utc(where.created_from):
        yield FieldViolation("filter.created.end_time", "must not be before filter.created.start_time")
    yield from expression_violations(where.expression, FILTER_FIELDS)


def among(field: str, values: Iterable[str], *, hidden: bool | None = False) -> RecordFilter:
    """The filter for the records whose field equals one of these texts."""
    return RecordFilter(expression=Condition(field, Operator.IN, tuple(values)), hidden=hidden)
