"""Checks that the requests of several services share."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.wire.values import time_from_pb, value_from_pb

BULK_REQUESTS_MAX = 1000
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1000

Metadata = Mapping[str, common_pb2.MetadataValue]

TIME_RANGE = "must be a time from year 1 to 9999, with 0 to 999,999,999 nanoseconds"


def check_bulk(requests: Sequence[object]) -> None:
    """Raises InvalidArgumentError where a run of a bulk stream is empty or too long."""
    if not 1 <= len(requests) <= BULK_REQUESTS_MAX:
        raise InvalidArgumentError.of("requests", f"must be 1 to {BULK_REQUESTS_MAX:,}; send several messages")


def page_size(asked: int, default: int = PAGE_SIZE_DEFAULT) -> int:
    """How many records a page has at most."""
    return min(asked or default, PAGE_SIZE_MAX)


def page_size_violations(asked: int) -> Iterator[FieldViolation]:
    """What is wrong with the size of a page."""
    if asked < 0:
        yield FieldViolation("page_size", "must not be negative; 0 is the default")


def share_violations(field: str, number: float) -> Iterator[FieldViolation]:
    """What is wrong with a number that must be from 0 to 1."""
    # Also false for what is not a number.
    if not 0 <= number <= 1:
        yield FieldViolation(field, "must be from 0 to 1")


def time_violations(field: str, message: Timestamp) -> Iterator[FieldViolation]:
    """What is wrong with a time."""
    if time_from_pb(message) is None:
        yield FieldViolation(field, TIME_RANGE)


def range_violations(field: str, message: common_pb2.TimeRange) -> Iterator[FieldViolation]:
    """What is wrong with the ends of a span of time."""
    if message.HasField("start_time"):
        yield from time_violations(f"{field}.start_time", message.start_time)
    if message.HasField("end_time"):
        yield from time_violations(f"{field}.end_time", message.end_time)


def value_violations(field: str, value: common_pb2.MetadataValue) -> Iterator[FieldViolation]:
    """What is wrong with a value that would be none."""
    if value_from_pb(value) is None:
        is_time = value.HasField("timestamp_value")
        yield FieldViolation(field, TIME_RANGE if is_time else "must be set; null is not a value")


def unset_values(field: str, metadata: Metadata) -> Iterator[FieldViolation]:
    """The values of metadata that would be none."""
    # Most have none, and a view of a message's map costs as much as all the other checks of a message.
    if metadata:
        for key, value in metadata.items():
            yield from value_violations(f"{field}.{key}", value)


def unknown(field: str, number: int, known: Collection[int]) -> Iterable[FieldViolation]:
    """A promise that this server does not know must not be broken without a word."""
    if number not in known:
        yield FieldViolation(field, f"must be one of {', '.join(map(str, sorted(known)))}; {number} is not known")


# What is refused is made readable in place, so that the rest of it can be looked at. Nobody needs it any more as it
# was, and to copy a map of a million entries takes seconds.


def others(found: Sequence[FieldViolation], rest: Iterable[FieldViolation]) -> list[FieldViolation]:
    """What was found, and of the rest what concerns other fields."""
    named = {violation.field for violation in found}
    return [*found, *(violation for violation in rest if violation.field not in named)]
