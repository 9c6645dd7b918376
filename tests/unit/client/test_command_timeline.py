"""Lines of events are read as intended, and stored text cannot manipulate tables of the timeline and the bridge."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mnemon import (
    BridgeActivity,
    BridgeState,
    BridgeStatus,
    EpisodicEvent,
    EventMatch,
    EventScore,
    EventSummary,
    ExtractedStatement,
    ExtractionPreview,
    ExtractionStatus,
    LostRange,
    RoutingPolicy,
    TimelineState,
    TimelineStatus,
    WindowAnswer,
    WindowDiagnostics,
)
from mnemon._cli import events as render
from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import EVENT_LINES, Line, read_records
from mnemon._cli.watching import _line
from mnemon._messages.changes import change_from_pb
from mnemon.v1 import changes_pb2
from mnemon.v1 import episodic_pb2 as pb
from rich.console import Console

from tests.support.command import run
from tests.unit.client.scripted_server import scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ESCAPE = "\x1b[31mred [bold]x[/bold]"
SHOWN = "\\u001b[31mred [bold]x[/bold]"
EVENT = EpisodicEvent(
    ESCAPE,
    ESCAPE,
    event_id="e-1",
    user=ESCAPE,
    event_time=NOON,
    context=ESCAPE,
    importance=0.5,
    source=ESCAPE,
    metadata={ESCAPE: ESCAPE},
)
ANSWER = WindowAnswer(
    (EventMatch(EVENT, EventScore(0.75, None, 0.75)),), "", WindowDiagnostics(1, 0, 0, 1, 0.0, None, 0)
)
SUMMARY = EventSummary(1234, NOON, NOON, {ESCAPE: 1234}, {"2026-05-01": 1234})
BRIDGE = BridgeStatus(
    BridgeState.DEGRADED,
    ESCAPE,
    BridgeActivity.SUSPENDED,
    3,
    {"importance": 2, ESCAPE: 1},
    4,
    5,
    6,
    7,
    0.25,
    1,
    None,
    RoutingPolicy(),
)  # fmt: skip
EXTRACTING = replace(BRIDGE, extraction=ExtractionStatus(ESCAPE, 1, 2, 3, {"not_json": 4}, 5, 6))
PREVIEW = ExtractionPreview((ExtractedStatement(ESCAPE, ("e-1",), "", None, True, None),), ESCAPE, None, "", 1, 7)


def status(**changes: Any) -> TimelineStatus:
    fields: dict[str, Any] = {
        "state": TimelineState.READY,
        "message": "",
        "event_count": 0,
        "segment_count": 1,
        "active_segment_id": 1,
        "segment_bytes": 3 << 20,
        "unsealed_count": 0,
        "earliest": None,
        "latest": None,
        "index_bytes": 0,
        "loaded_segment_count": 0,
        "removal_pending_count": 0,
        "lost": (),
        "scrub_time": None,
        "retention_s": None,
        "text_pending_count": 0,
    }
    return TimelineStatus(**(fields | changes))


def printed(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("renderable", "parts"),
    [
        (render.event_table([EVENT]), ("e-1", "importance=0.5")),
        (render.answer_table(ANSWER), ("e-1", "0.750")),
        (render.event_sheet(EVENT), ("e-1", "0.5", "context")),
        (render.summary_table(SUMMARY), ("1,234", "2026-05-01")),
        (render.status_table(status(message=ESCAPE)), ("3.0 MiB", "for ever", "never yet")),
        (render.bridge_table(BRIDGE), ("suspended", "2 by importance", "7 events", "5 deleted, 6 demoted", "0.2 s")),
        (
            render.bridge_table(EXTRACTING),
            ("3 statements of 2 messages", "5 calls, 6 tokens", "4 by not_json"),
        ),
        (render.preview_table(PREVIEW), ("known already", "summary: ")),
        (render.policy_table(RoutingPolicy(0.6, (ESCAPE, "task"), "any", 512, "demote", 0.1)), ("task", "any", "0.6")),
    ],
)
def test_a_table_shows_its_parts_and_makes_control_characters_visible(renderable: Any, parts: tuple[str, ...]) -> None:
    shown = printed(renderable)

    assert SHOWN in shown
    assert "\x1b" not in shown
    for part in parts:
        assert part in shown


def test_a_timeline_that_lost_something_says_what() -> None:
    lost = (LostRange(1, 3, 4, 2, NOON), LostRange(90, 91, 91, 1, NOON))

    shown = printed(render.status_table(status(lost=lost, retention_s=86_400.0 * 30, removal_pending_count=8)))

    assert "lost: 2 events, sequences 3 to 4 of segment 1," in shown
    assert "lost: 1 event, sequences 91 to 91 of segment 90," in shown
    assert "30 days" in shown and "8 events" in shown
    assert "lost" not in printed(render.status_table(status()))


def changes_of(tmp_path: Path, *lines: str, **fields: Any) -> list[Line | Unreadable]:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return list(read_records(str(path), EVENT_LINES, fields, {"from": "file"}))


def test_a_line_is_a_text_or_an_object_and_options_fill_missing_fields(tmp_path: Path) -> None:
    whole = {
        "content": "a",
        "event_type": "task",
        "user": "bob",
        "event_time": "2026-05-01T13:00:00+01:00",
        "importance": 0.5,
        "metadata": {"n": 5},
        "event_id": "e-1",
        "record_time": "2026-05-01T12:00:00Z",
    }

    read = changes_of(tmp_path, '"b"', "", json.dumps(whole), event_type="emotion", user="ada")

    items = [line.item for line in read if isinstance(line, Line)]
    assert items == [
        EpisodicEvent("emotion", "b", user="ada", metadata={"from": "file"}),
        EpisodicEvent(
            "task",
            "a",
            event_id="e-1",
            user="bob",
            event_time=NOON,
            importance=0.5,
            metadata={"n": 5, "from": "file"},
        ),
    ]
    assert [line.place for line in read if isinstance(line, Line)] == [
        f"{tmp_path}/events.jsonl:1",
        f"{tmp_path}/events.jsonl:3",
    ]


def test_a_printed_event_can_be_read_again(tmp_path: Path) -> None:
    event = EpisodicEvent(
        "task", "Grüße", event_id="e-1", user="ada", project="x", event_time=NOON, importance=0.5, record_time=NOON
    )

    [line] = changes_of(tmp_path, event.to_json())

    assert isinstance(line, Line)
    assert line.item == EpisodicEvent(
        "task",
        "Grüße",
        event_id="e-1",
        user="ada",
        project="x",
        event_time=NOON,
        importance=0.5,
        metadata={"from": "file"},
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Ada likes tea.", "a line is a text in quotes, such as "),
        ("5", "must be quoted text or an object"),
        ('{"type": "task"}', '"type" is not a field'),
        ('{"content": 5}', '"content" must be text'),
        ('{"event_time": 5}', '"event_time" must be text'),
        ('{"event_time": "noon"}', '"event_time" must be a time'),
        ('{"metadata": [1]}', '"metadata" must be an object'),
        ('{"metadata": []}', '"metadata" must be an object'),
    ],
)
def test_the_error_of_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    [read] = changes_of(tmp_path, line)

    assert isinstance(read, Unreadable) and problem in read.problem


def test_a_text_searches_all_times_and_names_events_not_yet_indexed() -> None:
    answer = pb.QueryWindowResponse(diagnostics={"pending": 3})
    with scripted_server(lambda *_: answer) as (address, server):
        done = run(address, "timeline", "tea", "--limit", "7")

    assert done.stdout == "nothing found\n"
    assert "note: not yet indexed: 3 events, which" in done.stderr
    [request] = server.requests
    assert (request.query, request.limit, request.range.HasField("end_time")) == ("tea", 7, False)
    assert request.range.start_time.ToDatetime() == datetime(1, 1, 1)


def test_without_a_text_the_newest_events_of_all_times_are_listed() -> None:
    with scripted_server(lambda *_: pb.ListRecentEventsResponse()) as (address, server):
        assert run(address, "timeline", "--user", "ada", "--type", "task").stdout == "nothing happened\n"

    request = server.requests[0]
    assert isinstance(request, pb.ListRecentEventsRequest)
    assert (request.filter.scope.user, list(request.filter.event_types), request.page_size) == ("ada", ["task"], 51)


def test_the_feed_is_printed_in_lines() -> None:
    saved = changes_pb2.Change(type=changes_pb2.CHANGE_TYPE_EPISODIC_SAVED, episodic_saved={"event_type": ESCAPE})
    pruned = changes_pb2.Change(
        type=changes_pb2.CHANGE_TYPE_EPISODIC_PRUNED,
        episodic_pruned={"reason": "PRUNE_REASON_RETENTION", "events": [{}, {}]},
    )
    done = changes_pb2.Change(
        type=changes_pb2.CHANGE_TYPE_BRIDGE_RECONCILED,
        reconciliation={"action": "PRUNE_ACTION_DEMOTE", "memory_ids": ["m-1"], "unlinked_memory_ids": ["m-2", "m-3"]},
    )

    assert _line(change_from_pb(saved)).startswith("memory:episodic:saved")
    assert SHOWN in _line(change_from_pb(saved))
    assert "retention, 2 events" in _line(change_from_pb(pruned))
    assert "1 statements demoted, 2 unlinked" in _line(change_from_pb(done))
