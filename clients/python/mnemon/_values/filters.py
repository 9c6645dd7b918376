"""Filters as expressions: `(F("type") == "preference") & (F("metadata.score") >= 3)`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._enums import choice
from mnemon._values.documents import MetadataValue
from mnemon.shared.errors import InvalidArgumentError
from mnemon.shared.tool_definitions import FILTER_OPERATORS


class Operator(StrEnum):
    """How a field is compared; the names are those of the API."""

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


class Filter:
    """A condition on a record, made with `F` and joined with `&` (and), `|` (or) and `~` (not).

    A filter may be 8 levels deep and have 128 parts.
    """

    __slots__ = ()

    def __and__(self, other: "Filter") -> "Filter":
        if not isinstance(other, Filter):
            return NotImplemented
        return AllOf(_parts(self, AllOf) + _parts(other, AllOf))

    def __or__(self, other: "Filter") -> "Filter":
        if not isinstance(other, Filter):
            return NotImplemented
        return AnyOf(_parts(self, AnyOf) + _parts(other, AnyOf))

    def __invert__(self) -> "Filter":
        return self.part if isinstance(self, Negation) else Negation(self)

    def __bool__(self) -> bool:
        # `and`, `or`, `not` and chained comparisons would silently drop one side.
        raise TypeError(
            "a filter is neither true nor false: join filters with &, | and ~, each one in parentheses, "
            "and write a range as two comparisons"
        )


@dataclass(frozen=True, slots=True)
class Condition(Filter):
    """One comparison; `values` has one value, except for IN and NIN."""

    field: str
    operator: Operator
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AllOf(Filter):
    """Every part must hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Filter):
    """At least one part must hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Negation(Filter):
    """The part must not hold."""

    part: Filter


FilterLike: TypeAlias = Filter | Mapping[str, Any]
"""A filter: an expression of `F`, or a mapping in which every entry must hold.

An entry is a field with the value that it must equal, or with operators and what to compare with:
`{"type": "preference", "metadata.score": {"gte": 3, "lt": 8}, "agent": {"in": ["claude", "gemini"]}}`. The operators
are eq, ne, gt, gte, lt, lte, in, nin, contains and exists.
"""


class F:
    """A field of a record by its name, such as "type" or "create_time", or "metadata." and a key.

    Compared with a value it gives a `Filter`. Values keep their types: a text never equals a number, whole numbers and
    numbers compare with each other, and times carry a zone. A field of the record takes values of its type, and for a
    time also a text such as "2027-01-31T12:00:00Z"; any other value raises InvalidArgumentError. Metadata of another
    type matches nothing.

        F("type") == "preference"
        (F("metadata.score") >= 3) & ~F("agent").isin(["claude", "gemini"])
        F("content").contains("tea") | F("metadata.tags").contains("tea")
    """

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"F({self.name!r})"

    def __eq__(self, value: MetadataValue) -> Filter:  # type: ignore[override]
        return Condition(self.name, Operator.EQ, (value,))

    def __ne__(self, value: MetadataValue) -> Filter:  # type: ignore[override]
        """Not equal, or missing."""
        return Condition(self.name, Operator.NE, (value,))

    def __gt__(self, value: MetadataValue) -> Filter:
        return Condition(self.name, Operator.GT, (value,))

    def __ge__(self, value: MetadataValue) -> Filter:
        return Condition(self.name, Operator.GTE, (value,))

    def __lt__(self, value: MetadataValue) -> Filter:
        return Condition(self.name, Operator.LT, (value,))

    def __le__(self, value: MetadataValue) -> Filter:
        return Condition(self.name, Operator.LTE, (value,))

    def isin(self, values: Iterable[MetadataValue]) -> Filter:
        """Equal to one of the values, at most 256."""
        return Condition(self.name, Operator.IN, _several(self.name, values))

    def contains(self, text: str) -> Filter:
        """A text that contains this text, with the same case and accents; or a list with this item."""
        return Condition(self.name, Operator.CONTAINS, (text,))

    def exists(self) -> Filter:
        """The record has the field; an empty text counts as missing."""
        return Condition(self.name, Operator.EXISTS, (True,))


def as_filter(given: FilterLike) -> Filter:
    """The filter. Raises InvalidArgumentError if it is not valid."""
    if isinstance(given, Filter):
        return given
    if not given or not hasattr(given, "items"):
        right = 'must be a filter such as F("type") == "preference", or a mapping of fields to values'
        raise InvalidArgumentError.of("where", right)
    found = tuple(condition for name, value in given.items() for condition in _entry(name, value))
    return found[0] if len(found) == 1 else AllOf(found)


FACT_OPERATORS = {name: Operator(name.removeprefix("$")) for name in FILTER_OPERATORS}


def as_fact_filter(given: object) -> Filter | None:
    """The filter of facts from an argument: an expression of `F`, or keys as tools name them; None means all."""
    if given is None or isinstance(given, Filter):
        return given
    if not isinstance(given, Mapping):
        right = 'must be a mapping such as {"category": "drinks"}, or F("value.category") == "drinks"'
        raise InvalidArgumentError.of("where", right)
    found = tuple(condition for key, wanted in given.items() for condition in _of_key(key, wanted))
    return AllOf(found) if len(found) > 1 else next(iter(found), None)


def _of_key(key: object, wanted: Any) -> Iterable[Filter]:
    if not isinstance(key, str):
        raise InvalidArgumentError.of("where", f"its keys must be text, not {type(key).__name__}")
    name = f"value.{key}"
    if not isinstance(wanted, Mapping):
        return [Condition(name, Operator.EQ, (wanted,))]
    if not wanted:
        raise InvalidArgumentError.of(f"where.{key}", 'must be a value, or operators with values such as {"$gte": 3}')
    if unknown := [sign for sign in wanted if sign not in FACT_OPERATORS]:
        known = ", ".join(FACT_OPERATORS)
        raise InvalidArgumentError.of(f"where.{key}", f"{unknown[0]!r} is not an operator; the operators are {known}")
    return [_condition(name, FACT_OPERATORS[sign], value) for sign, value in wanted.items()]


def _entry(name: str, value: Any) -> Iterable[Filter]:
    if not isinstance(value, Mapping):
        return [Condition(name, Operator.EQ, (value,))]
    if not value:
        raise InvalidArgumentError.of(f"where.{name}", 'must be a value, or operators with values such as {"gte": 3}')
    return [_condition(name, choice(f"where.{name}", key, Operator), each) for key, each in value.items()]


def _condition(name: str, operator: Operator, value: Any) -> Filter:
    several = operator in (Operator.IN, Operator.NIN)
    return Condition(name, operator, _several(name, value) if several else (value,))


def _several(name: str, values: Any) -> tuple[MetadataValue, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgumentError.of(f"where.{name}", f"must be several values, such as [{values!r}]")
    return tuple(values)


def _parts(given: Filter, kind: type[AllOf] | type[AnyOf]) -> tuple[Filter, ...]:
    # Joined flat, so that a long chain of one operator is one level deep.
    return given.parts if isinstance(given, kind) else (given,)
