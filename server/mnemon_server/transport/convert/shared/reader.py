"""How a request is read: each field once, and on the way it is noted what is wrong with it."""

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.clock import ZONE_RULE, time_zone
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
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
from mnemon_server.domain.records import METADATA_LIST_MAX, MetadataValue
from mnemon_server.services.reading.filter_expressions import joined
from mnemon_server.services.writing.field_masks import covers
from mnemon_server.wire.enums import members_of
from mnemon_server.wire.values import time_from_pb, value_from_pb

T = TypeVar("T")

BULK_REQUESTS_MAX = 1000
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1000
DURATION_RANGE = "must be within 10,000 years, with seconds and nanoseconds of the same sign"
_DURATION_S_MAX, _SECOND_NS = 315_576_000_000, 10**9
"""The range of a Duration, which the runtime does not check."""
TIME_RANGE = "must be a time from year 1 to 9999, with 0 to 999,999,999 nanoseconds"


class Page(NamedTuple, Generic[T]):
    """Which records a page is of, and how many it has at most."""

    where: T
    limit: int


class Reader:
    """Reads the fields of one request as values, and notes those that are invalid.

    The service checks the values. Only if something was noted does `finish` ask for that check, too, so that the error
    names everything that is wrong with the request. The value read for an invalid field only serves that check.
    """

    __slots__ = ("violations",)

    def __init__(self) -> None:
        self.violations: list[FieldViolation] = []

    def note(self, field: str, description: str) -> None:
        """Notes what is wrong with a field."""
        self.violations.append(FieldViolation(field, description))

    def enum(self, field: str, number: int, known: Mapping[int, T]) -> T:
        """The member of an enumeration. An unknown number is invalid: the server may not keep what it stands for."""
        if number in known:
            return known[number]
        self.note(field, f"must be one of {', '.join(map(str, sorted(known)))}; {number} is not known")
        return known[min(known)]

    def value(self, field: str, message: common_pb2.MetadataValue) -> MetadataValue | None:
        """A value with its type; None if it is invalid."""
        value = value_from_pb(message)
        if value is None:
            self._note_value(field, message)
        return value

    def metadata(
        self,
        field: str,
        entries: Mapping[str, common_pb2.MetadataValue],
        list_max: int | None = METADATA_LIST_MAX + 1,
    ) -> dict[str, Any]:
        """The values by key, None for an invalid one; of a list, at most `list_max` texts, or all if that is None."""
        # Most are empty, and a view of a message's map costs as much as all the rest of a message.
        if not entries:
            return {}
        # By key: `items` of a message's map takes twice as long.
        values = {key: value_from_pb(entries[key], list_max) for key in entries}
        if None in values.values():
            for key, value in values.items():
                if value is None:
                    self._note_value(f"{field}.{key}", entries[key])
        return values

    def time(self, field: str, owner: Message, name: str) -> datetime | None:
        """The time in the field `name` of a message; None if it is unset or invalid. In the request, it is `field`."""
        if not owner.HasField(name):
            return None
        time = time_from_pb(getattr(owner, name))
        if time is None:
            self.note(field, TIME_RANGE)
        return time

    def as_of(self, owner: Message) -> datetime | None:
        """The moment in the past that a request asks about; None if it asks about now."""
        return self.time("as_of_time", owner, "as_of_time")

    def time_zone(self, field: str, name: str) -> tzinfo:
        """The time zone with this name; UTC if it is empty or invalid."""
        zone = time_zone(name) if name else UTC
        if zone is None:
            self.note(field, ZONE_RULE)
        return zone or UTC

    def duration(self, field: str, owner: Message, name: str) -> timedelta | None:
        """The duration in the field `name` of a message; None if unset or invalid. The request calls it `field`."""
        if not owner.HasField(name):
            return None
        message: Duration = getattr(owner, name)
        mixed = message.seconds * message.nanos < 0
        if mixed or abs(message.seconds) > _DURATION_S_MAX or abs(message.nanos) >= _SECOND_NS:
            self.note(field, DURATION_RANGE)
            return None
        return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)

    def span(self, field: str, message: common_pb2.TimeRange) -> tuple[datetime | None, datetime | None]:
        """The start and the end of a span of time; None for one that is unset or invalid."""
        start = self.time(f"{field}.start_time", message, "start_time")
        return start, self.time(f"{field}.end_time", message, "end_time")

    def page_size(self, asked: int, default: int = PAGE_SIZE_DEFAULT) -> int:
        """How many records a page has at most."""
        if asked < 0:
            self.note("page_size", "must not be negative; 0 is the default")
        return min(asked or default, PAGE_SIZE_MAX)

    def finish(self, rest: Iterable[FieldViolation] = ()) -> None:
        """Raises InvalidArgumentError if something was noted.

        Args:
            rest: what the service finds wrong with the values; of it, only what concerns other fields counts. Not
                iterated if nothing was noted.
        """
        if self.violations:
            noted = {violation.field for violation in self.violations}
            raise InvalidArgumentError([*self.violations, *(each for each in rest if each.field not in noted)])

    def _note_value(self, field: str, message: common_pb2.MetadataValue) -> None:
        is_time = message.HasField("timestamp_value")
        self.note(field, TIME_RANGE if is_time else "must be set; null is not a value")


