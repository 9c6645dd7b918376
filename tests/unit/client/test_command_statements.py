"""Tables of statements, decisions and rules show their content, and stored text cannot manipulate them."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from mnemon import (
    Arbitration,
    ArbitrationAction,
    ArbitrationStrategy,
    Conflict,
    ConflictSignal,
    Decision,
    IndexState,
    Scope,
    SemanticIndexStatus,
    SemanticMatch,
    SemanticMemory,
    SignalType,
    SimilarityAnswer,
    SimilarityDiagnostics,
)
from mnemon._cli import statements as render
from mnemon.v1 import rules_pb2
from rich.console import Console

from tests.support.command import run
from tests.unit.client.scripted_server import scripted_server

ESCAPE = "\x1b[31mred [bold]x[/bold]"
SHOWN = "\\u001b[31mred [bold]x[/bold]"
DIAGNOSTICS = SimilarityDiagnostics(1, 0, 0, 0, 1, 0, 1, exact=True, duration_s=0.0)
MEMORY = SemanticMemory(ESCAPE, memory_id="m-1", user=ESCAPE, source=ESCAPE, superseded_by="m-2", importance=0.5)
DECISION = Decision(
    decision_id="d-1",
    scope=Scope(user="ada"),
    candidate_id="",
    existing_id="m-1",
    result_id="",
    rule=ESCAPE,
    signals=(),
    conflict_count=1,
    arbitration=Arbitration(
        ArbitrationAction.REJECT, ArbitrationStrategy.DEFAULT, None, None, confidence=0.5, reason=ESCAPE, factors=()
    ),
    merge=None,
    create_time=datetime(2026, 5, 1, 12, tzinfo=UTC),
    revert_time=datetime(2026, 5, 2, 12, tzinfo=UTC),
)


def printed(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("renderable", "parts"),
    [
        (
            render.similarity_table(SimilarityAnswer((SemanticMatch(MEMORY, 0.75, 0.5),), DIAGNOSTICS)),
            ("0.750", "0.500", "m-1"),
        ),
        (render.statement_table([MEMORY]), ("m-1", "importance=0.5", "superseded")),
        (render.statement_sheet(MEMORY), ("m-1", "m-2", "0.5")),
        (render.decision_table([DECISION]), ("d-1", "reject", "existing=m-1", "candidate=none", "undone")),
    ],
)
def test_a_table_shows_its_parts_and_makes_control_characters_visible(renderable: Any, parts: tuple[str, ...]) -> None:
    shown = printed(renderable)

    assert SHOWN in shown
    assert "\x1b" not in shown
    for part in parts:
        assert part in shown


def test_a_conflict_is_a_line_with_its_signals() -> None:
    signals = (ConflictSignal(SignalType.SEMANTIC, 0.9, 0.8), ConflictSignal(SignalType.TIME, 0.5, 300.0))

    assert render.conflict_line(Conflict("m-1", signals, 1.4)) == "conflicts with m-1: semantic 0.90, time 0.50"


def test_a_warming_index_shows_its_progress_and_a_ready_one_does_not() -> None:
    def status(state: IndexState) -> SemanticIndexStatus:
        return SemanticIndexStatus(state, "", 10, 2, 5, 12, 1000, 0.0125, 1.0, 1 << 20, 0, None)

    assert "5 of 12 vectors" in printed(render.index_table(status(IndexState.STARTING)))
    ready = printed(render.index_table(status(IndexState.READY)))
    assert "of 12 vectors" not in ready
    for part in ("10, and 2 superseded", "12.5 ms", "1.0 MiB", "none"):
        assert part in ready
    assert "judge" not in ready
    assert "failed 3 times" in printed(render.index_table(replace(status(IndexState.READY), judge_failed_count=3)))


def test_rules_are_listed_without_inherited_values() -> None:
    rule = rules_pb2.MergeRuleConfig(
        name=ESCAPE, extends="default", enabled=False, conditions={"users": ["ada", "bob"], "importance_min": 0.5}
    )
    with scripted_server(lambda *_: rules_pb2.ListRulesResponse(rules=[rule])) as (address, _):
        shown = run(address, "rules", "list").stdout

    assert "\x1b" not in shown
    # Whatever the width of the terminal.
    words = "".join(shown.split())
    for part in ("(disabled)", "default", "importance_min:0.5"):
        assert part in words
