"""The filter grammar: comparisons of fields, joined by all, any and none. Search, list, count, purge and watch share
it.

A field is named as it is ("agent", "create_time"); a metadata key has the prefix "metadata.". A value whose type
differs from the field's matches nothing, except that integers and floats compare with each other; `filter_checks`
refuses it where the field's type is known. `NE` and `NIN` are
the exact opposites of `EQ` and `IN`, so they also match records that lack the field. A field with an empty text or an
empty list counts as missing; a metadata key with an empty list exists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mnemon_server.domain.records import FilterValue, MetadataValue, Scope

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
