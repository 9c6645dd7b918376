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
    CompactionProgress,
    Event,
    EventPosition,
    EventReceipt,
    EventScore,
    EventSelection,
    EventsState,
    EventsStatus,
    LostRange,
    PrunedEvents,
    RangeSummary,
    RecordEvent,
    StoredEvent,
    WindowDiagnostics,
    WindowPage,
    WindowQuery,
)
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope, SearchMode, View
from mnemon_server.transport.convert import events as convert
from mnemon_server.transport.convert import events as requests
from mnemon_server.transport.status import Failure
from mnemon_server.wire.events import encode

from tests.support.memory_messages import compare
from tests.support.timeline_messages import NOON, happened, minutes, stamp

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


def test_a_time_is_kept_to_the_microsecond() -> None:
    event = read(happened(event_time=Timestamp(seconds=-1, nanos=999_999_999)))
    assert event.event_time == datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


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


def test_a_request_is_read_with_its_id() -> None:
    request = pb.RecordEventRequest(event=happened("a"), request_id="once")
    event = Event("", "conversation", NOON, "a", scope=Scope("ada"))
    assert requests.read_record(request) == RecordEvent(event, "once")


def test_a_window_is_read_with_its_defaults_and_completely() -> None:
    assert requests.read_window(pb.QueryWindowRequest()) == (WindowQuery(), View.STANDARD)
    days, _ = requests.read_window(pb.QueryWindowRequest(last_days=0, limit=-1, query=""))
    assert days == WindowQuery(last_days=0, limit=-1, text="")
    half_open = pb.QueryWindowRequest(range={"start_time": minutes(1)})
    assert requests.read_window(half_open)[0] == WindowQuery(
        where=EventSelection(start=NOON + timedelta(minutes=1)), has_range=True
    )
    endless, _ = requests.read_window(pb.QueryWindowRequest(range={}))
    assert endless == WindowQuery(has_range=True)
    where = pb.EpisodicEventFilter(
        scope={"user": "ada"},
        event_types=["task", "custom"],
        min_importance=0.0,
        filter=compare("source", "EQ", "user"),
    )
    whole = pb.QueryWindowRequest(
        range={"start_time": minutes(0), "end_time": minutes(2)},
        filter=where,
        limit=7,
        query="tea",
        mode="SEARCH_MODE_KEYWORD",
        view="VIEW_IDS",
    )
    query = WindowQuery(
        where=EventSelection(
            scope=Scope("ada"),
            event_types=frozenset({"task", "custom"}),
            min_importance=0.0,
            start=NOON,
            end=NOON + timedelta(minutes=2),
            expression=Condition("source", Operator.EQ, ("user",)),
        ),
        has_range=True,
        limit=7,
        text="tea",
        mode=SearchMode.KEYWORD,
    )
    assert requests.read_window(whole) == (query, View.IDS)


def test_without_a_filter_every_event_matches() -> None:
    assert not requests.read_recent(pb.ListRecentEventsRequest()).where
    assert not requests.read_recent(pb.ListRecentEventsRequest(filter={})).where


def test_an_acknowledgement_says_where_the_event_is_stored_and_whether_it_was_known() -> None:
    new = convert.recorded_to_pb(RECEIPT, None)
    assert new == pb.RecordEventResponse(
        receipt=pb.EventReceipt(event_id="lunch", sequence=7, segment_id=1, commit_time=stamp(NOON))
    )
    known = convert.recorded_to_pb(RECEIPT._replace(duplicate=True, replayed=True), STORED)
    assert (known.receipt.duplicate, known.receipt.replayed, known.duplicate_of) == (True, True, MESSAGE)


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


async def test_long_runs_keep_their_order() -> None:
    outcomes = [EventReceipt(f"event-{number}", number, 1, NOON) for number in range(1, 1_000)]
    results = (await convert.results_to_pb(outcomes)).results
    assert [result.receipt.sequence for result in results] == [*range(1, 1_000)]


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


def test_pages_and_single_events_are_written_as_stored() -> None:
    recent = convert.recent_to_bytes(WindowPage((STORED,), None, WindowDiagnostics()), "token")
    page = pb.ListRecentEventsResponse.FromString(recent)
    assert ([*page.events], page.next_page_token) == ([MESSAGE], "token")
    assert convert.event_to_pb(STORED).event == MESSAGE


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


def test_a_summary_names_days_as_dates() -> None:
    summary = RangeSummary(3, NOON, NOON + timedelta(days=1), (("task", 2), ("emotion", 1)), ((-1, 1), (20_484, 2)))
    assert convert.summary_to_pb(summary) == pb.SummarizeRangeResponse(
        event_count=3,
        earliest=stamp(NOON),
        latest=stamp(NOON + timedelta(days=1)),
        types=[pb.TypeCount(event_type="task", count=2), pb.TypeCount(event_type="emotion", count=1)],
        days=[pb.DayCount(day="1969-12-31", count=1), pb.DayCount(day="2026-01-31", count=2)],
    )
    nothing = convert.summary_to_pb(RangeSummary(0, None, None))
    assert (nothing.HasField("earliest"), nothing.HasField("latest")) == (False, False)


@pytest.mark.parametrize(("time", "day"), [(datetime.min, "0001-01-01"), (datetime.max, "9999-12-31")])
def test_the_first_and_the_last_day_of_the_calendar_have_names(time: datetime, day: str) -> None:
    number = time.toordinal() - datetime(1970, 1, 1).toordinal()
    assert convert.summary_to_pb(RangeSummary(1, None, None, (), ((number, 1),))).days[0].day == day


def test_a_pruning_and_a_compaction_are_written_completely() -> None:
    pruned = PrunedEvents(3, ("a", "b"), NOON, NOON, 2, replayed=True)
    assert convert.pruned_to_pb(pruned) == pb.PruneEventsResponse(
        pruned_count=3, event_ids=["a", "b"], earliest=stamp(NOON), latest=stamp(NOON), segment_count=2, replayed=True
    )
    assert convert.pruned_to_pb(PrunedEvents(0)) == pb.PruneEventsResponse()
    assert convert.progress_to_pb(CompactionProgress(1, 2, 3, 4, True)) == pb.CompactTimelineResponse(
        processed_bytes=1, total_bytes=2, segment_count=3, reclaimed_bytes=4, done=True
    )


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
