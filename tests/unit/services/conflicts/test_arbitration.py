"""Arbitration: which of two statements is kept, with what confidence, and for what reason."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationConfig,
    ArbitrationResult,
    ArbitrationSide,
    ArbitrationStrategy,
    DefaultStrategy,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.arbitration import arbitrate, no_conflict

from tests.support.statements import NOON, arbitration_configs, statement, statements

CANDIDATE, EXISTING = ArbitrationSide.CANDIDATE, ArbitrationSide.EXISTING
KEEP, MERGE, REJECT = ArbitrationAction.KEEP, ArbitrationAction.MERGE, ArbitrationAction.REJECT
IMPORTANCE, RECENCY, SOURCE, MULTI_FACTOR, DEFAULT, NONE = ArbitrationStrategy
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

ALL_WEIGHED = ArbitrationConfig(priority_importance=False, priority_recency=False, priority_source=False)


def decide(
    candidate: dict[str, Any],
    existing: dict[str, Any],
    config: ArbitrationConfig | None = None,
    similarity: float | None = 0.9,
) -> ArbitrationResult:
    return arbitrate(
        statement(**candidate), statement(**existing), config or ArbitrationConfig(), similarity=similarity
    )


def weighed(**changes: Any) -> ArbitrationConfig:
    return ArbitrationConfig(priority_importance=False, priority_recency=False, priority_source=False, **changes)


@pytest.mark.parametrize(
    ("candidate", "existing", "winner", "confidence"),
    [
        (0.9, 0.5, CANDIDATE, 0.8),  # 2 * 0.4
        (0.5, 0.9, EXISTING, 0.8),
        (0.55, 0.5, CANDIDATE, 0.1),
        (1.0, 0.5, CANDIDATE, 1.0),
        (1.0, 0.0, CANDIDATE, 1.0),  # at most 1
        (0.0, 0.25, EXISTING, 0.5),
    ],
)
def test_the_more_important_statement_is_kept(
    candidate: float, existing: float, winner: ArbitrationSide, confidence: float
) -> None:
    result = decide({"importance": candidate, "create_time": NOON}, {"importance": existing, "create_time": NOON + DAY})
    assert (result.action, result.strategy, result.winner) == (KEEP, IMPORTANCE, winner)
    assert result.loser == (EXISTING if winner is CANDIDATE else CANDIDATE)
    assert result.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("candidate", "existing"), [(0.5, 0.5), (0.3, 0.1 + 0.2), (None, 0.9), (0.9, None), (None, None)]
)
def test_equal_or_missing_importance_leaves_the_decision_to_recency(
    candidate: float | None, existing: float | None
) -> None:
    result = decide({"importance": candidate, "create_time": NOON}, {"importance": existing, "create_time": NOON + DAY})
    assert (result.strategy, result.winner) == (RECENCY, EXISTING)


@pytest.mark.parametrize(
    ("lead", "winner", "confidence"),
    [
        (6 * HOUR, CANDIDATE, 0.25),  # 6 of 24 hours
        (-6 * HOUR, EXISTING, 0.25),
        (24 * HOUR, CANDIDATE, 1.0),
        (1000 * DAY, CANDIDATE, 1.0),
        (timedelta(microseconds=1), CANDIDATE, 1 / 86_400_000_000),
    ],
)
def test_the_newer_statement_is_kept(lead: timedelta, winner: ArbitrationSide, confidence: float) -> None:
    result = decide({"create_time": NOON + lead, "source": "inferred"}, {"create_time": NOON, "source": "user"})
    assert (result.action, result.strategy, result.winner) == (KEEP, RECENCY, winner)
    assert result.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(("candidate", "existing"), [(NOON, NOON), (None, NOON), (NOON, None), (None, None)])
def test_equal_or_missing_times_leave_the_decision_to_the_source(candidate: object, existing: object) -> None:
    result = decide({"create_time": candidate, "source": "user"}, {"create_time": existing, "source": "system"})
    assert (result.strategy, result.winner) == (SOURCE, CANDIDATE)


ORDER = ("user", "conversation", "skill", "system", "inferred", "anything else")


@pytest.mark.parametrize(("better", "worse"), [(a, b) for i, a in enumerate(ORDER) for b in ORDER[i + 1 :]])
def test_the_statement_of_the_better_source_is_kept(better: str, worse: str) -> None:
    result = decide({"source": better}, {"source": worse})
    assert (result.action, result.strategy, result.winner, result.confidence) == (KEEP, SOURCE, CANDIDATE, 0.7)
    assert decide({"source": worse}, {"source": better}).winner is EXISTING


def test_a_configured_source_priority_applies() -> None:
    config = ArbitrationConfig(source_priority={"user": 1.0, "a form": 9.0})
    assert decide({"source": "user"}, {"source": "a form"}, config).winner is EXISTING


@pytest.mark.parametrize(("first", "second"), [("user", "user"), ("one thing", "another"), ("", "unheard of")])
def test_sources_of_equal_priority_decide_nothing(first: str, second: str) -> None:
    assert decide({"source": first}, {"source": second}).strategy is MULTI_FACTOR


def test_a_disabled_factor_decides_nothing() -> None:
    one = {"importance": 0.9, "create_time": NOON, "source": "system"}
    other = {"importance": 0.8, "create_time": NOON + HOUR, "source": "user"}
    found = [
        decide(one, other, config).strategy
        for config in (
            ArbitrationConfig(),
            ArbitrationConfig(priority_importance=False),
            ArbitrationConfig(priority_importance=False, priority_recency=False),
            ALL_WEIGHED,
        )
    ]
    assert found == [IMPORTANCE, RECENCY, SOURCE, MULTI_FACTOR]


# Each memory scores importance * 0.4 + recency * 0.3 + source * 0.2 + semantic * 0.1; semantic, here 0.9, is the same.
FACTORS: list[tuple[dict[str, Any], dict[str, Any], float]] = [
    # 0.36 + 0.3 + 0.20 + 0.09 = 0.95 against 0.04 + 0.3 + 0.04 + 0.09 = 0.47
    ({"importance": 0.9, "source": "user"}, {"importance": 0.1, "source": "inferred"}, 0.48),
    # importance is missing: 0.5. 0.40 against 0.20
    ({"importance": 1.0}, {}, 0.2),
    # a day older is half as recent: 0.30 against 0.15
    ({"create_time": NOON}, {"create_time": NOON - DAY}, 0.15),
    # two days: 0.30 against 0.075
    ({"create_time": NOON}, {"create_time": NOON - 2 * DAY}, 0.225),
    # A missing time makes neither older.
    ({"create_time": NOON}, {}, 0.0),
    # 0.20 against 0.16
    ({"source": "user"}, {"source": "conversation"}, 0.04),
    # 0.20 against 0
    ({"source": "user"}, {"source": ""}, 0.2),
    # 0.4 * 0.3 = 0.12 for one, 0.2 * 0.6 = 0.12 for the other
    ({"importance": 0.8, "source": "system"}, {"importance": 0.5, "source": "user"}, 0.0),
]


@pytest.mark.parametrize(("better", "worse", "gap"), FACTORS)
def test_the_higher_weighted_score_is_kept_unless_the_scores_are_close(
    better: dict[str, Any], worse: dict[str, Any], gap: float
) -> None:
    result, mirrored = decide(better, worse, ALL_WEIGHED), decide(worse, better, ALL_WEIGHED)
    assert result.strategy is mirrored.strategy is MULTI_FACTOR
    if gap < 0.2:
        assert (result.action, result.winner, result.loser, result.confidence) == (MERGE, None, None, 0.6)
        assert mirrored.action is MERGE
    else:
        assert (result.action, result.winner, result.loser) == (KEEP, CANDIDATE, EXISTING)
        assert (mirrored.winner, mirrored.loser) == (EXISTING, CANDIDATE)
        assert result.confidence == mirrored.confidence == pytest.approx(0.5 + gap / 2)


@pytest.mark.parametrize(("better", "worse", "gap"), FACTORS)
def test_without_merging_any_gap_decides(better: dict[str, Any], worse: dict[str, Any], gap: float) -> None:
    result = decide(better, worse, weighed(allow_merge=False))
    if gap:
        assert (result.strategy, result.winner) == (MULTI_FACTOR, CANDIDATE)
        assert result.confidence == pytest.approx(0.5 + gap / 2)
    else:
        assert (result.strategy, result.winner, result.confidence) == (DEFAULT, CANDIDATE, 0.5)


def test_the_gap_must_be_below_the_merge_threshold() -> None:
    gap_of_4_hundredths: tuple[dict[str, Any], dict[str, Any]] = ({"source": "user"}, {"source": "conversation"})
    assert decide(*gap_of_4_hundredths, weighed(merge_threshold=0.04)).action is KEEP
    assert decide(*gap_of_4_hundredths, weighed(merge_threshold=0.041)).action is MERGE


def test_the_weighed_factors_are_named() -> None:
    one = {"importance": 0.9, "create_time": NOON, "source": "user"}
    result = decide(one, {"create_time": NOON - DAY, "source": "skill"}, ALL_WEIGHED, similarity=-0.2)
    assert [(factor.name, factor.weight, factor.candidate, factor.existing) for factor in result.factors] == [
        ("importance", 0.4, 0.9, 0.5),
        ("recency", 0.3, 1.0, 0.5),
        ("source", 0.2, 1.0, 0.6),
        ("semantic", 0.1, 0.0, 0.0),
    ]


def test_configured_weights_apply_and_the_others_stay() -> None:
    config = weighed(weights={"source": 1.0})
    result = decide({"source": "user"}, {"source": "skill"}, config)
    assert (result.action, result.winner) == (KEEP, CANDIDATE)
    assert result.confidence == pytest.approx(0.7)  # a gap of 0.4
    assert [factor.weight for factor in result.factors] == [0.4, 0.3, 1.0, 0.1]


@pytest.mark.parametrize(
    ("strategy", "action", "winner", "loser"),
    [
        (DefaultStrategy.KEEP_CANDIDATE, KEEP, CANDIDATE, EXISTING),
        (DefaultStrategy.KEEP_EXISTING, KEEP, EXISTING, CANDIDATE),
        (DefaultStrategy.REJECT, REJECT, None, None),
    ],
)
@pytest.mark.parametrize("no_merge", [{"allow_merge": False}, {"merge_threshold": 0.0}])
def test_if_everything_is_equal_and_nothing_merged_the_default_decides(
    no_merge: dict[str, Any],
    strategy: DefaultStrategy,
    action: ArbitrationAction,
    winner: ArbitrationSide | None,
    loser: ArbitrationSide | None,
) -> None:
    result = decide({"importance": 0.5}, {}, ArbitrationConfig(default_strategy=strategy, **no_merge))
    assert (result.action, result.strategy, result.confidence) == (action, DEFAULT, 0.5)
    assert (result.winner, result.loser) == (winner, loser)
    assert strategy.value in result.reason


@pytest.mark.parametrize(
    ("candidate", "existing", "reason"),
    [
        ({"importance": 0.4}, {"importance": 0.9}, "The existing statement is more important: 0.9 against 0.4."),
        ({"create_time": NOON}, {"create_time": NOON - 90 * HOUR / 60}, "The candidate is newer by 90 minutes."),
        ({"create_time": NOON}, {"create_time": NOON - 36 * HOUR}, "The candidate is newer by 36 hours."),
        ({"create_time": NOON}, {"create_time": NOON - 72 * HOUR}, "The candidate is newer by 3 days."),
        ({"create_time": NOON}, {"create_time": NOON - HOUR / 25_200}, "The candidate is newer by 142.9 milliseconds."),
        (
            {"source": "system"},
            {"source": "their letter"},
            "The candidate has the better source: system (4) against another (0).",
        ),
        (
            {},
            {},
            "They are merged: the candidate scores 0.59, the existing statement 0.59, a gap of 0, which is below 0.2.",
        ),
    ],
)
def test_the_reason_is_a_sentence_with_the_figures(
    candidate: dict[str, Any], existing: dict[str, Any], reason: str
) -> None:
    assert decide(candidate, existing).reason == reason


def test_a_reason_never_repeats_what_a_user_wrote() -> None:
    result = decide({"source": "Dr. Miller's diagnosis"}, {"source": "user"})
    assert "Miller" not in result.reason


def test_without_a_conflict_there_is_no_decision() -> None:
    result = no_conflict()
    assert (result.action, result.strategy, result.confidence) == (ArbitrationAction.NONE, NONE, 1.0)
    assert result.winner is result.loser is None


similarities = st.none() | st.floats(-1.0, 1.0)


@given(statements(), statements(), arbitration_configs(), similarities)
def test_any_two_statements_have_one_valid_decision(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig, similarity: float | None
) -> None:
    result = arbitrate(candidate, existing, config, similarity=similarity)
    assert result == arbitrate(candidate, existing, config, similarity=similarity)
    assert 0.0 <= result.confidence <= 1.0
    assert result.reason.endswith(".")
    if result.action is KEEP:
        assert {result.winner, result.loser} == {CANDIDATE, EXISTING}
    else:
        assert result.action in (MERGE, REJECT)
        assert result.winner is result.loser is None


@given(statements(), statements(), arbitration_configs(), similarities)
def test_the_same_statement_wins_as_candidate_or_stored_unless_the_default_decides(
    one: SemanticMemory, other: SemanticMemory, config: ArbitrationConfig, similarity: float | None
) -> None:
    result = arbitrate(one, other, config, similarity=similarity)
    mirrored = arbitrate(other, one, config, similarity=similarity)
    assert (result.action, result.strategy) == (mirrored.action, mirrored.strategy)
    assert result.confidence == pytest.approx(mirrored.confidence)
    if result.strategy is DEFAULT:
        assert (result.winner, result.loser) == (mirrored.winner, mirrored.loser)
    else:
        assert (result.winner, result.loser) == (mirrored.loser, mirrored.winner)


@given(statements(), arbitration_configs(), similarities)
def test_a_statement_never_beats_its_equal(
    one: SemanticMemory, config: ArbitrationConfig, similarity: float | None
) -> None:
    result = arbitrate(one, one, config, similarity=similarity)
    assert result.action is MERGE or result.strategy is DEFAULT
