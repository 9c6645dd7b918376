"""How a request is read: each field once, and what is wrong with any of them is noted on the way."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.records import MetadataValue
from mnemon_server.services.shared.field_masks import covers
from mnemon_server.transport.convert.shared.reading import (
    PAGE_SIZE_DEFAULT,
    others,
    page_size,
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
    value_violations,
)
from mnemon_server.wire.values import time_from_pb, value_from_pb

T = TypeVar("T")


class Reader:
    """Reads fields of one request as values, and notes which of them are none.

    What a value may be is its service's business, which checks it. Only where something is noted is it asked here, too,
    by `finish`, so that a request is refused with everything that is wrong with it; what was read instead of a field
    that is no value serves that alone.
    """

    __slots__ = ("violations",)

    def __init__(self) -> None:
        self.violations: list[FieldViolation] = []

    def note(self, field: str, description: str) -> None:
        """Notes what is wrong with a field."""
        self.violations.append(FieldViolation(field, description))

    def enum(self, field: str, number: int, known: Mapping[int, T]) -> T:
        """What a number stands for: a promise that this server does not know must not be broken without a word."""
        if number in known:
            return known[number]
        self.violations += unknown(field, number, known)
        return known[min(known)]

    def value(self, field: str, message: common_pb2.MetadataValue) -> MetadataValue | None:
        """A value with its type; None if it is invalid."""
        value = value_from_pb(message)
        if value is None:
            self.violations += value_violations(field, message)
        return value

    def metadata(self, field: str, entries: Mapping[str, common_pb2.MetadataValue]) -> dict[str, Any]:
        """The values by key, None for those that are none."""
        # Most have none, and a view of a message's map costs as much as all the rest of a message.
        if not entries:
            return {}
        # By key: `items` of a message's map takes twice as long.
        values = {key: value_from_pb(entries[key]) for key in entries}
        if None in values.values():
            self.violations += unset_values(field, entries)
        return values

    def time(self, field: str, owner: Message, name: str) -> datetime | None:
        """The time in a field of a message, which is called `field` in the request; None if it is unset."""
        if not owner.HasField(name):
            return None
        message: Timestamp = getattr(owner, name)
        time = time_from_pb(message)
        if time is None:
            self.violations += time_violations(field, message)
        return time

    def span(self, field: str, message: common_pb2.TimeRange) -> tuple[datetime | None, datetime | None]:
        """The ends of a span of time."""
        start = self.time(f"{field}.start_time", message, "start_time")
        return start, self.time(f"{field}.end_time", message, "end_time")

    def page_size(self, asked: int, default: int = PAGE_SIZE_DEFAULT) -> int:
        """How many records a page has at most."""
        self.violations += page_size_violations(asked)
        return page_size(asked, default)

    def finish(self, rest: Iterable[FieldViolation] = ()) -> None:
        """Raises InvalidArgumentError where something was noted.

        Args:
            rest: what the service will say of the values; not iterated where nothing was noted.
        """
        if self.violations:
            raise InvalidArgumentError(others(self.violations, rest))


def require(request: Message, field: str) -> None:
    """Raises InvalidArgumentError if a field is unset without which there is nothing to read."""
    if not request.HasField(field):
        raise InvalidArgumentError.of(field, "is required")


def expected_revision(request: Any) -> int | None:
    """The revision that a record must have for the request to change it; None if any will do."""
    return request.expected_revision if request.HasField("expected_revision") else None


def named(violations: Iterable[FieldViolation], mask: Collection[str], record: str) -> Iterator[FieldViolation]:
    """Those violations that concern what a mask names of a record, which is in the field `record` of the request."""
    for violation in violations:
        if any(covers(path, violation.field.removeprefix(f"{record}.")) for path in mask):
            yield violation
