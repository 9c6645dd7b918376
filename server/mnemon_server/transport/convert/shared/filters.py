"""Filters that clients send, as expressions.

What the parts of a filter may say depends on the service, which checks it itself.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from mnemon.v1 import common_pb2 as pb

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import (
    DEPTH_MAX,
    PARTS_MAX,
    VALUES_MAX,
    AllOf,
    AnyOf,
    Condition,
    Expression,
    NoneOf,
    Operator,
)
from mnemon_server.domain.origins import NAMES, Origin, less_trusted, not_from
from mnemon_server.services.reading.filter_expressions import joined
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.wire.enums import members_of

OPERATORS = members_of(pb.Comparator, Operator)


def read_filter(reader: Reader, field: str, message: pb.Filter) -> Expression:
    """The filter as an expression; if it is invalid, the reader notes why, and the expression matches everything."""
    walk = _Walk()
    expression = walk.part(field, message, levels=DEPTH_MAX)
    wrong = [FieldViolation(field, walk.exceeded)] if walk.exceeded else walk.reader.violations
    reader.violations += wrong
    # None would mean that no filter was sent, which the service may refuse as well.
    return AllOf(()) if wrong or expression is None else expression


class Trusting(Protocol):
    """A message that may leave out records whose origins are less trusted."""

    @property
    def min_trust(self) -> str:
        """The name of an origin; empty for any."""


class Filtered(Trusting, Protocol):
    """The filter of a request."""

    @property
    def filter(self) -> pb.Filter:
        """Further conditions."""

    def HasField(self, field_name: Literal["filter"], /) -> bool:  # noqa: N802 - protobuf's name
        """Whether it is set."""


def read_min_trust(reader: Reader, field: str, message: Trusting) -> Origin | None:
    """The least trusted origin whose records are included; None includes all."""
    try:
        return Origin(message.min_trust) if message.min_trust else None
    except ValueError:
        reader.note(field, f"must be one of {NAMES}, or empty")
        return None


def read_conditions(reader: Reader, message: Filtered) -> Expression | None:
    """The condition made of a filter's fields `filter` and `min_trust`."""
    given = read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None
    least = read_min_trust(reader, "filter.min_trust", message)
    return joined([given, not_from(less_trusted(least)) if least else None])


class _Walk:
    """Goes through a filter part by part, and no further than its limits."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.exceeded = ""
        """The limit that the filter as a whole exceeds; empty if it is within all of them."""
        self._parts_left = PARTS_MAX

    def part(self, path: str, message: pb.Filter, *, levels: int) -> Expression | None:
        """The part at `path`, which may have `levels` levels; None if it is invalid."""
        self._parts_left -= 1
        if levels == 0:
            self.exceeded = f"must be at most {DEPTH_MAX} levels deep"
        elif self._parts_left < 0:
            self.exceeded = f"must have at most {PARTS_MAX} parts"
        if self.exceeded:
            return None
        match message.WhichOneof("kind"):
            case "condition":
                return self._condition(f"{path}.condition", message.condition)
            case "all_of":
                return self._joined(AllOf, f"{path}.all_of.filters", message.all_of, levels=levels - 1)
            case "any_of":
                return self._joined(AnyOf, f"{path}.any_of.filters", message.any_of, levels=levels - 1)
            case "none_of":
                return self._joined(NoneOf, f"{path}.none_of.filters", message.none_of, levels=levels - 1)
            case _:
                self.reader.note(path, "must be set: all_of, any_of, none_of or condition")
                return None

    def _joined(
        self, join: Callable[[tuple[Expression, ...]], Expression], path: str, message: pb.FilterList, *, levels: int
    ) -> Expression:
        if not message.filters:
            self.reader.note(path, "must have at least one part")
        parts = []
        for index, each in enumerate(message.filters):
            if self.exceeded:
                break
            if part := self.part(f"{path}[{index}]", each, levels=levels):
                parts.append(part)
        return join(tuple(parts))

    def _condition(self, path: str, message: pb.Condition) -> Condition:
        operator = self.reader.enum(f"{path}.comparator", message.comparator, OPERATORS)
        if len(message.values) > VALUES_MAX:
            self.reader.note(f"{path}.values", f"must be at most {VALUES_MAX}")
            return Condition(message.field, operator, ())
        read = (self.reader.value(f"{path}.values[{index}]", value) for index, value in enumerate(message.values))
        return Condition(message.field, operator, tuple(value for value in read if value is not None))
