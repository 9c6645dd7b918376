"""A value is written into the fields of the same names, and a field that it lacks is an error, not an empty answer."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, decisions_pb2, semantic_pb2
from mnemon_server.domain.conflicts import MergeStatistics, Signal, SignalType
from mnemon_server.domain.semantic import IndexState, IndexStatus
from mnemon_server.transport.convert.shared.fields import filled

STATUS = IndexStatus(state=IndexState.READY, write_latency_s=0.5, snapshot_time=datetime(2026, 1, 1, tzinfo=UTC))


@dataclass
class Merged:
    merge: MergeStatistics
    scope: None = None


def test_names_lengths_and_times_are_written() -> None:
    message = filled(semantic_pb2.GetIndexStatusResponse(), STATUS, message="given")
    assert (message.state, message.message) == (common_pb2.STATE_READY, "given")
    assert (message.write_latency, message.snapshot_time) == (
        Duration(nanos=500_000_000),
        Timestamp(seconds=1767225600),
    )
    signal = Signal(SignalType.TIME, 1.0, 60.0, ("a", "b"), timedelta(seconds=2))
    written = filled(decisions_pb2.ConflictSignal(), signal)
    assert (written.type, written.time_delta, [*written.keywords]) == (
        decisions_pb2.SIGNAL_TYPE_TIME, Duration(seconds=2), ["a", "b"],
    )  # fmt: skip


def test_what_is_none_stays_unset_and_a_message_of_zeros_is_set() -> None:
    assert not filled(semantic_pb2.GetIndexStatusResponse(), replace(STATUS, snapshot_time=None)).HasField(
        "snapshot_time"
    )
    zeros = Merged(MergeStatistics(content_length=0, keywords_count=0, importance_delta=0.0, deduplicated_count=0))
    names = [field.name for field in decisions_pb2.Decision.DESCRIPTOR.fields if field.name not in ("merge", "scope")]
    assert filled(decisions_pb2.Decision(), zeros, **dict.fromkeys(names)).HasField("merge")


def test_a_field_that_a_value_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="superseded_count"):
        filled(semantic_pb2.DeleteSemanticMemoriesResponse(), MergeStatistics, deleted_count=1)
