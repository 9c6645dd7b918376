"""The filter grammar: comparisons of fields, joined by all, any and none. Search, list, count, purge and watch share
it.

A field is named as it is ("agent", "create_time"); a metadata key has the prefix "metadata.". A value whose type
differs from the field's matches nothing, except that integers and floats compare with each other. `NE` and `NIN` are
the exact opposites of `EQ` and `IN`, so they also match records that lack the field. A field with an empty text or an
empty list counts as missing; a metadata key with an empty list exists.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.records import (
    FilterValue,
    MetadataValue,
    Scope,
    metadata_key_problem,
    metadata_value_problem,
)

DEPTH_MAX = 8
PARTS_MAX = 128
VALUES_MAX = 256
METADATA_PREFIX = "metadata."


class Operator(StrEnum):
    """How a field is compared."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NIN = "nin"
    CONTAINS = "contains"
    EXISTS = "exists"


ORDERINGS = frozenset({Operator.GT, Operator.GTE, Operator.LT, Operator.LTE})
OPPOSITES = {Operator.NE: Operator.EQ, Operator.NIN: Operator.IN}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. `values` has exactly one value, except for IN and NIN."""

    field: str
    operator: Operator
    values: tuple[MetadataValue, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part must match. Without parts, everything matches."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part must match."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """No part may match. Without parts, everything matches."""

    parts: tuple["Expression", ...]


Expression = Condition | AllOf | AnyOf | NoneOf


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selects records; all fields must match. `hidden` selects hidden records if True, others if False, both if None.

    `equal` compares type and value, so 1 and 1.0 differ. `expression` follows the module's grammar.
    """

    equal: Mapping[str, FilterValue] = field(default_factory=dict)
    scope: Scope = Scope()
    expression: Expression | None = None
    hidden: bool | None = False

    def __bool__(self) -> bool:
        """False if it selects everything that is not hidden."""
        return bool(self.equal) or self.scope != Scope() or self.expression is not None or self.hidden is not False


FieldReader = Callable[[str], MetadataValue | None]
"""Returns the value of a record's field by name, "metadata." names included; None if the record lacks it."""


def matches(expression: Expression, read: FieldReader) -> bool:
    """Whether a record matches. This is the reference that each engine's own evaluation is tested against."""
    match expression:
        case AllOf(parts):
            return all(matches(part, read) for part in parts)
        case AnyOf(parts):
            return any(matches(part, read) for part in parts)
        case NoneOf(parts):
            return not any(matches(part, read) for part in parts)
        case Condition(field, Operator.EXISTS, (wanted,)) if not field.startswith(METADATA_PREFIX):
            return (read(field) not in (None, "", ())) == wanted
        case Condition(field, operator, values):
            return _holds(read(field), operator, values)


def expression_violations(
    expression: Expression,
    known: Collection[str],
    field: str = "filter",
    *,
    prefixes: Sequence[str] = (METADATA_PREFIX,),
) -> Iterable[FieldViolation]:
    """The violations in a filter. `known` are the plain fields; other names are one of the prefixes and a key."""
    if _depth(expression) > DEPTH_MAX:
        yield FieldViolation(field, f"must be at most {DEPTH_MAX} levels deep")
    elif _size(expression) > PARTS_MAX:
        yield FieldViolation(field, f"must have at most {PARTS_MAX} parts")
    else:
        for condition in _conditions(expression):
            yield from _condition_violations(condition, known, field, prefixes)


def _holds(stored: MetadataValue | None, operator: Operator, values: tuple[MetadataValue, ...]) -> bool:
    if operator in OPPOSITES:
        return not _holds(stored, OPPOSITES[operator], values)
    if operator is Operator.EXISTS:
        return (stored is not None and stored != "") == values[0]
    if stored is None:
        return False
    if operator is Operator.CONTAINS:
        return isinstance(stored, str | tuple) and values[0] in stored
    return any(_compares(stored, operator, value) for value in values)


def _compares(stored: MetadataValue, operator: Operator, value: MetadataValue) -> bool:
    if _kind(stored) is not _kind(value):
        return False
    match operator:
        case Operator.EQ | Operator.IN:
            return stored == value
        case Operator.GT:
            return stored > value  # type: ignore[operator]
        case Operator.GTE:
            return stored >= value  # type: ignore[operator]
        case Operator.LT:
            return stored < value  # type: ignore[operator]
        case _:
            return stored <= value  # type: ignore[operator]


def _kind(value: MetadataValue) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)


def _conditions(expression: Expression) -> Iterable[Condition]:
    match expression:
        case Condition():
            yield expression
        case AllOf(parts) | AnyOf(parts) | NoneOf(parts):
            for part in parts:
                yield from _conditions(part)


def _depth(expression: Expression) -> int:
    match expression:
        case Condition():
            return 1
        case AllOf(parts) | AnyOf(parts) | NoneOf(parts):
            return 1 + max(map(_depth, parts), default=0)


def _size(expression: Expression) -> int:
    match expression:
        case Condition():
            return 1
        case AllOf(parts) | AnyOf(parts) | NoneOf(parts):
            return 1 + sum(map(_size, parts))


def _condition_violations(
    condition: Condition, known: Collection[str], field: str, prefixes: Sequence[str]
) -> Iterable[FieldViolation]:
    name = condition.field
    place = f"{field}.{name[:80]}"
    if prefix := next((each for each in prefixes if name.startswith(each)), ""):
        if problem := metadata_key_problem(name.removeprefix(prefix)):
            yield FieldViolation(place, f"the key {problem}")
    elif name not in known:
        others = " or ".join(f'"{prefix}" + key' for prefix in prefixes)
        yield FieldViolation(place, f"is not a field; the fields are {', '.join(sorted(known))} and {others}")
    if problem := _values_problem(condition.operator, condition.values):
        yield FieldViolation(place, problem)


def _values_problem(operator: Operator, values: tuple[MetadataValue, ...]) -> str | None:
    several = operator in (Operator.IN, Operator.NIN)
    if several and not 1 <= len(values) <= VALUES_MAX:
        return f"{operator} takes 1 to {VALUES_MAX} values"
    if not several and len(values) != 1:
        return f"{operator} takes one value"
    for value in values:
        if (problem := metadata_value_problem(value)) or (problem := _type_problem(operator, value)):
            return problem
    return None


def _type_problem(operator: Operator, value: MetadataValue) -> str | None:
    if operator is Operator.EXISTS:
        return None if isinstance(value, bool) else "exists takes true or false"
    if operator is Operator.CONTAINS:
        return None if isinstance(value, str) else "contains takes text"
    if operator in ORDERINGS and (isinstance(value, bool) or not isinstance(value, str | int | float | datetime)):
        return f"{operator} takes text, a number or a time"
    return None
