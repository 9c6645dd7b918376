"""The scenarios of episodic memory, its retrieval and its store, each over a real channel against a real server."""

import asyncio
import hashlib
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from tests.support.databases import contents_of
from tests.support.episodic_messages import (
    at,
    compact,
    contents,
    happened,
    recent,
    record,
    timeline_status,
    told,
)
from tests.support.memory_messages import compare, metadata
from tests.support.server import Connection, detail, eventually, failure_of, health_of, whole_server
from tests.support.timeline_messages import events_of, remember

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def query(episodic: Any, **request: Any) -> pb.QueryWindowResponse:
    """The answer to a query."""
    return await episodic.QueryWindow(pb.QueryWindowRequest(**request))


def of(user: str = "", **scope: str) -> pb.EpisodicEventFilter:
    """A filter for the events of a scope."""
    return pb.EpisodicEventFilter(scope={"user": user, **scope})


async def test_record_episodic_event(connection: Connection) -> None:
    episodic = connection.episodic
    incomplete = pb.RecordEventRequest(event=pb.EpisodicEvent(content="something", importance=2.0))
    error = await failure_of(episodic.RecordEvent(incomplete))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    named = {violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations}
    assert named == {"event.scope.user", "event.event_type", "event.event_time", "event.importance"}

    spoken = happened(
        "Ada asked for the train.",
        NOW - HOUR,
        scope={"persona": "butler", "household": "h1"},
        event_type="task",
        importance=0.25,
        source="user",
        context="in the kitchen",
        metadata=metadata(topic="travel", turn=3),
    )
    before = datetime.now(UTC)
    [receipt] = await record(episodic, spoken)
    stored = (await episodic.GetEvent(pb.GetEventRequest(event_id=receipt.event_id))).event
    assert before <= stored.record_time.ToDatetime(UTC) <= datetime.now(UTC)
    expected = pb.EpisodicEvent()
    expected.CopyFrom(spoken)
    expected.event_id = receipt.event_id
    expected.record_time.CopyFrom(stored.record_time)
    assert stored == expected

    # The same id, or the same user, household, persona, type, time and content, means the same event.
    same_id = happened("something else", event_id=receipt.event_id)
    same_content = pb.EpisodicEvent()
    same_content.CopyFrom(spoken)
    same_content.source, same_content.event_id = "system", "another-id"
    for again in (same_id, same_content):
        answer = await episodic.RecordEvent(pb.RecordEventRequest(event=again))
        assert (answer.receipt.duplicate, answer.receipt.event_id) == (True, receipt.event_id)
        assert answer.duplicate_of == stored
    # With another household, persona, type or time it is another event.
    scope = {"persona": "butler", "household": "h1"}
    changes: list[dict[str, Any]] = [
        {"scope": scope | {"household": "h2"}},
        {"scope": scope | {"persona": "coach"}},
        {"event_type": "reminder"},
        {"when": NOW},
    ]
    for change in changes:
        terms = {"when": NOW - HOUR, "scope": scope, "event_type": "task", **change}
        [other] = await record(episodic, happened("Ada asked for the train.", **terms))
        assert not other.duplicate
    assert len(await told(connection.changes, "EPISODIC_SAVED")) == 5
    # An event that was recorded late is listed by its time.
    await record(episodic, happened("long ago", NOW - 2 * DAY), happened("first of all", NOW - 3 * DAY))
    assert contents(await recent(episodic))[-2:] == ["long ago", "first of all"]


async def test_query_episodic_window(episodic: Any) -> None:
    await record(
        episodic,
        *(
            happened(
                f"hour {hour}", NOW - hour * HOUR, scope={"persona": "butler"}, importance=hour / 10, source="user"
            )
            for hour in random.Random(3).sample(range(10), 10)
        ),
        happened("of a coach", NOW, scope={"persona": "coach"}),
        happened("old", NOW - 40 * DAY, scope={"persona": "butler"}),
    )
    where = of("ada", persona="butler")
    answer = await query(
        episodic, filter=where, range={"start_time": at(NOW - 4 * HOUR), "end_time": at(NOW - HOUR)}, limit=3
    )
    assert contents(events_of(answer)) == ["hour 1", "hour 2", "hour 3"]
    assert [(event.event_type, event.importance, event.source) for event in events_of(answer)] == [
        ("conversation", hour / 10, "user") for hour in (1, 2, 3)
    ]
    diagnostics = answer.diagnostics
    assert (diagnostics.total_candidates, diagnostics.filtered_by_context, diagnostics.returned) == (12, 1, 3)
    assert diagnostics.filtered_by_window == 7
    assert answer.next_page_token
    rest = await query(
        episodic,
        filter=where,
        range={"start_time": at(NOW - 4 * HOUR), "end_time": at(NOW - HOUR)},
        limit=3,
        page_token=answer.next_page_token,
    )
    assert (contents(events_of(rest)), rest.next_page_token) == (["hour 4"], "")
    # Without a window, the last thirty days are searched.
    assert len(events_of(await query(episodic, filter=where))) == 10
    assert len(events_of(await query(episodic, filter=where, last_days=50))) == 11


