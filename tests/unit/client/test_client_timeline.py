"""Events keep their types, answers say what happened to them, and a repeated event is stored once."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import grpc
import mnemon
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client, EpisodicEvent, RoutingPolicy
from mnemon._bulk_methods import RecordEvents
from mnemon._messages.records import event_to_pb
from mnemon._messages.translation import read
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from tests.support.timeline_messages import stamp
from tests.unit.client.scripted_server import BROKEN, failing, scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LUNCH = EpisodicEvent("conversation", "Ada had lunch.", user="ada", event_time=NOON)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))


@given(
    st.builds(
        EpisodicEvent,
        event_type=TEXTS,
        content=TEXTS,
        event_id=TEXTS,
        user=TEXTS,
        household=TEXTS,
        persona=TEXTS,
        agent=TEXTS,
        project=TEXTS,
        event_time=st.none() | TIMES,
        context=TEXTS,
        importance=st.none() | st.floats(0, 1),
        source=TEXTS,
        metadata=st.dictionaries(TEXTS, VALUES, max_size=3),
    )
)
def test_an_event_comes_back_with_its_types(event: EpisodicEvent) -> None:
    sent = event_to_pb(event)
    back = read(EpisodicEvent, pb.EpisodicEvent.FromString(sent.SerializeToString()))

    assert back == event
    assert [type(back.metadata[key]) for key in event.metadata] == [type(value) for value in event.metadata.values()]


def test_an_event_without_a_time_gets_the_current_time() -> None:
    before = datetime.now(UTC)
    with scripted_server(lambda *_: pb.RecordEventResponse()) as (address, server), Client(address) as client:
        client.timeline.add("task", "Call the bank.", user="ada")

    assert before <= server.requests[0].event.event_time.ToDatetime(UTC) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, pb.QueryWindowRequest(limit=50)),
        ({"last_days": 7, "limit": -1}, pb.QueryWindowRequest(last_days=7, limit=-1)),
        ({"view": "ids"}, pb.QueryWindowRequest(limit=50, view=common_pb2.VIEW_IDS)),
        ({"last_days": 2**40}, pb.QueryWindowRequest(last_days=2**31 - 1, limit=50)),
        ({"until": NOON}, pb.QueryWindowRequest(range=common_pb2.TimeRange(end_time=stamp(NOON)), limit=50)),
        (
            {"since": NOON, "until": NOON, "page_token": "more"},
            pb.QueryWindowRequest(
                range=common_pb2.TimeRange(start_time=stamp(NOON), end_time=stamp(NOON)),
                limit=50,
                page_token="more",  # noqa: S106
            ),
        ),
        (
            {"query": "", "mode": "keyword"},
            pb.QueryWindowRequest(query="", mode=common_pb2.SEARCH_MODE_KEYWORD, limit=50),
        ),
        (
            {"user": "ada", "project": "x", "event_types": ["task", "reminder"], "min_importance": 0.5},
            pb.QueryWindowRequest(
                filter=pb.EpisodicEventFilter(
                    scope={"user": "ada", "project": "x"}, event_types=["task", "reminder"], min_importance=0.5
                ),
                limit=50,
            ),
        ),
    ],
)
def test_a_query_sends_its_window_and_its_filters(arguments: Any, expected: pb.QueryWindowRequest) -> None:
    with scripted_server(lambda *_: pb.QueryWindowResponse()) as (address, server), Client(address) as client:
        client.timeline.search(**arguments)

    expected.view = expected.view or common_pb2.VIEW_STANDARD
    assert server.requests == [expected]


@pytest.mark.parametrize("day", [date(2026, 5, 1), "2026-05-01"])
def test_a_window_of_days_is_whole_and_one_of_lengths_counts_back_from_now(day: Any) -> None:
    first, before = datetime(2026, 5, 1).astimezone(), datetime.now(UTC)
    with scripted_server(lambda *_: pb.QueryWindowResponse()) as (address, server), Client(address) as client:
        client.timeline.search(since=day, until=day)
        client.timeline.search(since=timedelta(days=14), until="2 weeks")

    days, lengths = ((each.range.start_time, each.range.end_time) for each in server.requests)
    assert [end.ToDatetime(UTC) for end in days] == [first, datetime(2026, 5, 1, 23, 59, 59, 999999).astimezone()]
    for end in lengths:
        assert before <= end.ToDatetime(UTC) + timedelta(days=14) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("walk", "page", "full"),
    [
        (
            lambda client: client.timeline.list(last_days=7, page_size=1, user="ada"),
            pb.QueryWindowResponse,
            {"results": [{"event": event_to_pb(LUNCH)}]},
        ),
        (
            lambda client: client.timeline.list(page_size=1, user="ada"),
            pb.ListRecentEventsResponse,
            {"events": [event_to_pb(LUNCH)]},
        ),
    ],
)
def test_iteration_continues_over_an_empty_page_to_the_last_one(walk: Any, page: Any, full: dict[str, Any]) -> None:
    pages = [
        page(**full, next_page_token="one"),  # noqa: S106
        page(next_page_token="two"),  # noqa: S106
        page(**full),
    ]
    with scripted_server(*((lambda *_, each=each: each) for each in pages)) as (address, server):  # noqa: SIM117
        with Client(address) as client:
            found = list(walk(client))

    assert found == [LUNCH, LUNCH]
    assert [each.page_token for each in server.requests] == ["", "one", "two"]
    assert {each.filter.scope.user for each in server.requests} == {"ada"}


def test_a_compaction_reports_every_step_and_its_failure() -> None:
    def steps(request: Any, context: grpc.ServicerContext) -> Iterator[pb.CompactTimelineResponse]:
        yield pb.CompactTimelineResponse(processed_bytes=1, total_bytes=2, segment_count=3)
        yield pb.CompactTimelineResponse(
            processed_bytes=2, total_bytes=2, segment_count=1, reclaimed_bytes=5, done=True
        )

    with scripted_server(steps) as (address, _), Client(address) as client:
        assert list(client.timeline.compact()) == [
            mnemon.CompactionProgress(1, 2, 3, 0, done=False),
            mnemon.CompactionProgress(2, 2, 1, 5, done=True),
        ]
    line = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason="STORAGE_FULL")
    with scripted_server(line) as (address, _), Client(address) as client, pytest.raises(mnemon.StorageFullError):
        list(client.timeline.compact())


def test_the_status_says_what_was_lost() -> None:
    answer = pb.GetTimelineStatusResponse(
        state=common_pb2.STATE_DEGRADED,
        message="a segment is damaged",
        event_count=5,
        lost=[
            pb.LostRange(segment_id=1, first_sequence=3, last_sequence=4, event_count=2, notice_time=stamp(NOON)),
        ],
        retention=Duration(seconds=86_400),
    )
    with scripted_server(lambda *_: answer) as (address, _), Client(address) as client:
        status = client.timeline.status()

    assert (status.state, status.message, status.event_count) == ("degraded", "a segment is damaged", 5)
    assert status.lost == (mnemon.LostRange(1, 3, 4, 2, NOON),)
    assert (status.retention_s, status.scrub_time, status.earliest) == (86_400.0, None, None)
    nothing = read(mnemon.TimelineStatus, pb.GetTimelineStatusResponse(state=99))  # type: ignore[arg-type]
    assert (nothing.state, nothing.retention_s) == (mnemon.TimelineState.UNKNOWN, None)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.timeline.add("task", user="u", importance="high"), "importance"),
        (lambda client: client.timeline.add("task", user="u", event_time=datetime(2026, 5, 1)), "event_time"),
        (lambda client: client.timeline.add("task", "\ud800", user="u"), "content"),
        (lambda client: client.timeline.search(last_days=1, since=NOON), "last_days"),
        (lambda client: client.timeline.search(since=datetime(2026, 5, 1)), "since"),
        (lambda client: client.timeline.search(since="soon"), "since"),
        (lambda client: client.timeline.search(since=3), "since"),
        (lambda client: client.timeline.search(until=timedelta(days=999_999_999)), "until"),
        (lambda client: client.recall("tea", until="99999999 weeks"), "until"),
        (lambda client: client.timeline.search("tea", mode="guess"), "mode"),
        (lambda client: client.timeline.search(view="basic"), "view"),
        (lambda client: client.timeline.search(limit=0), "limit"),
        (lambda client: client.timeline.search(user=""), "user"),
        (lambda client: client.timeline.search(event_types="task"), "event_types"),
        (lambda client: client.timeline.search(event_types=[]), "event_types"),
        (lambda client: client.timeline.delete_many("e-1"), "event_ids"),
        (lambda client: client.bridge.update_policy(RoutingPolicy(mode="most")), "mode"),
        (lambda client: client.bridge.update_policy(RoutingPolicy(event_types="task")), "event_types"),
    ],
)
def test_an_invalid_argument_is_refused_by_name(call: Any, field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        call(client)

    assert [violation.field for violation in raised.value.violations] == [field]


def _known(request: pb.BulkRecordEventsRequest, context: grpc.ServicerContext) -> pb.BulkRecordEventsResponse:
    """Reports each event as known by its own id, "copy" as a duplicate of another, and "bad" as invalid."""
    wrong = common_pb2.ItemError(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="bad")
    return pb.BulkRecordEventsResponse(
        results=[
            pb.RecordEventResult(error=wrong)
            if each.content == "bad"
            else pb.RecordEventResult(
                receipt={"event_id": "e-0" if each.content == "copy" else each.event_id, "duplicate": True}
            )
            for each in (item.event for item in request.requests)
        ]
    )


def test_events_get_ids_before_they_are_sent_and_a_broken_stream_repeats_them() -> None:
    items: list[Any] = [
        EpisodicEvent("task", "new"),
        EpisodicEvent("task", "given", event_id="e-7", user="bob"),
        "no event",
        EpisodicEvent("task", "copy"),
        EpisodicEvent("task", "bad"),
    ]
    with scripted_server(BROKEN, _known) as (address, server), Client(address) as client:
        results = list(client.timeline.add_many(items, scope=mnemon.Scope(user="ada")))

    first, again = server.requests
    assert first == again
    events = [item.event for item in first.requests]
    assert all(event.event_id and event.HasField("event_time") for event in events)
    assert len({event.event_id for event in events}) == 4
    assert [event.scope.user for event in events] == ["ada", "bob", "ada", "ada"]
    assert [each.position for each in results] == [0, 1, 2, 3, 4]
    # An event known by a generated id was stored by the previous attempt. With a given id, this cannot be known.
    assert [each.duplicate for each in results] == [False, True, False, True, False]
    assert [each.receipt.replayed for each in results if each.receipt] == [True, False, False]
    assert [each.event_id for each in results] == [events[0].event_id, "e-7", "", "e-0", ""]
    assert isinstance(results[2].error, mnemon.InvalidArgumentError)
    assert results[4].to_dict()["error"]["message"] == "bad"


def test_a_run_forgets_the_ids_of_answered_events() -> None:
    method = RecordEvents(scope=None)
    for position in range(3):
        request: Any = method.request(LUNCH)
        method.result(position, request, pb.RecordEventResult(receipt={"event_id": request.event.event_id}))

    assert method._new_ids == set()