def read_page_size(request: Any, default: int = PAGE_SIZE_DEFAULT) -> int:
    """How many records a page has at most, of a request in which nothing else needs to be read."""
    reader = Reader()
    size = reader.page_size(request.page_size, default)
    reader.finish()
    return size


def require(request: Message, field: str) -> None:
    """Raises InvalidArgumentError if a field is unset without which there is nothing to read."""
    if not request.HasField(field):
        raise InvalidArgumentError.of(field, "is required")


def check_bulk(requests: Sequence[object]) -> None:
    """Raises InvalidArgumentError if a message of a bulk stream holds no request, or too many."""
    if not 1 <= len(requests) <= BULK_REQUESTS_MAX:
        raise InvalidArgumentError.of("requests", f"must be 1 to {BULK_REQUESTS_MAX:,}; send several messages")


def expected_revision(request: Any) -> int | None:
    """The revision that a record must have for the request to change it; None if any will do."""
    return request.expected_revision if request.HasField("expected_revision") else None


def named(violations: Iterable[FieldViolation], mask: Collection[str], record: str) -> Iterator[FieldViolation]:
    """The violations in fields that a mask names, of a record in the field `record` of the request."""
    for violation in violations:
        if any(covers(path, violation.field.removeprefix(f"{record}.")) for path in mask):
            yield violation


def vector_from_pb(values: Sequence[float]) -> "array[float] | None":
    """The vector, as 32-bit floats; None if it is unset."""
    if not values:
        return None
    # Written out, a message ends with its numbers as they lie in memory. For 384 of them that takes 5 microseconds,
    # making an object of each one 30, and checking and storing those another 30.
    written = pb.SearchMemoriesRequest(vector=values).SerializeToString()
    vector = array("f", written[-4 * len(values) :])
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


# Filters as expressions. Each service checks itself which fields and values they may have.


OPERATORS = members_of(common_pb2.Comparator, Operator)


def read_filter(reader: Reader, field: str, message: common_pb2.Filter) -> Expression:
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
    def filter(self) -> common_pb2.Filter:
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

    def part(self, path: str, message: common_pb2.Filter, *, levels: int) -> Expression | None:
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
        self,
        join: Callable[[tuple[Expression, ...]], Expression],
        path: str,
        message: common_pb2.FilterList,
        *,
        levels: int,
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

    def _condition(self, path: str, message: common_pb2.Condition) -> Condition:
        operator = self.reader.enum(f"{path}.comparator", message.comparator, OPERATORS)
        if len(message.values) > VALUES_MAX:
            self.reader.note(f"{path}.values", f"must be at most {VALUES_MAX}")
            return Condition(message.field, operator, ())
        read = (self.reader.value(f"{path}.values[{index}]", value) for index, value in enumerate(message.values))
        return Condition(message.field, operator, tuple(value for value in read if value is not None))
