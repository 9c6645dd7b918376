"""The filter grammar: comparisons of fields, joined by all, any and none. Search, list, count, purge and watch share
it.

A field is named as it is ("agent", "create_time"); a metadata key has the prefix "metadata.". A value whose type
differs from the field's matches nothing, except that integers and floats compare with each other. A caller may not send
it for a field that has a type: a purge whose condition is silently false, below a negation, would remove everything.
Metadata has any type. `NE` and `NIN` are
the exact opposites of `EQ` and `IN`, so they also match records that lack the field. A field with an empty text or an
empty list counts as missing; a metadata key with an empty list exists.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.clock import time_of
from mnemon_server.domain.collections import Collection, FieldType
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.records import (
    FilterValue,
    MetadataValue,
    Scope,
    metadata_key_problem,
    metadata_value_problem,
    value_type,
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

FieldTypes = Mapping[str, FieldType | type[StrEnum]]
"""The fields that a filter can name, with their types; an enumeration is a text with one of its values."""

_DATE_LENGTH = len("2027-01-31")
_SEVERAL = (Operator.IN, Operator.NIN)
_NAME_SHOWN = 80
_UNFIT = {
    FieldType.BOOLEAN: {*ORDERINGS, Operator.CONTAINS},
    FieldType.NUMBER: {Operator.CONTAINS},
    FieldType.TIME: {Operator.CONTAINS},
    FieldType.TEXTS: ORDERINGS,
    FieldType.TEXT: frozenset[Operator](),
}
"""The comparisons that no value of a type fits."""
_TAKES = {
    FieldType.BOOLEAN: "true or false",
    FieldType.NUMBER: "a number",
    FieldType.TIME: "a time, such as 2027-01-31T12:00:00Z",
    FieldType.TEXTS: "a list of texts; contains takes one of them",
    FieldType.TEXT: "text",
}


@dataclass(frozen=True, slots=True)
class FilterFields:
    """The fields that a filter of one kind of records can name."""

    kind: str
    """One of these records, in messages."""
    types: FieldTypes
    names: Mapping[str, str] = field(default_factory=dict)
    """Their names in the records, if these are others."""
    prefixes: Sequence[str] = (METADATA_PREFIX,)
    """Prefixes of a metadata key."""

    def key_of(self, name: str) -> str | None:
        """The metadata key that a name stands for; None for a plain field."""
        prefix = next((each for each in self.prefixes if name.startswith(each)), None)
        return None if prefix is None else name.removeprefix(prefix)


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


@dataclass(frozen=True, slots=True)
class RefersTo:
    """One of the fields names a document of a collection that matches, or that `via` leads from there to one that does.

    Only an engine can evaluate it. No caller can send it.
    """

    fields: tuple[str, ...]
    """Fields with ids: of type TEXT, or a single one of type TEXTS."""
    collection: Collection
    via: str
    """A field of type TEXTS that lists ids of other documents in the same collection."""
    where: "Expression"


Expression = Condition | AllOf | AnyOf | NoneOf | RefersTo


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selects records; all fields must match. `hidden` selects hidden records if True, others if False, both if None.

    `equal` are values of metadata, which a vector index can compare. `expression` is any further condition.
    """

    equal: Mapping[str, FilterValue] = field(default_factory=dict)
    scope: Scope = Scope()
    expression: Expression | None = None
    hidden: bool | None = False
    is_writing: bool = False
    """Whether records that the caller may not write are left out, and shared ones, unless the scope names their user or
    `namespace` is within theirs.
    """
    namespace: str = ""
    """The encoded namespace that the caller of a deletion of facts names. It selects nothing."""

    def __bool__(self) -> bool:
        """False if it selects everything that is not hidden."""
        return bool(self.equal) or self.scope != Scope() or self.expression is not None or self.hidden is not False

    @property
    def parts(self) -> tuple[Expression, ...]:
        """`equal` and `expression` as parts that must all match."""
        equal = (Condition(METADATA_PREFIX + key, Operator.EQ, (value,)) for key, value in self.equal.items())
        return (*equal, *(() if self.expression is None else (self.expression,)))


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
        case RefersTo():
            raise AssertionError("a record alone does not tell what others are like")


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
    if value_type(stored) is not value_type(value):
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


def expression_violations(
    expression: Expression | None, known: FilterFields, field: str = "filter.filter"
) -> Iterator[FieldViolation]:
    """The violations in a filter, if there is one."""
    if expression is None:
        return
    if _depth(expression) > DEPTH_MAX:
        yield FieldViolation(field, f"must be at most {DEPTH_MAX} levels deep")
    elif _size(expression) > PARTS_MAX:
        yield FieldViolation(field, f"must have at most {PARTS_MAX} parts")
    else:
        for place, condition in placed(expression, field):
            for part, problem in condition_problems(condition, known):
                yield FieldViolation(f"{place}.{part}", f'"{condition.field[:_NAME_SHOWN]}": {problem}')


