"""Tables and lists show the parts of their records, and stored text cannot control the terminal."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import mnemon
import pytest
from mnemon._cli import events, facts, memories, statements, tools
from mnemon._cli.documents import commands as documents
from mnemon._cli.watching import _line
from mnemon._messages.changes import change_from_pb
from mnemon.v1 import changes_pb2, rules_pb2
from rich.console import Group

from tests.support.command import printed, run
from tests.unit.client.scripted_server import scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ESCAPE = "\x1b[31mred [bold]x[/bold]"
SHOWN = "\\u001b[31mred [bold]x[/bold]"
SEARCHED = mnemon.SearchDiagnostics(mnemon.SearchMode.HYBRID, True, 1, 1, 0, "", 0.0)
FACT = mnemon.Fact(
    ("user", ESCAPE),
    ESCAPE,
    {"content": ESCAPE},
    {ESCAPE: ESCAPE},
    NOON,
    NOON,
    index=(ESCAPE,),
    revision=3,
    versions=(mnemon.FactVersion(2, {"n": 5}, NOON),),
)
FACTS = mnemon.FactAnswer((mnemon.FactMatch(FACT, 0.75), mnemon.FactMatch(FACT)), SEARCHED)
CALL = mnemon.ToolCall("abp-1", ESCAPE, ESCAPE, {"n": "\x1b"}, mnemon.ToolProtocol.ABP, ("open brackets",))
PROBLEM = mnemon.BlockProblem(mnemon.ToolProtocol.ABP, ESCAPE, ESCAPE, 3, 2)
PARSED = mnemon.ParsedText(True, (CALL,), "", "", mnemon.ToolFallback.NONE, (PROBLEM,))
RESULTS = (
    mnemon.ToolCallResult("abp-1", 2, ESCAPE, mnemon.ToolOutput("done")),
    mnemon.ToolCallResult("abp-2", 0, "t", error=mnemon.InvalidArgumentError("no such id")),
)
EVENT = mnemon.EpisodicEvent(
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
WINDOW = mnemon.WindowAnswer(
    (mnemon.EventMatch(EVENT, mnemon.EventScore(0.75, None, 0.75)),),
    "",
    mnemon.WindowDiagnostics(1, 0, 0, 1, 0.0, None, 0),
)
SUMMARY = mnemon.EventSummary(1234, NOON, NOON, {ESCAPE: 1234}, {"2026-05-01": 1234})
BRIDGE = mnemon.BridgeStatus(
    mnemon.BridgeState.DEGRADED, ESCAPE, mnemon.BridgeActivity.SUSPENDED, 3, {"importance": 2, ESCAPE: 1},
    4, 5, 6, 7, 0.25, 1, None, mnemon.RoutingPolicy(),
)  # fmt: skip
EXTRACTING = replace(BRIDGE, extraction=mnemon.ExtractionStatus(ESCAPE, 1, 2, 3, {"not_json": 4}, 5, 6))
PREVIEW = mnemon.ExtractionPreview(
    (mnemon.ExtractedStatement(ESCAPE, ("e-1",), "", None, True, None),), ESCAPE, None, "", 1, 7
)
DIAGNOSTICS = mnemon.SimilarityDiagnostics(1, 0, 0, 0, 1, 0, 1, exact=True, duration_s=0.0)
MEMORY = mnemon.SemanticMemory(ESCAPE, memory_id="m-1", user=ESCAPE, source=ESCAPE, superseded_by="m-2", importance=0.5)
DECISION = mnemon.Decision(
    decision_id="d-1",
    scope=mnemon.Scope(user="ada"),
    candidate_id="",
    existing_id="m-1",
    result_id="",
    rule=ESCAPE,
    signals=(),
    conflict_count=1,
    arbitration=mnemon.Arbitration(
        mnemon.ArbitrationAction.REJECT,
        mnemon.ArbitrationStrategy.DEFAULT,
        None,
        None,
        confidence=0.5,
        reason=ESCAPE,
        factors=(),
    ),
    merge=None,
    create_time=NOON,
    revert_time=datetime(2026, 5, 2, 12, tzinfo=UTC),
)


def status(**changes: Any) -> mnemon.TimelineStatus:
    fields: dict[str, Any] = {
        "state": mnemon.TimelineState.READY,
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
    return mnemon.TimelineStatus(**(fields | changes))


@pytest.mark.parametrize(
    ("renderable", "parts"),
    [
        (facts.fact_table([FACT]), ("user.", "2026-05-01")),
        (facts.match_table(FACTS), ("0.750", "user.")),
        (facts.fact_sheet(FACT), ("user.", "revision 2, 2026-05-01", '"n": 5')),
        (facts.namespace_list([FACT.namespace]), ("user.",)),
        (
            tools.tool_table([mnemon.Tool(ESCAPE, "Ask.", {"properties": {"a": {}, "b": {}}})]),
            ("a, b", "server"),
        ),
        (tools.parsed_table(PARSED), ("abp abp-1; open brackets", "line 2: a block of")),
        (Group(*tools.result_lines(RESULTS)), ("abp-1 2", ": done", "abp-2  t: error: no such id")),
        (events.event_table([EVENT]), ("e-1", "importance=0.5")),
        (events.answer_table(WINDOW), ("e-1", "0.750")),
        (events.event_sheet(EVENT), ("e-1", "0.5", "context")),
        (events.summary_table(SUMMARY), ("1,234", "2026-05-01")),
        (events.status_table(status(message=ESCAPE)), ("3.0 MiB", "for ever", "never yet")),
        (events.bridge_table(BRIDGE), ("suspended", "2 by importance", "7 events", "5 deleted, 6 demoted", "0.2 s")),
        (events.bridge_table(EXTRACTING), ("3 statements of 2 messages", "5 calls, 6 tokens", "4 by not_json")),
        (events.preview_table(PREVIEW), ("known already", "summary: ")),
        (
            events.policy_table(mnemon.RoutingPolicy(0.6, (ESCAPE, "task"), "any", 512, "demote", 0.1)),
            ("task", "any", "0.6"),
        ),
        (
            statements.similarity_table(
                mnemon.SimilarityAnswer((mnemon.SemanticMatch(MEMORY, 0.75, 0.5),), DIAGNOSTICS)
            ),
            ("0.750", "0.500", "m-1"),
        ),
        (statements.statement_table([MEMORY]), ("m-1", "importance=0.5", "superseded")),
        (statements.statement_sheet(MEMORY), ("m-1", "m-2", "0.5")),
        (statements.decision_table([DECISION]), ("d-1", "reject", "existing=m-1", "candidate=none", "undone")),
    ],
)
def test_a_table_shows_its_parts_and_makes_control_characters_visible(renderable: Any, parts: tuple[str, ...]) -> None:
    shown = printed(renderable)

    assert SHOWN in shown
    assert "\x1b" not in shown
    for part in parts:
        assert part in shown


def test_a_value_with_more_than_a_content_is_shown_as_json() -> None:
    shown = printed(
        facts.fact_table([mnemon.Fact(("a",), "k", {"content": "tea", "n": 5}), mnemon.Fact(("a",), "l", {})])
    )
    assert '{"content": "tea", "n": 5}' in shown and "{}" in shown
    assert "searched   nothing" in printed(facts.fact_sheet(mnemon.Fact(("a",), "k", {}, index=False)))


def test_counts_and_texts_without_a_call_are_shown() -> None:
    shown = printed(tools.stats_table(mnemon.ProtocolStats(10, 4, 5, 3, 2, 1)))
    assert [line.split()[-1] for line in shown.splitlines()] == ["10", "4", "5", "3", "2", "1"]
    nothing = mnemon.ParsedText(False, (), "ABP parsing failed", "text", mnemon.ToolFallback.PLAIN_TEXT)
    assert printed(tools.parsed_table(nothing)) == "no call: the text is the model's answer\n"


def test_a_timeline_that_lost_something_says_what() -> None:
    lost = (mnemon.LostRange(1, 3, 4, 2, NOON), mnemon.LostRange(90, 91, 91, 1, NOON))

    shown = printed(events.status_table(status(lost=lost, retention_s=86_400.0 * 30, removal_pending_count=8)))

    assert "lost: 2 events, sequences 3 to 4 of segment 1," in shown
    assert "lost: 1 event, sequences 91 to 91 of segment 90," in shown
    assert "30 days" in shown and "8 events" in shown
    assert "lost" not in printed(events.status_table(status()))


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


def test_a_conflict_is_a_line_with_its_signals() -> None:
    signals = (
        mnemon.ConflictSignal(mnemon.SignalType.SEMANTIC, 0.9, 0.8),
        mnemon.ConflictSignal(mnemon.SignalType.TIME, 0.5, 300.0),
    )

    assert (
        statements.conflict_line(mnemon.Conflict("m-1", signals, 1.4)) == "conflicts with m-1: semantic 0.90, time 0.50"
    )


def test_a_warming_index_shows_its_progress_and_a_ready_one_does_not() -> None:
    def status(state: mnemon.IndexState) -> mnemon.SemanticIndexStatus:
        return mnemon.SemanticIndexStatus(state, "", 10, 2, 5, 12, 1000, 0.0125, 1.0, 1 << 20, 0, None)

    assert "5 of 12 vectors" in printed(statements.index_table(status(mnemon.IndexState.STARTING)))
    ready = printed(statements.index_table(status(mnemon.IndexState.READY)))
    assert "of 12 vectors" not in ready
    for part in ("10, and 2 superseded", "12.5 ms", "1.0 MiB", "none"):
        assert part in ready
    assert "judge" not in ready
    assert "failed 3 times" in printed(
        statements.index_table(replace(status(mnemon.IndexState.READY), judge_failed_count=3))
    )


def test_rules_are_listed_without_inherited_values() -> None:
    rule = rules_pb2.MergeRuleConfig(
        name=ESCAPE, extends="default", enabled=False, conditions={"users": ["ada", "bob"], "importance_min": 0.5}
    )
    with scripted_server(lambda *_: rules_pb2.ListRulesResponse(rules=[rule])) as (address, _):
        shown = run(address, "rules", "list").stdout

    assert "\x1b" not in shown
    # At any width of the terminal.
    words = "".join(shown.split())
    for part in ("(disabled)", "default", "importance_min:0.5"):
        assert part in words


def test_a_recall_shows_score_confidence_text_id_and_tags_and_why() -> None:
    why = mnemon.MatchExplanation((mnemon.ScorePart("vector", 0.5, 0.6, 0.3),), ("tea",), "reinforced 3 days ago", 0, 4)
    memory = mnemon.Memory(
        "Ada likes tea.", memory_id="m-1", type="preference", user="ada", is_global=True, confidence=0.93
    )
    text = printed(
        memories.match_table(mnemon.MemoryAnswer((mnemon.MemoryMatch(memory, 0.5, explanation=why),), SEARCHED))
    )

    for part in ("0.500", "93%", "Ada likes tea.", "m-1", "type=preference", "user=ada", "global"):
        assert part in text
    for part in ("vector 0.500 x 0.60", "words: tea", "reinforced 3 days ago"):
        assert part in text


def test_empty_results_and_forecasts_say_so() -> None:
    for nothing in (
        facts.match_table(mnemon.FactAnswer((), SEARCHED)),
        memories.match_table(mnemon.MemoryAnswer((), SEARCHED)),
        documents.search_table(mnemon.SearchAnswer((), (), SEARCHED)),
    ):
        assert printed(nothing).strip() == "nothing found"
    assert printed(memories.forecast_table([])).strip() == "nothing fades by then"


def test_a_forecast_shows_the_time_and_the_confidence_now_and_then() -> None:
    text = printed(
        memories.forecast_table(
            [mnemon.MemoryForecast(mnemon.Memory("text", memory_id="m-1", confidence=0.5), 0.125, NOON)]
        )
    )

    for part in (NOON.astimezone().strftime("%Y-%m-%d %H:%M"), "50%", "12%", "m-1"):
        assert part in text


def documents_found(content: str, passage: mnemon.Passage | None = None) -> mnemon.SearchAnswer:
    result = mnemon.SearchResult(mnemon.Document("note-1", content), 0.5, "chromadb", passage=passage)
    return mnemon.SearchAnswer((result,), (), SEARCHED)


def test_the_matching_passage_is_shown() -> None:
    text = printed(documents.search_table(documents_found("Before. The passage. After.", mnemon.Passage(1, 8, 20))))

    assert "The passage." in text
    assert "Before" not in text
    assert "0.500" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_width(width: int) -> None:
    long = "word " * 300
    for table in (
        documents.search_table(documents_found(long)),
        memories.memory_table([mnemon.Memory(long, memory_id="m" * 36)]),
    ):
        lines = printed(table, width).splitlines()
        assert max(len(line) for line in lines) <= width
        assert "…" in "".join(lines)


def test_stored_text_cannot_control_the_terminal() -> None:
    hostile = "a\x1b[2Jb\u202ec\x9bd [bold]loud[/bold] [link=x]y[/link]"
    memory = mnemon.Memory(hostile, memory_id="m-1", type="\x1b]0;x\x07", metadata={"k": "\x9b"})
    for table in (
        documents.search_table(documents_found(hostile)),
        documents.document_sheet(mnemon.Document("id\x1b]0;x\x07", hostile, {"k": "\x1b[31m"})),
        memories.memory_table([memory]),
        memories.memory_sheet(memory),
    ):
        text = printed(table)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert "a\\u001b[2Jb" in text and "[bold]loud[/bold]" in text