async def test_query_episodic_window_by_text(episodic: Any) -> None:
    await record(
        episodic,
        happened("Ada asked about the blue door of the garden.", NOW - HOUR),
        happened("Ada planted seeds.", NOW - 2 * HOUR),
        happened("The garden door was painted, said Bob.", NOW, user="bob"),
        happened("A garden, long ago, with a door.", NOW - 60 * DAY),
    )

    async def found(**request: Any) -> list[str]:
        answer = await query(episodic, query="the garden's doors", **request)
        assert all(0 < match.score.relevance <= 1 for match in answer.results)
        return contents(events_of(answer))

    async def is_indexed() -> bool:
        return not (await query(episodic, query="x", last_days=90)).diagnostics.pending

    await eventually(is_indexed)
    assert len(await found(last_days=90)) == 3
    assert len(await found(last_days=90, filter=of("ada"))) == 2
    assert await found(filter=of("ada")) == ["Ada asked about the blue door of the garden."]
    assert not (await query(episodic, query=" ")).results


async def test_context_isolation(episodic: Any) -> None:
    whose = [
        {"user": user, "scope": {"household": household, "persona": persona}}
        for user in ("ada", "ada2", "bob")
        for household in ("", "h", "h2")
        for persona in ("", "p")
    ]
    await record(episodic, *(happened(f"event {number}", NOW, **scope) for number, scope in enumerate(whose)))
    for user in ("", "ada", "bob", "ad"):
        for household in ("", "h", "H"):
            for persona in ("", "p"):
                answer = await query(episodic, filter=of(user, household=household, persona=persona))
                expected = {
                    f"event {number}"
                    for number, scope in enumerate(whose)
                    if user in ("", scope["user"])
                    and household in ("", scope["scope"]["household"])
                    and persona in ("", scope["scope"]["persona"])
                }
                assert set(contents(events_of(answer))) == expected
                assert answer.diagnostics.filtered_by_context == len(whose) - len(expected)


async def test_window_enforcement(episodic: Any) -> None:
    await record(episodic, *(happened(f"day {day}", NOW - day * DAY) for day in range(60)))
    last_week = await query(episodic, last_days=7, filter=of("ada"), limit=1000)
    assert contents(events_of(last_week)) == [f"day {day}" for day in range(7)]
    diagnostics = last_week.diagnostics
    assert (diagnostics.total_candidates, diagnostics.filtered_by_window, diagnostics.returned) == (60, 53, 7)
    # A window includes both ends. One end may be open.
    window = {"start_time": at(NOW - 12 * DAY), "end_time": at(NOW - 10 * DAY)}
    assert contents(events_of(await query(episodic, range=window))) == ["day 10", "day 11", "day 12"]
    assert len(events_of(await query(episodic, range={"start_time": at(NOW - 5 * DAY)}, limit=1000))) == 6
    assert len(events_of(await query(episodic, range={"end_time": at(NOW - 50 * DAY)}, limit=1000))) == 10
    upside_down = {"start_time": at(NOW), "end_time": at(NOW - DAY)}
    error = await failure_of(query(episodic, range=upside_down))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert violation.field == "range.end_time"
    # The filter's own conditions count as context within the window.
    even = pb.EpisodicEventFilter(filter=compare("content", "IN", "day 0", "day 2", "day 20"))
    answer = await query(episodic, filter=even, last_days=7)
    assert contents(events_of(answer)) == ["day 0", "day 2"]
    assert answer.diagnostics.filtered_by_context == 5
    assert answer.diagnostics.filtered_by_window == 53


async def test_snapshot_and_compaction(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_segment_max_events=50, erasure_delay_s=0.05) as connection:
        episodic, folder = connection.episodic, tmp_path / "tenants" / "default" / "timeline"
        writing, stop = [0], asyncio.Event()

        async def keep_writing() -> None:
            while not stop.is_set():
                await record(episodic, happened(f"event {writing[0]}", NOW + writing[0] * timedelta(seconds=1)))
                writing[0] += 1

        writer = asyncio.create_task(keep_writing())

        async def are_sealed() -> bool:
            status = await timeline_status(episodic)
            return status.segment_count >= 4 and status.event_count - status.unsealed_count >= 150

        await eventually(are_sealed, 60.0)
        segments = len(list(folder.glob("*.segment")))
        chosen = [event.event_id for event in (await recent(episodic))[::3]][:1000]
        pruned = await episodic.PruneEvents(pb.PruneEventsRequest(event_ids=chosen))
        assert pruned.pruned_count == len(chosen)
        before = writing[0]
        steps = await compact(episodic)
        assert steps[-1].done
        assert [step.processed_bytes for step in steps] == sorted(step.processed_bytes for step in steps)
        stop.set()
        await writer
        # Writes went on in the meantime, and only pruned events are gone.
        assert writing[0] > before
        left = [event.content for event in reversed(await recent(episodic))]
        assert len(left) == len(set(left)) == writing[0] - len(chosen)
        await compact(episodic)
        assert (await timeline_status(episodic)).event_count == len(left)
        assert len(list(folder.glob("*.segment"))) <= segments + writing[0] // 50

        async def nothing_is_left() -> bool:  # of what was pruned, in any file: logs are emptied seconds later
            return (await timeline_status(episodic)).removal_pending_count == 0

        await eventually(nothing_is_left)


