"""Turns filters of callers into filters of the records, for facts that have expired or have not."""

from collections.abc import Iterable
from datetime import datetime

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.facts import FILTER_FIELDS, KEY_PREFIXES, VALUE_PREFIX, FactFilter
from mnemon_server.domain.filters import METADATA_PREFIX, Condition, Expression, NoneOf, Operator, RecordFilter
from mnemon_server.domain.namespaces import is_exactly, starts_with
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.reading.filter_expressions import joined, renamed, unmet_conditions

_NAMESPACE, _END = "namespace", "expire_time"
_ENGINE_NAMES = {"key": "fact_key", "create_time": "created_at", "update_time": "updated_at"}


def living(where: FactFilter, now: datetime) -> RecordFilter:
    """The filter for the facts that match and have not expired."""
    return RecordFilter(expression=joined([_named(where), NoneOf((_ended(now),)), _asked(where)]))


def expired(now: datetime, where: FactFilter | None = None) -> RecordFilter:
    """The filter for the expired facts: those that match, or all of them."""
    parts = [_named(where), _asked(where)] if where else []
    return RecordFilter(expression=joined([*parts, _ended(now)]))


def matching(where: FactFilter) -> RecordFilter:
    """The filter for the facts that match, expired ones included."""
    return RecordFilter(expression=joined([_named(where), _asked(where)]))


def unmet_violations(records: RecordEngine, where: FactFilter) -> Iterable[FieldViolation]:
    """The conditions of a filter that are typing errors; see `unmet_conditions`."""
    return unmet_conditions(where.where, records.has_metadata_key, "filter.filter", "fact", prefixes=KEY_PREFIXES)


def _named(where: FactFilter) -> Expression | None:
    if where.namespace is None:
        return None
    return starts_with(where.namespace, _NAMESPACE) if where.subtree else is_exactly(where.namespace, _NAMESPACE)


def _asked(where: FactFilter) -> Expression | None:
    return None if where.where is None else renamed(where.where, FILTER_FIELDS, _engine_name)


def _engine_name(field: str) -> str:
    if field.startswith(VALUE_PREFIX):
        return METADATA_PREFIX + field.removeprefix(VALUE_PREFIX)
    return _ENGINE_NAMES.get(field, field)


def _ended(now: datetime) -> Expression:
    """Matches expired facts; a fact without an expire time does not match."""
    return Condition(_END, Operator.LTE, (now,))
