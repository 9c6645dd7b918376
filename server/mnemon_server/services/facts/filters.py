"""From the facts that a caller means to what the records are asked: those that have not expired, unless it says so."""

from datetime import datetime

from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.filters import Condition, Expression, Negation, Operator, RecordFilter
from mnemon_server.domain.namespaces import is_exactly, starts_with
from mnemon_server.services.shared.filter_expressions import joined

_NAMESPACE, _END = "namespace", "expire_time"


def living(where: FactFilter, now: datetime) -> RecordFilter:
    """The facts that match, and have not expired."""
    return RecordFilter(expression=joined([_named(where), Negation(_ended(now)), where.where]))


def expired(now: datetime, where: FactFilter | None = None) -> RecordFilter:
    """The facts that match, or all, that have expired."""
    parts = [_named(where), where.where] if where else []
    return RecordFilter(expression=joined([*parts, _ended(now)]))


def _named(where: FactFilter) -> Expression | None:
    if where.namespace is None:
        return None
    return starts_with(where.namespace, _NAMESPACE) if where.subtree else is_exactly(where.namespace, _NAMESPACE)


def _ended(now: datetime) -> Expression:
    """Does not hold for what never ends."""
    return Condition(_END, Operator.LTE, (now,))
