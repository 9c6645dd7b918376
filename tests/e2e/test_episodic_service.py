"""The episodic memory service over gRPC: queries, pruning, the status, and what watchers receive."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest_asyncio
from google.rpc import error_details_pb2
from mnemon.v1 import changes_pb2, common_pb2
from mnemon.v1 import episodic_pb2 as pb
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.documents import HealthStatus, StoreHealth
from mnemon_server.services.vaults import OpenVault, VaultPool

from tests.support.episodic_messages import compact, contents, recent, told
from tests.support.episodic_stores import open_event_store
from tests.support.memory_messages import compare
from tests.support.open_vaults import open_vault_with
from tests.support.server import (
    Connection,
    bare_server,
    detail,
    eventually,
    failure_of,
    health_of,
    reason,
    stream_end,
    whole_server,
)
from tests.support.timeline_messages import (
    bulk,
    events_of,
    happened,
    ids,
    minutes,
    record,
    remember,
    sent,
    timeline_status,
    window,
)


class Ready:
    """Stands in for the document store and is healthy."""

    async def check_health(self) -> StoreHealth:
        """See DocumentStore."""
        return StoreHealth(status=HealthStatus.HEALTHY, backend="local")

    async def is_ready(self) -> bool:
        """See DocumentStore."""
        return True


async def nothing() -> None:
    """Does nothing, because no store is open."""


@pytest_asyncio.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """A server with an empty timeline."""
    async with whole_server(tmp_path, erasure_delay_s=0.05) as connected:
        yield connected


async def get(episodic: Any, event_id: str) -> pb.EpisodicEvent:
    """The event with this id."""
    return (await episodic.GetEvent(pb.GetEventRequest(event_id=event_id))).event


async def prune(episodic: Any, **request: Any) -> pb.PruneEventsResponse:
    """The answer to a pruning."""
    return await episodic.PruneEvents(pb.PruneEventsRequest(**request))


# Queries


async def test_a_window_is_returned_page_by_page_newest_first(episodic: Any) -> None:
    await remember(episodic, [happened(f"{n}", n % 50, event_id=f"event-{n:03d}") for n in range(100)])
    first = await episodic.QueryWindow(window(limit=30))
    found, token = ids(first), first.next_page_token
    assert (len(found), first.diagnostics.returned, first.diagnostics.total_candidates) == (30, 30, 100)
    while token:
        # The page size may change from page to page.
        page = await episodic.QueryWindow(window(limit=17, page_token=token))
        found += ids(page)
        token = page.next_page_token
    expected = sorted(range(100), key=lambda n: (n % 50, f"event-{n:03d}"), reverse=True)
    assert found == [f"event-{n:03d}" for n in expected]


async def test_the_view_sets_how_much_of_each_event_is_returned(episodic: Any) -> None:
    await remember(episodic, [happened(f"{n}", n, event_id=f"event-{n}", importance=0.5) for n in range(60)])
    standard = await episodic.QueryWindow(window())
    assert len(standard.results) == standard.diagnostics.returned == 50
    assert (standard.diagnostics.exact, standard.results[0].HasField("score")) == (True, False)
    assert standard.results[0].event == await get(episodic, "event-59")
    full = await episodic.QueryWindow(window(view="VIEW_FULL", limit=50))
    assert full.results == standard.results
    named = await episodic.QueryWindow(window(view="VIEW_IDS", page_token=""))
    assert [match.event for match in named.results] == [
        pb.EpisodicEvent(event_id=event_id) for event_id in ids(standard)
    ]
    rest = await episodic.QueryWindow(window(view="VIEW_IDS", page_token=named.next_page_token))
    assert (ids(rest), rest.next_page_token) == ([f"event-{n}" for n in range(9, -1, -1)], "")
    by_text = window(query="17", mode="SEARCH_MODE_KEYWORD", view="VIEW_IDS")

    async def is_found() -> bool:
        return ids(await episodic.QueryWindow(by_text)) == ["event-17"]

    await eventually(is_found)
    assert (await episodic.QueryWindow(by_text)).results[0].score.relevance > 0


async def test_a_page_token_is_valid_for_its_own_query_only(episodic: Any) -> None:
    await remember(episodic, [happened(f"{n}", n) for n in range(3)])
    token = (await episodic.QueryWindow(window(limit=1))).next_page_token
    recents = (await episodic.ListRecentEvents(pb.ListRecentEventsRequest(page_size=1))).next_page_token
    assert token
    assert recents
    for call in (
        episodic.QueryWindow(window(limit=1, page_token=token + "A")),
        episodic.QueryWindow(pb.QueryWindowRequest(page_token=token)),
        episodic.QueryWindow(window(filter={"event_types": ["task"]}, page_token=token)),
        episodic.QueryWindow(window(page_token=recents)),
        episodic.ListRecentEvents(pb.ListRecentEventsRequest(page_token=token)),
        episodic.ListRecentEvents(pb.ListRecentEventsRequest(filter={"min_importance": 0.5}, page_token=recents)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    with_text = window(query="tea", page_token=token)
    error = await failure_of(episodic.QueryWindow(with_text))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "page_token" in str(error.details())


async def test_events_match_all_conditions_of_a_filter(episodic: Any) -> None:
    await remember(
        episodic,
        [
            happened("a", 1, event_type="task", importance=0.5, source="user"),
            happened("b", 2, event_type="task", importance=0.4, source="user"),
            happened("c", 3, event_type="task", source="user"),
            happened("d", 4, event_type="emotion", importance=1.0, source="user"),
            happened("e", 5, event_type="task", importance=1.0, source="skill"),
            happened("f", 6, event_type="task", importance=1.0, source="user", scope={"persona": "butler"}),
        ],
    )
    where = pb.EpisodicEventFilter(
        scope={"user": "ada"}, event_types=["task"], min_importance=0.5, filter=compare("source", "EQ", "user")
    )
    answer = await episodic.QueryWindow(window(filter=where))
    assert contents(events_of(answer)) == ["f", "a"]
    assert (answer.diagnostics.total_candidates, answer.diagnostics.filtered_by_context) == (6, 4)
    assert contents(await recent(episodic, filter=where)) == ["f", "a"]
    summary = await episodic.SummarizeRange(pb.SummarizeRangeRequest(filter=where))
    assert (summary.event_count, summary.earliest, summary.latest) == (2, minutes(1), minutes(6))


async def test_a_text_finds_events_best_first_with_a_score_for_each(episodic: Any) -> None:
    await remember(episodic, [happened("the blue garden door"), happened("a door", 1), happened("lunch", 2)])
    query = window(query="garden door", mode="SEARCH_MODE_KEYWORD")
    answer = await episodic.QueryWindow(query)
    while answer.diagnostics.pending:
        answer = await episodic.QueryWindow(query)
    assert contents(events_of(answer)) == ["the blue garden door", "a door"]
    best, second = (match.score for match in answer.results)
    assert best.relevance > second.relevance > 0
    assert (best.HasField("keyword"), best.HasField("vector")) == (True, False)
    assert (answer.diagnostics.mode, answer.next_page_token) == (common_pb2.SEARCH_MODE_KEYWORD, "")


async def test_events_with_embeddings_are_found_by_meaning_too(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_embeddings=True) as connection:
        episodic = connection.episodic
        await remember(episodic, [happened("the blue garden door"), happened("lunch", 1)])

        async def is_indexed() -> bool:
            return not (await episodic.QueryWindow(window(query="garden door"))).diagnostics.pending

        await eventually(is_indexed)
        answer = await episodic.QueryWindow(window(query="garden door"))
        [best, *_] = answer.results
        assert best.event.content == "the blue garden door"
        assert best.score.vector > 0.5
        assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_HYBRID
        by_meaning = await episodic.QueryWindow(window(query="garden door", mode="SEARCH_MODE_VECTOR"))
        assert by_meaning.diagnostics.mode == common_pb2.SEARCH_MODE_VECTOR
        assert not any(match.score.HasField("keyword") for match in by_meaning.results)


async def test_events_in_a_range_are_counted_by_type_and_by_day(episodic: Any) -> None:
    day = 24 * 60
    await remember(
        episodic,
        [
            happened("a", 0, event_type="task"),
            happened("b", 1, event_type="emotion"),
            happened("c", day, event_type="task"),
            happened("d", 3 * day, event_type="task"),
        ],
    )
    summary = await episodic.SummarizeRange(pb.SummarizeRangeRequest())
    assert [(each.event_type, each.count) for each in summary.types] == [("task", 3), ("emotion", 1)]
    assert [(each.day, each.count) for each in summary.days] == [
        ("2026-01-31", 2), ("2026-02-01", 1), ("2026-02-03", 1),
    ]  # fmt: skip
    part = await episodic.SummarizeRange(
        pb.SummarizeRangeRequest(range={"start_time": minutes(1), "end_time": minutes(day)})
    )
    assert (part.event_count, part.earliest, part.latest) == (2, minutes(1), minutes(day))
    nothing = await episodic.SummarizeRange(pb.SummarizeRangeRequest(range={"end_time": minutes(-1)}))
    assert nothing == pb.SummarizeRangeResponse()


# Pruning


async def test_events_are_pruned_by_id_time_and_filter_and_counted_beforehand(episodic: Any) -> None:
    await remember(episodic, [happened(f"{n}", n, event_id=f"event-{n}", event_type="task") for n in range(6)])
    dry = await prune(episodic, before=minutes(2), dry_run=True)
    assert (dry.pruned_count, sorted(dry.event_ids)) == (2, ["event-0", "event-1"])
    assert (dry.earliest, dry.latest, dry.segment_count) == (minutes(0), minutes(1), 1)
    assert len(await recent(episodic)) == 6
    assert (await prune(episodic, event_ids=["event-5"])).event_ids == ["event-5"]
    assert (await prune(episodic, before=minutes(2))).pruned_count == 2
    assert (await prune(episodic, filter={"filter": compare("content", "EQ", "3")})).event_ids == ["event-3"]
    assert contents(await recent(episodic)) == ["4", "2"]
    error = await failure_of(get(episodic, "event-3"))
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert await prune(episodic, before=minutes(-5)) == pb.PruneEventsResponse()


async def test_unknown_ids_are_not_found_unless_missing_ones_are_allowed(episodic: Any) -> None:
    await remember(episodic, [happened("a", event_id="a"), happened("b", 1, event_id="b")])
    asked = ["a", "nothing", "b", "neither"]
    for dry_run in (True, False):
        error = await failure_of(prune(episodic, event_ids=asked, dry_run=dry_run))
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "EVENT_NOT_FOUND")
        assert error.details() == "no event has the id 'nothing' or 'neither'; 2 of the ids are missing"
        resource = detail(error, error_details_pb2.ResourceInfo)
        assert (resource.resource_type, resource.resource_name) == ("mnemon.EpisodicEvent", "nothing")
    assert len(await recent(episodic)) == 2
    assert (await prune(episodic, event_ids=asked, allow_missing=True, dry_run=True)).event_ids == ["a", "b"]
    assert (await prune(episodic, event_ids=asked, allow_missing=True)).pruned_count == 2
    assert await prune(episodic, event_ids=asked, allow_missing=True) == pb.PruneEventsResponse()


async def test_a_repeated_pruning_gets_the_same_answer(episodic: Any) -> None:
    await remember(episodic, [happened(f"{n}", n) for n in range(3)])
    first = await prune(episodic, before=minutes(2), request_id="once")
    again = await prune(episodic, before=minutes(2), request_id="once")
    assert (first.pruned_count, first.replayed, again.replayed) == (2, False, True)
    again.replayed = False
    assert again == first
    error = await failure_of(prune(episodic, before=minutes(9), request_id="once"))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_a_compaction_reports_progress_and_ends_with_done(episodic: Any) -> None:
    assert [step.done for step in await compact(episodic)][-1:] == [True]
    await remember(episodic, [happened(f"{n}", n, event_id=f"event-{n}") for n in range(200)])
    await prune(episodic, event_ids=[f"event-{n}" for n in range(0, 200, 2)])
    steps = await compact(episodic, request_id="once")
    assert [step.done for step in steps] == [*[False] * (len(steps) - 1), True]
    [again] = await compact(episodic, request_id="once")
    assert (steps[-1].replayed, again.done, again.replayed) == (False, True, True)
    assert all(step.processed_bytes <= step.total_bytes for step in steps)

    async def is_removed() -> bool:
        return (await timeline_status(episodic)).removal_pending_count == 0

    await eventually(is_removed)
    assert len(await recent(episodic)) == 100


async def test_compactions_finish_while_events_are_being_recorded(tmp_path: Path) -> None:
    over, recorded = asyncio.Event(), 0

    async def record_on(episodic: Any, number: int) -> None:
        nonlocal recorded
        while not over.is_set():
            await episodic.RecordEvent(record(f"{number}: {recorded}"))
            recorded += 1

    async with whole_server(tmp_path) as connected:
        recorders = [asyncio.create_task(record_on(connected.episodic, number)) for number in range(4)]
        try:
            async with asyncio.timeout(120):
                for turn in range(20):
                    await connected.episodic.RecordEvent(record(f"turn {turn}"))
                    steps = await compact(connected.episodic)
                    assert [step.done for step in steps] == [*[False] * (len(steps) - 1), True]
        finally:
            over.set()
            await asyncio.gather(*recorders)
        # The last compaction joined the events recorded since the previous one to the older ones.
        assert steps[-1].processed_bytes == steps[-1].total_bytes > 0
        assert (await timeline_status(connected.episodic)).event_count == recorded + 20


# Status


async def test_the_status_counts_stored_events(episodic: Any) -> None:
    empty = await timeline_status(episodic)
    assert (empty.state, empty.message, empty.event_count) == (common_pb2.STATE_READY, "", 0)
    assert not any(empty.HasField(field) for field in ("earliest", "latest", "retention"))
    await remember(episodic, [happened(f"{n}", n) for n in range(3)])
    status = await timeline_status(episodic)
    assert (status.event_count, status.segment_count, status.active_segment_id) == (3, 1, 1)
    assert (status.earliest, status.latest) == (minutes(0), minutes(2))


async def test_only_the_status_answers_until_the_vaults_are_open() -> None:
    async with bare_server() as connection:
        episodic = connection.episodic
        status = await timeline_status(episodic)
        assert (status.state, status.message) == (common_pb2.STATE_STARTING, "the server is starting")
        for call in (
            episodic.RecordEvent(record()),
            episodic.QueryWindow(window()),
            episodic.ListRecentEvents(pb.ListRecentEventsRequest()),
            episodic.SummarizeRange(pb.SummarizeRangeRequest()),
            episodic.GetEvent(pb.GetEventRequest(event_id="a")),
            episodic.PruneEvents(pb.PruneEventsRequest(event_ids=["a"])),
        ):
            error = await failure_of(call)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
        for stream in (
            episodic.BulkRecordEvents(sent(bulk([happened()]))),
            episodic.CompactTimeline(pb.CompactTimelineRequest()),
        ):
            _, error = await stream_end(stream)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_until_the_timeline_is_warm_its_calls_are_unavailable_and_health_says_so() -> None:
    service = "mnemon.v1.EpisodicMemoryService"
    async with open_event_store() as opened, bare_server(health_check_interval_s=0.01) as connection:
        opened.timeline.is_warm = False
        vault = open_vault_with(Ready(), nothing, timeline=cast("Any", opened.store))

        async def open_vault(tenant: str) -> OpenVault:
            return vault

        async with VaultPool(open_vault, open_max=1, idle_s=None) as vaults:
            async with vaults.use(DEFAULT_TENANT):
                pass
            await connection.server.serve(vaults)
            assert [await health_of(connection, name) for name in ("", "readiness", service)] == ["NOT_SERVING"] * 3
            assert await health_of(connection, "mnemon.v1.ChangeService") == "SERVING"
            for call in (
                connection.episodic.RecordEvent(record()),
                connection.episodic.QueryWindow(window()),
                connection.episodic.PruneEvents(pb.PruneEventsRequest(event_ids=["a"])),
            ):
                error = await failure_of(call)
                assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "INDEX_WARMING")
                assert detail(error, error_details_pb2.RetryInfo).retry_delay.ToTimedelta().total_seconds() > 0
            for stream in (
                connection.episodic.BulkRecordEvents(sent(bulk([happened()]))),
                connection.episodic.CompactTimeline(pb.CompactTimelineRequest()),
            ):
                _, error = await stream_end(stream)
                assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "INDEX_WARMING")
            assert (await timeline_status(connection.episodic)).state
            opened.timeline.is_warm = True

            async def is_ready() -> bool:
                return await health_of(connection) == "SERVING"

            await eventually(is_ready)
            assert await health_of(connection, service) == "SERVING"
            assert (await connection.episodic.RecordEvent(record())).receipt.sequence == 1


async def test_the_status_shows_the_retention(tmp_path: Path) -> None:
    async with whole_server(tmp_path, timeline_retention_days=1.5) as connection:
        assert (await timeline_status(connection.episodic)).retention.seconds == 36 * 3600


# What watchers receive


async def test_the_feed_names_recorded_events_and_the_full_view_carries_them(connection: Connection) -> None:
    episodic = connection.episodic
    await remember(episodic, [happened("a", event_id="a"), happened("b", 1, event_id="b", importance=0.5)])
    plain = await told(connection.changes, "EPISODIC_SAVED")
    assert [event.record_id for event in plain] == ["a", "b"]
    assert [event.WhichOneof("record") for event in plain] == [None, None]
    assert (plain[0].scope.user, plain[0].episodic_saved.event_type) == ("ada", "conversation")
    assert (plain[0].episodic_saved.HasField("importance"), plain[1].episodic_saved.importance) == (False, 0.5)
    assert [event.episodic_saved.content for event in plain] == ["a", "b"]
    full = await told(connection.changes, "EPISODIC_SAVED", full=True)
    assert [event.episodic_saved.HasField("content") for event in full] == [False, False]
    assert [event.episodic_event for event in full] == [await get(episodic, "a"), await get(episodic, "b")]
    await prune(episodic, event_ids=["a"])
    full = await told(connection.changes, "EPISODIC_SAVED", full=True)
    assert [event.WhichOneof("record") for event in full] == [None, "episodic_event"]
    plain = await told(connection.changes, "EPISODIC_SAVED")
    assert [event.episodic_saved.HasField("content") for event in plain] == [False, True]
    [pruned] = await told(connection.changes, "EPISODIC_PRUNED", full=True)
    assert (pruned.record_id, pruned.episodic_pruned.reason) == ("1", pb.PRUNE_REASON_REQUESTED)
    assert pruned.episodic_pruned.segment_id == 1
    assert [event.event_id for event in pruned.episodic_pruned.events] == ["a"]
    assert pruned.WhichOneof("record") is None


async def test_a_watcher_gets_an_event_with_its_content(connection: Connection) -> None:
    watch = connection.changes.WatchChanges(
        changes_pb2.WatchChangesRequest(
            filter={"types": [changes_pb2.CHANGE_TYPE_EPISODIC_SAVED], "scope": {"user": "ada"}},
            view=changes_pb2.CHANGE_VIEW_FULL,
        )
    )
    assert (await watch.read()).WhichOneof("payload") == "started"
    await connection.episodic.RecordEvent(record("of another", scope={"user": "bob"}))
    await connection.episodic.RecordEvent(record("a"))
    while (message := await watch.read()).WhichOneof("payload") != "batch":
        assert message.WhichOneof("payload") == "progress"
    assert [event.episodic_event.content for event in message.batch.changes] == ["a"]
    watch.cancel()
