"""Short helpers for messages of the timeline around one noon."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def stamp(time: datetime) -> Timestamp:
    """A protobuf Timestamp of the time."""
    message = Timestamp()
    message.FromDatetime(time)
    return message


def minutes(count: float, since: datetime = NOON) -> Timestamp:
    """This many minutes after noon."""
    return stamp(since + timedelta(minutes=count))


def happened(content: str = "Ada had lunch.", at: float = 0, **fields: Any) -> pb.EpisodicEvent:
    """An event of Ada, this many minutes after noon. `scope` adds further fields of its scope."""
    scope = {"user": "ada", **fields.pop("scope", {})}
    event_time = fields.pop("event_time", minutes(at))
    event_type = fields.pop("event_type", "conversation")
    return pb.EpisodicEvent(content=content, scope=scope, event_type=event_type, event_time=event_time, **fields)


def record(
    content: str = "Ada had lunch.", at: float = 0, request_id: str = "", **fields: Any
) -> pb.RecordEventRequest:
    """A request to store an event."""
    return pb.RecordEventRequest(event=happened(content, at, **fields), request_id=request_id)


def around_noon(first: float = -1_000, last: float = 1_000) -> common_pb2.TimeRange:
    """A time range, in minutes after noon."""
    return common_pb2.TimeRange(start_time=minutes(first), end_time=minutes(last))


def window(**fields: Any) -> pb.QueryWindowRequest:
    """A query of the window around noon, or of another given window."""
    if not {"range", "last_days"} & set(fields):
        fields["range"] = around_noon()
    return pb.QueryWindowRequest(**fields)


def events_of(answer: pb.QueryWindowResponse) -> list[pb.EpisodicEvent]:
    """The events of a window, without their scores."""
    return [match.event for match in answer.results]


def ids(answer: pb.QueryWindowResponse) -> list[str]:
    """The ids of the events."""
    return [event.event_id for event in events_of(answer)]


async def sent(*messages: Any) -> AsyncIterator[Any]:
    """A stream of requests."""
    for message in messages:
        yield message


def bulk(events: Iterable[pb.EpisodicEvent]) -> pb.BulkRecordEventsRequest:
    """A message of a bulk stream with these events."""
    return pb.BulkRecordEventsRequest(requests=[pb.RecordEventRequest(event=event) for event in events])


async def remember(episodic: Any, events: Iterable[pb.EpisodicEvent]) -> list[pb.EventReceipt]:
    """Stores events in order. All must be accepted."""
    [answer] = [answer async for answer in episodic.BulkRecordEvents(sent(bulk(events)))]
    assert all(result.WhichOneof("outcome") == "receipt" for result in answer.results)
    return [result.receipt for result in answer.results]


async def timeline_status(episodic: Any) -> pb.GetTimelineStatusResponse:
    """The status of the timeline."""
    return await episodic.GetTimelineStatus(pb.GetTimelineStatusRequest())
