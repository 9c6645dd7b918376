"""Recording events over gRPC: one by one and in both streams, and what is refused."""

import uuid
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from mnemon.v1 import episodic_pb2 as pb
from mnemon.v1 import errors_pb2

from tests.support.episodic_messages import contents, recent, told
from tests.support.memory_messages import metadata
from tests.support.server import Connection, detail, failure_of, reason, stream_end, violations
from tests.support.timeline_messages import bulk, happened, minutes, record, sent


async def get(episodic: Any, event_id: str) -> pb.EpisodicEvent:
    """The event with this id."""
    return (await episodic.GetEvent(pb.GetEventRequest(event_id=event_id))).event


# One event


async def test_an_event_is_stored_with_all_its_fields(episodic: Any) -> None:
    given = happened(
        "Ada had lunch.",
        scope={"household": "home", "persona": "butler", "agent": "claude", "project": "trip"},
        context="in the garden",
        importance=0.0,
        source="user",
        metadata=metadata(topic="food", rank=1, sure=0.5, old=False),
        event_time=Timestamp(seconds=1_700_000_000, nanos=123_456_789),
        record_time=minutes(0),
    )
    answer = await episodic.RecordEvent(pb.RecordEventRequest(event=given))
    receipt = answer.receipt
    assert str(uuid.UUID(receipt.event_id)) == receipt.event_id
    assert (receipt.sequence, receipt.segment_id, receipt.duplicate, receipt.replayed) == (1, 1, False, False)
    assert not answer.HasField("duplicate_of")
    stored = await get(episodic, receipt.event_id)
    assert stored.event_time == Timestamp(seconds=1_700_000_000, nanos=123_456_000)
    assert minutes(0).seconds < stored.record_time.seconds <= receipt.commit_time.seconds + 1
    assert stored.HasField("importance")
    for field in ("content", "context", "scope", "event_type", "importance", "source", "metadata"):
        assert getattr(stored, field) == getattr(given, field)


async def test_a_known_event_is_reported_and_not_stored_again(connection: Connection) -> None:
    episodic = connection.episodic
    first = (await episodic.RecordEvent(record("a", event_id="one"))).receipt
    stored = await get(episodic, "one")
    for again in (record("other words", 5, event_id="one"), record("a"), record("a", event_id="two")):
        answer = await episodic.RecordEvent(again)
        assert (answer.receipt.event_id, answer.receipt.duplicate) == ("one", True)
        assert (answer.receipt.sequence, answer.receipt.segment_id) == (first.sequence, first.segment_id)
        assert answer.duplicate_of == stored
    assert len(await told(connection.changes, "EPISODIC_SAVED")) == 1


async def test_a_request_id_makes_a_repeated_call_harmless(episodic: Any) -> None:
    first = (await episodic.RecordEvent(record("a", request_id="once"))).receipt
    again = (await episodic.RecordEvent(record("a", request_id="once"))).receipt
    assert (again.event_id, again.sequence, again.replayed) == (first.event_id, first.sequence, True)
    error = await failure_of(episodic.RecordEvent(record("b", request_id="once")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert contents(await recent(episodic)) == ["a"]


async def test_a_missing_event_is_not_found(episodic: Any) -> None:
    error = await failure_of(get(episodic, "nothing"))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "EVENT_NOT_FOUND")
    resource = detail(error, error_details_pb2.ResourceInfo)
    assert (resource.resource_type, resource.resource_name) == ("mnemon.EpisodicEvent", "nothing")
    assert violations(await failure_of(get(episodic, ""))) == {"event_id"}


# Streams


async def test_a_stream_is_stored_in_order_and_each_event_has_a_receipt(episodic: Any) -> None:
    runs = [
        bulk(happened(f"{run}-{n}", run * 3_000 + n) for n in range(size)) for run, size in enumerate((2_500, 1, 700))
    ]
    answers = [answer async for answer in episodic.BulkRecordEvents(sent(*runs))]
    assert [len(answer.results) for answer in answers] == [2_500, 1, 700]
    receipts = [result.receipt for answer in answers for result in answer.results]
    assert [receipt.sequence for receipt in receipts] == list(range(1, 3_202))
    assert all(receipt.commit_time.seconds for receipt in receipts)
    for index, content in ((0, "0-0"), (2_500, "1-0"), (-1, "2-699")):
        assert (await get(episodic, receipts[index].event_id)).content == content


async def test_in_a_bulk_stream_a_bad_event_fails_alone(episodic: Any) -> None:
    events = [
        happened("a", event_id="a"),
        pb.EpisodicEvent(event_type="task", scope={"user": "ada"}),
        happened("b", 1, event_type=""),
        happened("a again", 2, event_id="a"),
        happened("c", 3),
    ]
    [answer] = [answer async for answer in episodic.BulkRecordEvents(sent(bulk(events)))]
    assert [result.WhichOneof("outcome") for result in answer.results] == [
        "receipt", "error", "error", "receipt", "receipt",
    ]  # fmt: skip
    _, timeless, typeless, known, last = answer.results
    for failed, field in ((timeless, "event.event_time"), (typeless, "event.event_type")):
        assert failed.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert failed.error.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
        assert [violation.field for violation in failed.error.violations] == [field]
    assert (known.receipt.event_id, known.receipt.duplicate, last.receipt.duplicate) == ("a", True, False)
    assert contents(await recent(episodic)) == ["c", "a"]


async def test_in_a_bulk_stream_a_request_id_is_answered_once(episodic: Any) -> None:
    first = record("a", event_id="a", request_id="one")
    other = record("b", 1, request_id="one")
    runs = [pb.BulkRecordEventsRequest(requests=pair) for pair in ([first, first], [first, other])]
    answers = [answer async for answer in episodic.BulkRecordEvents(sent(*runs))]
    results = [result for answer in answers for result in answer.results]
    assert [result.receipt.replayed for result in results] == [False, True, True, False]
    assert results[3].error.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert contents(await recent(episodic)) == ["a"]


async def test_in_a_bulk_stream_a_request_without_an_event_fails_alone(episodic: Any) -> None:
    run = pb.BulkRecordEventsRequest(requests=[pb.RecordEventRequest(), record("a")])
    [answer] = [answer async for answer in episodic.BulkRecordEvents(sent(run))]
    assert [violation.field for violation in answer.results[0].error.violations] == ["event"]
    assert answer.results[1].receipt.sequence == 1


@pytest.mark.parametrize("count", [0, 10_001])
async def test_an_empty_or_too_long_run_ends_the_stream_and_earlier_events_stay(episodic: Any, count: int) -> None:
    requests = [bulk([happened("a")]), bulk([pb.EpisodicEvent()] * count)]
    answers, error = await stream_end(episodic.BulkRecordEvents(sent(*requests)))
    assert violations(error) == {"requests"}
    assert [answer.results[0].receipt.sequence for answer in answers] == [1]
    assert contents(await recent(episodic)) == ["a"]