def condition_problems(condition: Condition, known: FilterFields) -> Iterator[tuple[str, str]]:
    """The faults of a condition, by the part of its message."""
    name, operator, values = condition.field, condition.operator, condition.values
    key = known.key_of(name)
    if key is not None:
        if problem := metadata_key_problem(key):
            yield "field", f"the key {problem}"
    elif name not in known.types:
        others = " or ".join(f'"{prefix}" + key' for prefix in known.prefixes)
        yield "field", f"is not a field; the fields are {', '.join(sorted(known.types))} and {others}"
    if problem := _count_problem(operator, values):
        yield "values", problem
        return
    kind = None if key is not None else known.types.get(name)
    for number, value in enumerate(values):
        if problem := _value_problem(operator, value, kind):
            yield f"values[{number}]", problem


def placed(expression: Expression, path: str) -> Iterator[tuple[str, Condition]]:
    """The conditions with their paths in the message that a client sends."""
    match expression:
        case Condition():
            yield f"{path}.condition", expression
            return
        case AllOf(parts):
            joint = "all_of"
        case AnyOf(parts):
            joint = "any_of"
        case NoneOf(parts):
            joint = "none_of"
        case RefersTo():
            return
    for number, part in enumerate(parts):
        yield from placed(part, f"{path}.{joint}.filters[{number}]")


def _parts(expression: Expression) -> Iterable[Expression]:
    return () if isinstance(expression, Condition | RefersTo) else expression.parts


def fields_of(expression: Expression) -> Iterator[str]:
    """The fields that a filter compares."""
    match expression:
        case Condition():
            yield expression.field
        case RefersTo():
            yield from expression.fields
        case _:
            for part in expression.parts:
                yield from fields_of(part)


def _depth(expression: Expression) -> int:
    return 1 + max(map(_depth, _parts(expression)), default=0)


def _size(expression: Expression) -> int:
    return 1 + sum(map(_size, _parts(expression)))


def _count_problem(operator: Operator, values: tuple[MetadataValue, ...]) -> str | None:
    if operator in _SEVERAL:
        return None if 1 <= len(values) <= VALUES_MAX else f"{operator} takes 1 to {VALUES_MAX} values"
    return None if len(values) == 1 else f"{operator} takes one value"


def _value_problem(operator: Operator, value: MetadataValue, kind: FieldType | type[StrEnum] | None) -> str | None:
    """The fault of a value; `kind` is None for metadata."""
    if problem := metadata_value_problem(value):
        return problem
    if operator is Operator.EXISTS:
        return None if isinstance(value, bool) else "exists takes true or false"
    if operator is Operator.CONTAINS and not isinstance(value, str):
        return "contains takes text"
    if isinstance(kind, FieldType):
        return _type_problem(operator, value, kind)
    if kind is not None:
        return _choice_problem(operator, value, kind)
    if operator in ORDERINGS and (isinstance(value, bool) or not isinstance(value, str | int | float | datetime)):
        return f"{operator} takes text, a number or a time"
    return None


def _type_problem(operator: Operator, value: MetadataValue, kind: FieldType) -> str | None:
    if operator in _UNFIT[kind]:
        return f"takes {_TAKES[kind]}, and is not compared by {operator}"
    if kind is FieldType.TIME and isinstance(value, str):
        return _time_problem(operator, value)
    if kind is FieldType.TEXTS and operator is Operator.CONTAINS:
        return None
    return None if _type_of(value) is kind else f"takes {_TAKES[kind]}, not {_shown(value)}"


def _time_problem(operator: Operator, text: str) -> str | None:
    if time_of(text) is None:
        return f"takes {_TAKES[FieldType.TIME]}, with a zone, not {_shown(text)}"
    if len(text) == _DATE_LENGTH and operator not in (Operator.GTE, Operator.LT):
        return (
            f"takes a time: by {operator}, the date {text} may mean its start or its end; add T00:00:00Z for its start"
        )
    return None


def _choice_problem(operator: Operator, value: MetadataValue, kind: type[StrEnum]) -> str | None:
    if not isinstance(value, str):
        return f"takes text, not {_shown(value)}"
    if operator in (Operator.EQ, Operator.NE, *_SEVERAL) and value not in {*kind}:
        return f"is one of {', '.join(kind)}, not {_shown(value)}"
    return None


def _type_of(value: MetadataValue) -> FieldType:
    match value:
        case bool():
            return FieldType.BOOLEAN
        case int() | float():
            return FieldType.NUMBER
        case datetime():
            return FieldType.TIME
        case str():
            return FieldType.TEXT
        case _:
            return FieldType.TEXTS


def _shown(value: MetadataValue) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'the text "{value[:_NAME_SHOWN]}"'
        case int() | float():
            return f"the number {value}"
        case datetime():
            return "a time"
        case _:
            return "a list"
