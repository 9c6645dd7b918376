"""Events, queries and answers of the timeline are converted between messages and values without loss."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb
from mnemon_server.domain.errors import InvalidArgumentError, ThrottledError
from mnemon_server.domain.events import (
    Event,
    EventPosition,
    EventReceipt,
    EventScore,
    EventsState,
    EventsStatus,
    LostRange,
    RangeSummary,
    StoredEvent,
    WindowDiagnostics,
    WindowPage,
)
from mnemon_server.domain.records import Scope, SearchMode, View
from mnemon_server.transport.convert import events as convert
from mnemon_server.transport.convert import events as requests
from mnemon_server.transport.status import Failure
from mnemon_server.wire.events import encode

from tests.support.timeline_messages import NOON, happened, stamp

EVENT = Event(
    event_id="lunch",
    event_type="conversation",
    event_time=NOON,
    content="Ada had lunch.",
    context="in the garden",
    scope=Scope("ada", "home", "butler", "claude", "trip"),
    importance=0.25,
    source="user",
    metadata={"rank": 1, "sure": 0.5, "tags": ("a", "b"), "when": NOON, "old": False, "topic": "food"},
    record_time=NOON + timedelta(seconds=1),
)
STORED = StoredEvent(EventPosition(0, "lunch"), 7, 1, encode(EVENT))
MESSAGE = pb.EpisodicEvent.FromString(STORED.body)
RECEIPT = EventReceipt("lunch", 7, 1, NOON)

times = st.datetimes(timezones=st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
events = st.builds(
    Event,
    event_id=texts,
    event_type=texts,
    event_time=times,
    content=texts,
    context=texts,
    scope=st.builds(Scope, texts, texts, texts, texts, texts),
    importance=st.none() | st.floats(0, 1),
    source=texts,
    metadata=st.dictionaries(texts, texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | times, max_size=3),
)


def read(message: pb.EpisodicEvent) -> Event:
    """The event of a request."""
    return requests.read_record(pb.RecordEventRequest(event=message)).event


@given(events)
def test_an_event_is_read_as_it_was_sent(event: Event) -> None:
    assert read(pb.EpisodicEvent.FromString(encode(event))) == event


def test_fields_of_an_event_that_only_the_server_sets_are_ignored() -> None:
    assert read(MESSAGE) == replace(EVENT, record_time=Event("", "", NOON).record_time)


def test_missing_fields_of_an_event_are_unknown_and_zero_is_a_value() -> None:
    bare = read(pb.EpisodicEvent(event_time=Timestamp()))
    assert bare == Event("", "", datetime(1970, 1, 1, tzinfo=UTC))
    assert read(happened(importance=0.0)).importance == 0.0


@pytest.mark.parametrize(
    "message",
    [
        pb.EpisodicEvent(event_type="task"),
        happened(event_time=Timestamp(seconds=10**13)),
        happened(event_time=Timestamp(seconds=-(10**13))),
        happened(event_time=Timestamp(nanos=-1)),
        happened(event_time=Timestamp(nanos=1_000_000_000)),
        happened(metadata={"fine": common_pb2.MetadataValue(int_value=1), "unset": common_pb2.MetadataValue()}),
    ],
)
def test_an_invalid_message_does_not_become_an_event(message: pb.EpisodicEvent) -> None:
    with pytest.raises(InvalidArgumentError):
        read(message)


async def test_the_results_of_a_run_have_one_entry_per_event() -> None:
    later = NOON + timedelta(microseconds=1)
    outcomes: list[EventReceipt | Failure] = [
        RECEIPT,
        Failure.of(ThrottledError("held back", 2.0)),
        EventReceipt("tea", 8, 1, NOON, duplicate=True),
        EventReceipt("task", 9, 1, NOON),
        EventReceipt("next", 10, 10, NOON),
        EventReceipt("later", 11, 10, later),
    ]
    results = (await convert.results_to_pb(outcomes)).results
    assert [result.WhichOneof("outcome") for result in results] == ["receipt", "error", *["receipt"] * 4]
    assert results[1].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert results[1].error.retry_delay == Duration(seconds=2)
    told = [result.receipt for result in results if result.HasField("receipt")]
    assert [(each.event_id, each.sequence, each.segment_id, each.duplicate) for each in told] == [
        ("lunch", 7, 1, False), ("tea", 8, 1, True), ("task", 9, 1, False), ("next", 10, 10, False),
        ("later", 11, 10, False),
    ]  # fmt: skip
    assert [each.commit_time for each in told] == [*[stamp(NOON)] * 4, stamp(later)]


def test_a_window_is_written_with_its_events_as_stored() -> None:
    diagnostics = WindowDiagnostics(
        total_scanned=9, filtered_by_context=1, filtered_by_window=2, returned=2, duration_s=0.25,
        mode=SearchMode.HYBRID, pending=3,
    )  # fmt: skip
    scores = (EventScore(0.75, 0.5, 0.25), EventScore(0.5, None, 0.0))
    page = WindowPage((STORED, STORED), None, diagnostics, scores)
    message = pb.QueryWindowResponse.FromString(convert.window_to_bytes(page, "token"))
    assert message.next_page_token == "token"  # noqa: S105
    assert message.diagnostics == common_pb2.SearchDiagnostics(
        exact=True, total_candidates=9, filtered_by_context=1, filtered_by_window=2, returned=2,
        duration=Duration(nanos=250_000_000), mode="SEARCH_MODE_HYBRID", pending=3,
    )  # fmt: skip
    assert [*message.results] == [
        pb.EventMatch(event=MESSAGE, score={"relevance": 0.75, "vector": 0.5, "keyword": 0.25}),
        pb.EventMatch(event=MESSAGE, score={"relevance": 0.5, "keyword": 0.0}),
    ]
    named = pb.QueryWindowResponse.FromString(convert.window_to_bytes(page, "", View.IDS))
    assert [match.event for match in named.results] == [pb.EpisodicEvent(event_id=MESSAGE.event_id)] * 2
    assert [match.score for match in named.results] == [match.score for match in message.results]
    unscored = WindowPage((STORED,), None, diagnostics)
    assert [*pb.QueryWindowResponse.FromString(convert.window_to_bytes(unscored, "")).results] == [
        pb.EventMatch(event=MESSAGE)
    ]
    plain = pb.QueryWindowResponse.FromString(convert.window_to_bytes(WindowPage((), None, WindowDiagnostics()), ""))
    assert (plain.diagnostics.mode, len(plain.results), plain.HasField("diagnostics")) == (0, 0, True)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152])
def test_a_page_equals_the_message_made_of_its_events_whatever_their_sizes(size: int) -> None:
    """A body of `size` bytes if one exists, or of a few more."""
    longer = pb.EpisodicEvent(content="x" * size)
    surplus = longer.ByteSize() - size
    messages = [longer, pb.EpisodicEvent(content="x" * max(0, size - surplus)), MESSAGE]
    events = tuple(STORED._replace(body=message.SerializeToString()) for message in messages)
    page = WindowPage(events, None, WindowDiagnostics())
    assert [*pb.ListRecentEventsResponse.FromString(convert.recent_to_bytes(page, "")).events] == messages
    window = pb.QueryWindowResponse.FromString(convert.window_to_bytes(page, ""))
    assert [match.event for match in window.results] == messages


def test_an_event_without_any_field_is_in_the_page() -> None:
    empty = StoredEvent(EventPosition(0, ""), 1, 1, b"")
    assert convert.event_to_pb(empty).HasField("event")
    assert convert.recorded_to_pb(RECEIPT, empty).HasField("duplicate_of")


@pytest.mark.parametrize(("time", "day"), [(datetime.min, "0001-01-01"), (datetime.max, "9999-12-31")])
def test_the_first_and_the_last_day_of_the_calendar_have_names(time: datetime, day: str) -> None:
    number = time.toordinal() - datetime(1970, 1, 1).toordinal()
    assert convert.summary_to_pb(RangeSummary(1, None, None, (), ((number, 1),))).days[0].day == day


@pytest.mark.parametrize("state", list(EventsState))
def test_the_status_of_the_timeline_is_written_completely(state: EventsState) -> None:
    numbers: dict[str, Any] = {
        "event_count": 1, "segment_count": 2, "active_segment_id": 3, "segment_bytes": 4, "unsealed_count": 5,
        "index_bytes": 6, "loaded_segment_count": 7, "removal_pending_count": 8, "text_pending_count": 9,
    }  # fmt: skip
    later = NOON + timedelta(days=1)
    status = EventsStatus(
        state=state, message="half way", earliest=NOON, latest=later, lost=(LostRange(1, 3, 5, 2, NOON),),
        scrub_time=later, retention_s=86_400.5, **numbers,
    )  # fmt: skip
    assert convert.status_to_pb(status) == pb.GetTimelineStatusResponse(
        state=f"STATE_{state.name}", message="half way", earliest=stamp(NOON), latest=stamp(later),
        lost=[
            pb.LostRange(segment_id=1, first_sequence=3, last_sequence=5, event_count=2, notice_time=stamp(NOON)),
        ],
        scrub_time=stamp(later), retention=Duration(seconds=86_400, nanos=500_000_000), **numbers,
    )  # fmt: skip
    empty = convert.status_to_pb(EventsStatus(state=state))
    assert not any(empty.HasField(field) for field in ("earliest", "latest", "scrub_time", "retention"))
