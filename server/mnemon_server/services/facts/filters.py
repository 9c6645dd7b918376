"""Turns filters of callers into filters of the records, for facts that have expired or have not."""

from datetime import datetime

from mnemon_server.domain.facts import FILTER_FIELDS, FactFilter
from mnemon_server.domain.filters import Condition, Expression, NoneOf, Operator, RecordFilter
from mnemon_server.domain.namespaces import is_exactly, starts_with
from mnemon_server.services.reading.filter_expressions import joined, with_engine_names


def living(where: FactFilter, now: datetime) -> RecordFilter:
    """The filter for the facts that match and have not expired."""
    return RecordFilter(expression=joined([*_asked(where), NoneOf((_ended(now),))]))


def expired(now: datetime, where: FactFilter | None = None) -> RecordFilter:
    """The filter for the expired facts: those that match, or all of them."""
    return RecordFilter(expression=joined([*(_asked(where) if where else ()), _ended(now)]))


def _asked(where: FactFilter) -> list[Expression | None]:
    name = starts_with if where.subtree else is_exactly
    within = None if where.namespace is None else name(where.namespace, "namespace")
    return [within, with_engine_names(where.where, FILTER_FIELDS)]


def _ended(now: datetime) -> Expression:
    """Matches expired facts; a fact without an expire time does not match."""
    return Condition("expire_time", Operator.LTE, (now,))
