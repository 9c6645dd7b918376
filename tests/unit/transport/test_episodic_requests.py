"""Invalid requests about the timeline are refused, and every invalid field is named."""

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb
from mnemon_server.transport.convert import events as requests

from tests.support.refusals import refused_fields
from tests.support.timeline_messages import happened, record, window

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()
FILTERED = [
    (requests.read_window, pb.QueryWindowRequest),
    (requests.read_recent, pb.ListRecentEventsRequest),
    (requests.read_summary, pb.SummarizeRangeRequest),
    (requests.read_pruning, pb.PruneEventsRequest),
]
RANGED = FILTERED[0], FILTERED[2]


def test_an_event_is_required_and_so_is_its_time() -> None:
    assert refused_fields(requests.read_record, pb.RecordEventRequest()) == ["event"]
    assert refused_fields(requests.read_record, record(metadata={"fine": common_pb2.MetadataValue(int_value=1)})) == []
    timeless = pb.RecordEventRequest(event=pb.EpisodicEvent(scope={"user": "ada"}, event_type="task"))
    assert refused_fields(requests.read_record, timeless) == ["event.event_time"]


BAD = pb.EpisodicEvent(
    event_id="i" * 257,
    scope={"persona": "p" * 257},
    content="\0",
    context="c" * 65_537,
    importance=float("nan"),
    source="s" * 257,
    event_time=NO_TIME,
    metadata={"unset": UNSET, "not a key": common_pb2.MetadataValue(int_value=1)},
)
WRONG = [
    "event.content", "event.context", "event.event_id", "event.event_time", "event.event_type", "event.importance",
    "event.metadata", "event.metadata.unset", "event.scope.persona", "event.scope.user", "event.source",
]  # fmt: skip


def test_every_invalid_field_of_an_event_is_named_at_once() -> None:
    request = pb.RecordEventRequest(event=BAD, request_id="r" * 129)
    assert refused_fields(requests.read_record, request) == [*WRONG, "request_id"]
    assert refused_fields(requests.read_record, pb.RecordEventRequest(event=BAD)) == WRONG


def test_fields_of_an_event_that_only_the_server_sets_are_not_checked() -> None:
    assert refused_fields(requests.read_record, pb.RecordEventRequest(event=happened(record_time=NO_TIME))) == []


@pytest.mark.parametrize(("read", "kind"), FILTERED)
def test_invalid_parts_of_a_filter_are_named_with_the_other_fields(read: Any, kind: Any) -> None:
    assert refused_fields(read, kind(filter={"scope": {"user": "ada"}, "min_importance": 0.5})) == []
    bad = pb.EpisodicEventFilter(scope={"user": "u" * 257}, event_types=["t" * 129], min_importance=2.0, filter={})
    assert refused_fields(read, kind(filter=bad)) == [
        "filter.event_types", "filter.filter", "filter.min_importance", "filter.scope.user",
    ]  # fmt: skip


@pytest.mark.parametrize(("read", "kind"), FILTERED)
def test_an_invalid_filter_does_not_count_as_no_filter(read: Any, kind: Any) -> None:
    assert refused_fields(read, kind(filter=pb.EpisodicEventFilter(filter={}))) == ["filter.filter"]


@pytest.mark.parametrize(("read", "kind"), RANGED)
def test_both_ends_of_a_range_must_be_times(read: Any, kind: Any) -> None:
    assert refused_fields(read, kind(range={})) == []
    assert refused_fields(read, kind(range={"start_time": NO_TIME, "end_time": Timestamp(nanos=-1)})) == [
        "range.end_time",
        "range.start_time",
    ]
    assert refused_fields(read, kind(range={"start_time": Timestamp(), "end_time": NO_TIME})) == ["range.end_time"]


def test_other_errors_of_a_query_are_named_with_invalid_values() -> None:
    request = pb.QueryWindowRequest(last_days=0, limit=1_001, query="\0", mode=9, view=9)  # type: ignore[arg-type]
    assert refused_fields(requests.read_window, request) == ["last_days", "limit", "mode", "query", "view"]
    assert refused_fields(requests.read_window, window(query="tea", mode="SEARCH_MODE_KEYWORD")) == []


def test_a_negative_page_size_is_refused() -> None:
    assert refused_fields(requests.read_recent, pb.ListRecentEventsRequest(page_size=-1)) == ["page_size"]
    assert refused_fields(requests.read_recent, pb.ListRecentEventsRequest(page_size=2**31 - 1)) == []


def test_other_errors_of_a_pruning_are_named_with_invalid_values() -> None:
    assert refused_fields(requests.read_pruning, pb.PruneEventsRequest(before=Timestamp())) == []
    assert refused_fields(requests.read_pruning, pb.PruneEventsRequest(before=NO_TIME)) == ["before"]
    request = pb.PruneEventsRequest(before=NO_TIME, event_ids=["fine", ""], request_id="r" * 129)
    assert refused_fields(requests.read_pruning, request) == ["before", "event_ids", "event_ids[1]", "request_id"]
