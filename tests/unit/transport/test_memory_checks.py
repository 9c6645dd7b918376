"""Requests to the memory service that are no values are refused with every field that is wrong, the rest included."""

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.checks import memories as checks

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()
FILTERED = [
    (checks.check_list_memories, pb.ListMemoriesRequest),
    (checks.check_search_memories, pb.SearchMemoriesRequest),
    (checks.check_purge_memories, pb.PurgeMemoriesRequest),
    (checks.check_count_memories, pb.CountMemoriesRequest),
    (checks.check_forecast_memories, pb.ForecastMemoriesRequest),
]


def fields(check: Any, request: Any) -> list[str]:
    """The fields that the check finds fault with."""
    try:
        check(request)
    except InvalidArgumentError as error:
        return [violation.field for violation in error.violations]
    return []


def test_a_memory_is_required() -> None:
    assert fields(checks.check_create_memory, pb.CreateMemoryRequest()) == ["memory"]
    assert fields(checks.check_update_memory, pb.UpdateMemoryRequest()) == ["memory"]


def test_everything_that_is_wrong_with_a_memory_is_named_at_once() -> None:
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
    assert sorted(fields(checks.check_create_memory, request)) == [
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


def test_of_a_change_only_what_the_mask_names_is_looked_at() -> None:
    memory = pb.Memory(memory_id="m", content=" ", decay_policy=7, metadata={"unset": UNSET})

    def wrong(*paths: str, **request: Any) -> list[str]:
        message = pb.UpdateMemoryRequest(memory=memory, update_mask=FieldMask(paths=paths), **request)
        return sorted(fields(checks.check_update_memory, message))

    assert wrong("type") == []
    assert wrong("decay_policy") == ["memory.decay_policy"]
    assert wrong("metadata") == wrong("metadata.unset") == ["memory.metadata.unset"]
    assert wrong("metadata.other") == []
    assert wrong("content", "decay_policy", "metadata", "confidence", ack=5, expected_revision=-1) == [
        "ack",
        "expected_revision",
        "memory.content",
        "memory.decay_policy",
        "memory.metadata.unset",
        "update_mask",
    ]


def test_a_deletion_that_asks_for_an_unknown_promise_is_refused_with_everything_else() -> None:
    request = pb.DeleteMemoryRequest(request_id="r" * 129, expected_revision=-1, ack=9)
    assert fields(checks.check_delete_memory, request) == ["ack", "memory_id", "request_id", "expected_revision"]


@pytest.mark.parametrize(("check", "kind"), FILTERED)
def test_times_and_parts_of_a_filter_that_are_none_are_named_with_the_rest(check: Any, kind: Any) -> None:
    extra = {"by_time": Timestamp(seconds=1)} if kind is pb.ForecastMemoriesRequest else {}
    assert fields(check, kind(**extra)) == []
    message = pb.MemoryFilter(
        scope={"user": "u" * 257},
        personality="p" * 257,
        metadata={"$or": common_pb2.MetadataValue(int_value=1)},
        created_from=NO_TIME,
        created_to=Timestamp(nanos=-1),
        reinforced_from=NO_TIME,
        reinforced_to=NO_TIME,
        min_confidence=float("nan"),
        filter={},
    )
    assert sorted(fields(check, kind(filter=message, **extra))) == [
        "filter.created_from",
        "filter.created_to",
        "filter.filter",
        "filter.metadata",
        "filter.min_confidence",
        "filter.personality",
        "filter.reinforced_from",
        "filter.reinforced_to",
        "filter.scope.user",
    ]


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({"mode": 9}, ["mode"]),
        ({"mode": 9, "limit": 0, "min_score": 2.0}, ["mode", "limit", "min_score"]),
        ({"mode": 9, "min_confidence": float("nan")}, ["mode", "min_confidence"]),
        ({"mode": 9, "query": "é" * 32_769, "vector": [0.0]}, ["mode", "query", "vector"]),
    ],
)
def test_a_search_in_an_unknown_mode_is_refused_with_everything_else(
    request_fields: dict[str, Any], wrong: list[str]
) -> None:
    assert fields(checks.check_search_memories, pb.SearchMemoriesRequest(**request_fields)) == wrong


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({}, ["by_time"]),
        ({"by_time": NO_TIME}, ["by_time"]),
        ({"by_time": Timestamp()}, []),
        ({"by_time": Timestamp(), "min_confidence": 1.0}, []),
        ({"by_time": Timestamp(), "min_confidence": 0.0}, ["min_confidence"]),
        ({"by_time": Timestamp(), "min_confidence": 1.1}, ["min_confidence"]),
        ({"by_time": Timestamp(), "min_confidence": float("nan")}, ["min_confidence"]),
        ({"page_size": -1, "min_confidence": -1.0}, ["by_time", "min_confidence", "page_size"]),
    ],
)
def test_a_forecast_needs_a_time_and_a_bound_over_zero(request_fields: dict[str, Any], wrong: list[str]) -> None:
    assert fields(checks.check_forecast_memories, pb.ForecastMemoriesRequest(**request_fields)) == wrong


def test_a_negative_page_size_is_refused_and_a_large_one_is_not() -> None:
    assert fields(checks.check_list_memories, pb.ListMemoriesRequest(page_size=-1)) == ["page_size"]
    assert fields(checks.check_list_memories, pb.ListMemoriesRequest(page_size=2**31 - 1)) == []