async def test_pruned_text_leaves_the_disk(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_segment_max_events=10, erasure_delay_s=0.05) as connection:
        episodic = connection.episodic
        receipts = await record(episodic, *(happened(f"secret{n}word of Ada", NOW + n * HOUR) for n in range(25)))
        await compact(episodic)
        ids = [receipt.event_id for receipt in receipts[::2]]
        await episodic.PruneEvents(pb.PruneEventsRequest(event_ids=ids))

        async def is_removed() -> bool:
            return (await timeline_status(episodic)).removal_pending_count == 0

        await eventually(is_removed, 60.0)
        assert len(await recent(episodic)) == 12
    stored = contents_of(tmp_path)
    assert [n for n in range(25) if f"secret{n}word".encode() in stored] == list(range(1, 25, 2))


async def test_warm_restart(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_segment_max_events=30) as connection:
        events = [happened(f"event {n}", NOW - n * HOUR, scope={"persona": f"p{n % 3}"}) for n in range(100)]
        await record(connection.episodic, *events)
        await compact(connection.episodic)
        await record(connection.episodic, happened("the last", NOW + HOUR))
        expected = await recent(connection.episodic)
        windows = await query(connection.episodic, filter=of("ada", persona="p1"), limit=7)
    async with whole_server(tmp_path, timeline_segment_max_events=30) as connection:

        async def is_ready() -> bool:
            return await health_of(connection) == "SERVING"

        await eventually(is_ready)
        status = await timeline_status(connection.episodic)
        assert (status.state, status.event_count) == (common_pb2.STATE_READY, 101)
        assert await recent(connection.episodic) == expected
        again = await query(connection.episodic, filter=of("ada", persona="p1"), limit=7)
        assert again.results == windows.results
        # Known events are still known.
        [receipt] = await record(connection.episodic, events[50])
        assert receipt.duplicate


async def test_retention_policy(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_segment_max_events=10) as connection:
        for n in range(15):
            await record(connection.episodic, happened(f"old {n}", NOW - (100 + n) * DAY))
            await record(connection.episodic, happened(f"new {n}", NOW - n * DAY))
        old = {event.event_id: event.content for event in await recent(connection.episodic) if "old" in event.content}
    settings = {"timeline_segment_max_events": 10, "timeline_retention_days": 90, "erasure_delay_s": 0.05}
    async with whole_server(tmp_path, **settings) as connection:
        episodic = connection.episodic

        async def is_swept() -> bool:
            status = await timeline_status(episodic)
            return (status.event_count, status.removal_pending_count) == (15, 0)

        await eventually(is_swept, 90.0)
        assert contents(await recent(episodic)) == [f"new {n}" for n in range(15)]
        status = await timeline_status(episodic)
        assert status.retention.seconds == 90 * 86_400
        pruned = await told(connection.changes, "EPISODIC_PRUNED")
        assert {event.episodic_pruned.reason for event in pruned} == {pb.PRUNE_REASON_RETENTION}
        named = [(one.event_id, one.content_hash) for event in pruned for one in event.episodic_pruned.events]
        assert sorted(named) == sorted((key, hashlib.sha256(text.encode()).hexdigest()) for key, text in old.items())
        assert {event.scope.user for event in pruned} == {"ada"}
    assert b"old 3" not in contents_of(tmp_path)


async def test_a_sweep_that_would_remove_more_than_its_share_is_stopped_and_reported(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        await remember(connection.episodic, [happened(f"event {n}", NOW - (60 + n) * DAY) for n in range(300)])
    async with whole_server(tmp_path, timeline_retention_days=90) as connection:

        async def is_told() -> bool:
            return bool(await told(connection.changes, "EPISODIC_WARNING"))

        await eventually(is_told, 90.0)
        [warning] = await told(connection.changes, "EPISODIC_WARNING")
        assert warning.warning.severity
        assert warning.warning.remediation
        assert (await timeline_status(connection.episodic)).event_count == 300
        # A prune request removes the events.
        answer = await connection.episodic.PruneEvents(pb.PruneEventsRequest(before=at(NOW - 90 * DAY), dry_run=True))
        assert (answer.pruned_count, len(answer.event_ids)) == (269, 269)
        assert (await timeline_status(connection.episodic)).event_count == 300
        answer = await connection.episodic.PruneEvents(pb.PruneEventsRequest(before=at(NOW - 90 * DAY)))
        assert answer.pruned_count == 269
        assert (await timeline_status(connection.episodic)).event_count == 31
