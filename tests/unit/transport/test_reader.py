"""A request is read once. The service's own checks run only if an invalid value was found."""

from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2 as pb
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.records import AckLevel
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.wire.values import ACK_LEVELS

NO_TIME = Timestamp(seconds=10**13)


def test_a_valid_request_is_read_without_further_checks() -> None:
    def rest() -> Iterator[FieldViolation]:
        raise AssertionError("asked, though nothing was noted")
        yield

    reader = Reader()
    assert reader.enum("ack", pb.ACK_LEVEL_SEARCHABLE, ACK_LEVELS) is AckLevel.SEARCHABLE
    assert reader.metadata("metadata", {"n": pb.MetadataValue(int_value=5)}) == {"n": 5}
    start, end = reader.span("created", pb.TimeRange(start_time=Timestamp(seconds=1)))
    assert (start and start.timestamp(), end) == (1, None)
    assert [reader.page_size(asked) for asked in (0, 7, 5_000)] == [100, 7, 1_000]
    reader.finish(rest())


def test_every_invalid_value_is_named_and_the_other_fields_are_checked() -> None:
    reader = Reader()
    assert reader.enum("ack", 9, ACK_LEVELS) is AckLevel.DURABLE
    values = {"unset": pb.MetadataValue(), "late": pb.MetadataValue(timestamp_value=NO_TIME)}
    assert reader.metadata("metadata", values) == {"unset": None, "late": None}
    assert reader.span("created", pb.TimeRange(end_time=NO_TIME)) == (None, None)
    reader.page_size(-1)
    reader.time_zone("time_zone", "Mars/Olympus")
    with pytest.raises(InvalidArgumentError) as caught:
        reader.finish([FieldViolation("metadata.unset", "is no text"), FieldViolation("content", "must not be blank")])
    said = {violation.field: violation.description for violation in caught.value.violations}
    assert set(said) == {
        *("ack", "metadata.unset", "metadata.late", "created.end_time", "page_size", "time_zone", "content")
    }
    assert (said["metadata.unset"], len(caught.value.violations)) == ("must be set; null is not a value", 7)
