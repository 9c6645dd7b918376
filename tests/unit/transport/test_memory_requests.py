"""Invalid requests to the memory service are refused, and every invalid field is named, whatever its error."""

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb
from mnemon_server.transport.convert import memories as requests

from tests.support.refusals import refused_fields

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()
FILTERED = [
    (requests.read_list, pb.ListMemoriesRequest),
    (requests.read_search, pb.SearchMemoriesRequest),
    (requests.read_purge, pb.PurgeMemoriesRequest),
    (requests.read_count, pb.CountMemoriesRequest),
    (requests.read_forecast, pb.ForecastMemoriesRequest),
]


def test_a_memory_is_required() -> None:
    assert refused_fields(requests.read_create, pb.CreateMemoryRequest()) == ["memory"]
    assert refused_fields(requests.read_update, pb.UpdateMemoryRequest()) == ["memory"]


def test_every_invalid_field_of_a_memory_is_named_at_once() -> None:
    memory = pb.Memory(
        content=" ",
        scope={"agent": "a" * 257},
        personality="p" * 257,
        type="\0",
        decay_policy=7,
        metadata={
            "unset": UNSET,
            "late": common_pb2.MetadataValue(timestamp_value=NO_TIME),
            "nan": common_pb2.MetadataValue(double_value=float("nan")),
            "not a key": common_pb2.MetadataValue(int_value=1),
            "fine": common_pb2.MetadataValue(bool_value=True),
        },
    )
    request = pb.CreateMemoryRequest(memory=memory, embedding=[float("inf")], request_id="r" * 129, ack=9)
    assert refused_fields(requests.read_create, request) == [
        "ack",
        "embedding",
        "memory.content",
        "memory.decay_policy",
        "memory.metadata",
        "memory.metadata.late",
        "memory.metadata.nan",
        "memory.metadata.unset",
        "memory.personality",
        "memory.scope.agent",
        "memory.type",
        "request_id",
    ]


def test_only_fields_in_the_mask_of_an_update_are_checked() -> None:
    memory = pb.Memory(memory_id="m", content=" ", decay_policy=7, metadata={"unset": UNSET})

    def wrong(*paths: str, **request: Any) -> list[str]:
        message = pb.UpdateMemoryRequest(memory=memory, update_mask=FieldMask(paths=paths), **request)
        return refused_fields(requests.read_update, message)

    assert wrong("type") == []
    assert wrong("decay_policy") == ["memory.decay_policy"]
    assert wrong("metadata") == ["memory.metadata.unset"]
    assert wrong(set_metadata={"unset": UNSET}, remove_metadata=[""]) == ["remove_metadata[0]", "set_metadata.unset"]
    assert wrong("content", "decay_policy", "metadata", "confidence", ack=5, expected_revision=-1) == [
        "ack",
        "expected_revision",
        "memory.content",
        "memory.decay_policy",
        "memory.metadata.unset",
        "update_mask",
    ]


def test_an_unknown_ack_level_of_a_deletion_is_refused_with_all_other_errors() -> None:
    request = pb.DeleteMemoryRequest(request_id="r" * 129, expected_revision=-1, ack=9)
    assert refused_fields(requests.read_deletion, request) == ["ack", "expected_revision", "memory_id", "request_id"]


@pytest.mark.parametrize(("read", "kind"), FILTERED)
def test_invalid_times_and_parts_of_a_filter_are_named_with_the_other_fields(read: Any, kind: Any) -> None:
    extra = {"by_time": Timestamp(seconds=1)} if kind is pb.ForecastMemoriesRequest else {}
    assert refused_fields(read, kind(**extra)) == []
    message = pb.MemoryFilter(
        scope={"user": "u" * 257},
        personality="p" * 257,
        metadata={
            "$or": common_pb2.MetadataValue(int_value=1),
            "n": common_pb2.MetadataValue(double_value=float("nan")),
        },
        created={"start_time": NO_TIME, "end_time": Timestamp(nanos=-1)},
        reinforced={"start_time": NO_TIME, "end_time": NO_TIME},
        min_confidence=float("nan"),
        filter={},
    )
    assert refused_fields(read, kind(filter=message, **extra)) == [
        "filter.created.end_time",
        "filter.created.start_time",
        "filter.filter",
        "filter.metadata",
        "filter.metadata.n",
        "filter.min_confidence",
        "filter.personality",
        "filter.reinforced.end_time",
        "filter.reinforced.start_time",
        "filter.scope.user",
    ]


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({}, ["by_time"]),
        ({"by_time": NO_TIME}, ["by_time"]),
        ({"by_time": Timestamp()}, []),
        ({"by_time": Timestamp(), "min_confidence": 1.0}, []),
        ({"page_size": -1, "min_confidence": 0.0}, ["by_time", "min_confidence", "page_size"]),
        ({"by_time": Timestamp(), "page_size": -1, "min_confidence": float("nan")}, ["min_confidence", "page_size"]),
    ],
)
def test_a_forecast_needs_a_time_and_a_positive_threshold(request_fields: dict[str, Any], wrong: list[str]) -> None:
    assert refused_fields(requests.read_forecast, pb.ForecastMemoriesRequest(**request_fields)) == wrong


def test_a_negative_page_size_is_refused_and_a_large_one_is_not() -> None:
    assert refused_fields(requests.read_list, pb.ListMemoriesRequest(page_size=-1)) == ["page_size"]
    assert refused_fields(requests.read_list, pb.ListMemoriesRequest(page_size=2**31 - 1)) == []
