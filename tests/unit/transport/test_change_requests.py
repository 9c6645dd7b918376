"""Invalid requests to the change service are refused, and every invalid field is named."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import changes_pb2 as pb
from mnemon_server.transport.convert import changes as requests

from tests.support.refusals import refused_fields

SHARED = [
    ({}, []),
    ({"cursor": "anything"}, []),
    ({"start_time": Timestamp(seconds=10**13)}, ["start_time"]),
    ({"start_time": Timestamp(nanos=-1)}, ["start_time"]),
    ({"view": pb.CHANGE_VIEW_FULL}, []),
    ({"view": 3}, ["view"]),
    ({"filter": {"types": [1, 8]}}, []),
    ({"filter": {"types": [1, 0, 99]}}, ["filter.types[1]", "filter.types[2]"]),
    ({"filter": {"types": [1] * 64}}, []),
    ({"filter": {"types": [1] * 65}}, ["filter.types"]),
    ({"filter": {"record_ids": ["a"] * 256}}, []),
    ({"filter": {"record_ids": ["a"] * 257}}, ["filter.record_ids"]),
    ({"filter": {"record_ids": ["a" * 512, "a\0b", "a" * 513]}}, ["filter.record_ids[1]", "filter.record_ids[2]"]),
    ({"filter": {"conversation": "a\0b"}}, ["filter.conversation"]),
    ({"filter": {"scope": {"user": "u" * 257, "agent": "\0"}}}, ["filter.scope.agent", "filter.scope.user"]),
    (
        {"view": 9, "filter": {"scope": {"user": "u" * 257}, "types": [77]}},
        ["filter.scope.user", "filter.types[0]", "view"],
    ),
]


@pytest.mark.parametrize(("request_fields", "wrong"), SHARED)
def test_watches_and_lists_are_read_in_the_same_way(request_fields: dict[str, Any], wrong: list[str]) -> None:
    assert refused_fields(requests.read_watch, pb.WatchChangesRequest(**request_fields)) == wrong
    assert refused_fields(requests.read_list, pb.ListChangesRequest(**request_fields)) == wrong


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({"earliest": True}, []),
        ({"earliest": False}, ["earliest"]),
        ({"max_batch_size": -1}, ["max_batch_size"]),
        ({"max_batch_size": 2**31 - 1}, []),
        ({"heartbeat_interval": Duration(seconds=5)}, []),
        ({"heartbeat_interval": Duration(seconds=60)}, []),
        ({"heartbeat_interval": Duration(seconds=4, nanos=999_999_999)}, ["heartbeat_interval"]),
        ({"heartbeat_interval": Duration(seconds=60, nanos=1)}, ["heartbeat_interval"]),
        ({"heartbeat_interval": Duration()}, ["heartbeat_interval"]),
    ],
)
def test_a_watch_has_its_own_limits(request_fields: dict[str, Any], wrong: list[str]) -> None:
    assert refused_fields(requests.read_watch, pb.WatchChangesRequest(**request_fields)) == wrong


def test_a_negative_page_size_is_refused_and_a_large_one_is_not() -> None:
    assert refused_fields(requests.read_list, pb.ListChangesRequest(page_size=-1)) == ["page_size"]
    assert refused_fields(requests.read_list, pb.ListChangesRequest(page_size=2**31 - 1)) == []
