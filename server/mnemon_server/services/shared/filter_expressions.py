"""Turns filter expressions of callers into those of the records: with the records' field names, and aware times."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from mnemon_server.domain.clock import time_of
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    AllOf,
    AnyOf,
    Condition,
    Expression,
    FieldTypes,
    NoneOf,
    placed,
)
from mnemon_server.domain.records import MetadataValue

V = TypeVar("V", bound=MetadataValue)


def joined(parts: Iterable[Expression | None]) -> Expression | None:
    """The conjunction of the parts that are not None; None if all are None."""
    present = [part for part in parts if part is not None]
    return AllOf(tuple(present)) if len(present) > 1 else next(iter(present), None)


def with_engine_names(expression: Expression, known: FieldTypes, names: Mapping[str, str]) -> Expression:
    """As `renamed`, by the table `names`."""
    return renamed(expression, known, lambda field: names.get(field, field))


def renamed(expression: Expression, known: FieldTypes, name_of: Callable[[str], str]) -> Expression:
    """The expression with fields renamed by a function, with times for texts that name one, and naive times as UTC."""

    def changed(condition: Condition) -> Condition:
        to_time = _time if known.get(condition.field) is FieldType.TIME else utc
        return replace(condition, field=name_of(condition.field), values=tuple(map(to_time, condition.values)))

    return _mapped(expression, changed)


def unknown_keys(
    expression: Expression | None,
    has_key: Callable[[str], bool],
    field: str,
    kind: str,
    *,
    prefixes: Iterable[str] = (METADATA_PREFIX,),
) -> Iterator[FieldViolation]:
    """The metadata keys in a filter that no record of this kind has.

    In a deletion they are typing errors, and are refused: records without a key match `ne`, so a misspelt key would
    delete all of them. A repeated deletion is answered, although no record may have the key any more.
    """
    for place, condition in placed(expression, field) if expression else ():
        prefix = next((each for each in prefixes if condition.field.startswith(each)), None)
        if prefix is not None and not has_key(condition.field.removeprefix(prefix)):
            yield FieldViolation(f"{place}.field", f'"{condition.field}": no {kind} has this key')


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
