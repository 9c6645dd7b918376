"""Turns filter expressions of callers into those of the records: with the records' field names, and aware times."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Protocol, TypeVar

from mnemon_server.domain import documents, events, facts, memories, semantic
from mnemon_server.domain.clock import EPOCH, time_of
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    AllOf,
    AnyOf,
    Condition,
    Expression,
    FilterFields,
    NoneOf,
    Operator,
    RefersTo,
    placed,
)
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import MetadataValue, value_type

V = TypeVar("V", bound=MetadataValue)

FIELDS_OF: Mapping[RecordKind, FilterFields] = {
    RecordKind.DOCUMENT: documents.FILTER_FIELDS,
    RecordKind.MEMORY: memories.FILTER_FIELDS,
    RecordKind.SEMANTIC: semantic.FILTER_FIELDS,
    RecordKind.EVENT: events.FILTER_FIELDS,
    RecordKind.FACT: facts.FILTER_FIELDS,
}
"""The fields that filters can name, by the kind of the records."""
_TYPES: Mapping[type, tuple[str, MetadataValue]] = {
    str: ("text", ""),
    float: ("a number", 0),
    bool: ("true or false", True),
    datetime: ("a time", EPOCH),
    tuple: ("a list of texts", ()),
}
"""The name of a type in messages, and a value of it."""


def joined(parts: Iterable[Expression | None]) -> Expression | None:
    """The conjunction of the parts that are not None; None if all are None."""
    present = [part for part in parts if part is not None]
    return AllOf(tuple(present)) if len(present) > 1 else next(iter(present), None)


def with_engine_names(expression: Expression | None, known: FilterFields) -> Expression | None:
    """The expression with the names of the records, with times for texts that name one, and naive times as UTC."""

    def changed(condition: Condition) -> Condition:
        name, key = condition.field, known.key_of(condition.field)
        to_time = _time if known.types.get(name) is FieldType.TIME else utc
        renamed = known.names.get(name, name) if key is None else METADATA_PREFIX + key
        return replace(condition, field=renamed, values=tuple(map(to_time, condition.values)))

    return None if expression is None else _mapped(expression, changed)


class HasKey(Protocol):
    """Whether any record has a metadata key; with `like`, whether any has it with a value of the same type."""

    def __call__(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """Blocks."""


def unmet_conditions(expression: Expression | None, has_key: HasKey, fields: FilterFields) -> Iterator[FieldViolation]:
    """The metadata keys in a filter that no record of this kind has, and the values of a type that none has under the
    key.

    In a deletion they are typing errors, and are refused: records without a key, or with a value of another type,
    match `ne`, so a misspelt key or a text for a number would delete all of them. A repeated deletion is answered,
    although no record may have the key any more.
    """
    known: HasKey = cache(has_key)
    for place, condition in placed(expression, "filter.filter") if expression else ():
        if (key := fields.key_of(condition.field)) is None:
            continue
        if not known(key):
            yield FieldViolation(f"{place}.field", f'"{condition.field}": no {fields.kind} has this key')
        elif condition.operator is not Operator.EXISTS:
            for number, value in enumerate(condition.values):
                if condition.operator is Operator.CONTAINS and known(key, like=()):
                    continue
                if problem := type_problem(known, key, value, fields.kind):
                    yield FieldViolation(f"{place}.values[{number}]", f'"{condition.field}": {problem}')


def type_problem(has_key: HasKey, key: str, value: MetadataValue, kind: str) -> str | None:
    """The reason why no record with this key can equal the value: its type. None if a record has the key with it."""
    wanted, example = _TYPES[value_type(value)]
    if has_key(key, like=example):
        return None
    found = [name for name, other in _TYPES.values() if other is not example and has_key(key, like=other)]
    return f"no {kind} has this key with {wanted}, only with {' or '.join(found) or 'other values'}"


def utc(value: V) -> V:
    """The value; a naive time becomes a time in UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _time(value: MetadataValue) -> MetadataValue:
    time = time_of(value) if isinstance(value, str) else None
    return utc(value) if time is None else time


def _mapped(expression: Expression, change: Callable[[Condition], Condition]) -> Expression:
    match expression:
        case Condition():
            return change(expression)
        case AllOf(parts):
            return AllOf(tuple(_mapped(part, change) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_mapped(part, change) for part in parts))
        case NoneOf(parts):
            return NoneOf(tuple(_mapped(part, change) for part in parts))
        case RefersTo():
            return expression
