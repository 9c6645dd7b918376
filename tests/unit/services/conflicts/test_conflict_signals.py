"""Signals: when two statements conflict, for what reason, and how severely."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.conflicts import DetectionConfig, Relation, RelationType, Signal, SignalType
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.signals import compare, decide, detect, severity, signals_of

from tests.support.statements import NOON, detect_all, detection_configs, statement, statements

SEMANTIC, KEYWORD, TIME, IMPORTANCE, RELATION = SignalType


def fired(
    first: SemanticMemory, second: SemanticMemory, config: DetectionConfig | None = None
) -> dict[SignalType, Signal]:
    signals = signals_of(compare(first, second), config or DetectionConfig())
    return {signal.type: signal for signal in signals}


def score(signals: dict[SignalType, Signal], of: SignalType) -> float | None:
    return signals[of].score if of in signals else None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1.0, 0.0), (1.0, 0.0), 1.0),
        ((1.0, 0.0), (0.8, 0.6), None),  # cosine 0.8 equals the threshold and is not above it
        ((1.0, 0.0), (0.8001, 0.59987), 0.8001),
        ((1.0, 0.0), (0.7999, 0.60013), None),
        ((1.0, 0.0), (0.96, 0.28), 0.96),
        ((3.0, 4.0), (4.0, 3.0), 24 / 25),  # (12 + 12) / (5 * 5)
        ((1.0, 0.0), (-1.0, 0.0), None),
        ((1.0, 0.0), (1.0, 0.0, 0.0), None),  # unequal dimensions
        ((0.0, 0.0), (1.0, 0.0), None),  # no direction
        ((float("nan"), 1.0), (0.0, 1.0), None),
        ((1e300, 1e300), (1e-300, 1e-300), 1.0),
        ((), (), None),
        (None, (1.0, 0.0), None),
        ((1.0, 0.0), None, None),
        (None, None, None),
    ],
)
def test_the_semantic_signal_is_the_cosine_strictly_above_the_threshold(
    first: tuple[float, ...] | None, second: tuple[float, ...] | None, expected: float | None
) -> None:
    signals = fired(statement("tea", embedding=first), statement("coffee", embedding=second))
    assert score(signals, SEMANTIC) == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_a_cosine_equal_to_the_threshold_in_single_precision_is_not_above_it() -> None:
    # 0.8 and 0.6 as four-byte numbers
    single = statement(embedding=(0.800000011920929, 0.6000000238418579))
    assert SEMANTIC not in fired(statement(embedding=(1.0, 0.0)), single)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("a1", "b1"), ("a1", "c1"), None),  # 1 of 2: the threshold
        (("a1", "b1", "c1"), ("a1", "b1", "d1"), 2 / 3),
        (("a1",), ("a1", "b1", "c1", "d1"), 1.0),  # the smaller set has one
        (("a1", "b1", "c1", "d1", "e1"), ("a1", "b1", "x1", "y1", "z1"), None),  # 2 of 5
        (("a1", "b1", "c1", "d1", "e1"), ("a1", "b1", "c1", "y1", "z1"), 3 / 5),
        (("TEA",), ("tea",), 1.0),
        (("Ｔｅａ",), ("tea",), 1.0),
        (("tea",), ("tee",), None),
    ],
)
def test_the_keyword_signal_is_the_shared_part_of_the_smaller_set(
    first: tuple[str, ...], second: tuple[str, ...], expected: float | None
) -> None:
    signals = fired(statement(keywords=first), statement(keywords=second))
    assert score(signals, KEYWORD) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Anna drinks green tea", "Anna drinks coffee", 2 / 3),
        ("Anna drinks tea", "Ben eats rice", None),
        ("東京都に住む", "東京都で働く", None),  # 東京 京都 都に に住 住む and 東京 京都 都で で働 働く: 2 of 5
        ("東京都", "東京都で働く", 1.0),
        ("茶", "茶", None),  # no pair, no term
        ("!", "?", None),
    ],
)
def test_without_keywords_the_words_of_the_contents_are_compared(
    first: str, second: str, expected: float | None
) -> None:
    signals = fired(statement(first), statement(second))
    assert score(signals, KEYWORD) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("delta", "window", "expected"),
    [
        (timedelta(), timedelta(minutes=5), 1.0),
        (timedelta(minutes=1), timedelta(minutes=5), 0.8),
        (timedelta(minutes=-1), timedelta(minutes=5), 0.8),
        (timedelta(minutes=5), timedelta(minutes=5), 0.0),  # the window is inclusive
        (timedelta(minutes=5, microseconds=1), timedelta(minutes=5), None),
        (timedelta(hours=6), timedelta(days=1), 0.75),
        (timedelta(), timedelta(), 1.0),
        (timedelta(microseconds=1), timedelta(), None),
        (timedelta(days=365_000), timedelta(minutes=5), None),
    ],
)
def test_the_time_signal_fires_within_the_window(delta: timedelta, window: timedelta, expected: float | None) -> None:
    signals = fired(
        statement(create_time=NOON), statement(create_time=NOON + delta), DetectionConfig(time_window=window)
    )
    assert score(signals, TIME) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("first", "second", "bound", "expected"),
    [
        (0.9, 0.5, 0.4, None),  # 0.4 is the bound
        (0.9, 0.49, 0.4, 0.41 / 0.6),
        (0.49, 0.9, 0.4, 0.41 / 0.6),
        (1.0, 0.55, 0.4, 0.75),  # 0.45 / 0.6
        (1.0, 0.4, 0.4, 1.0),  # 0.6 / 0.6
        (1.0, 0.0, 0.4, 1.0),  # 1 / 0.6, at most 1
        (0.3, 0.1 + 0.2, 0.0, None),  # equal but for rounding
        (0.2, 0.1, 0.0, 0.1),
        (1.0, 0.0, 1.0, None),
        (None, 0.9, 0.4, None),
        (0.9, None, 0.4, None),
        (None, None, 0.0, None),
    ],
)
def test_the_importance_signal_is_the_difference_beyond_the_delta(
    first: float | None, second: float | None, bound: float, expected: float | None
) -> None:
    config = DetectionConfig(importance_delta=bound)
    signals = fired(statement(importance=first), statement(importance=second), config)
    assert score(signals, IMPORTANCE) == (None if expected is None else pytest.approx(expected))


def conflicting(memory_id: str = "", user: str = "anna") -> SemanticMemory:
    return statement(
        "x", memory_id, user, keywords=("Tea", "milk"), create_time=NOON, importance=0.95, embedding=(1.0, 0.0)
    )


def opponent(memory_id: str = "stored", user: str = "anna") -> SemanticMemory:
    time = NOON - timedelta(minutes=2)
    return statement("y", memory_id, user, keywords=("TEA",), create_time=time, importance=0.2, embedding=(0.96, 0.28))


def test_signals_name_the_bound_the_overlap_and_the_differences() -> None:
    four = DetectionConfig(signals=frozenset({SEMANTIC, KEYWORD, TIME, IMPORTANCE}))
    (conflict,) = detect_all(conflicting(), [opponent()], four)
    semantic, keyword, time, importance = conflict.signals
    assert (semantic.type, semantic.bound, semantic.keywords) == (SEMANTIC, 0.8, ())
    assert (keyword.type, keyword.bound, keyword.keywords) == (KEYWORD, 0.5, ("tea",))
    assert (time.type, time.bound, time.time_delta) == (TIME, 300.0, timedelta(minutes=2))
    assert (importance.type, importance.bound) == (IMPORTANCE, 0.4)
    assert importance.importance_delta == pytest.approx(0.75)
    # Cosine, all of the smaller set, two of five minutes, and 0.75 of the remaining 0.6, limited to 1.
    assert conflict.severity == pytest.approx(0.96 + 1.0 + 0.6 + 1.0)
    assert conflict.memory_id == "stored"


def test_the_relation_of_the_statements_is_shown_and_counts_only_if_it_is_evaluated() -> None:
    known = statement("Ada drinks milk in the evening.", "stored", embedding=(1.0, 0.0))
    candidate = statement("Ada never drinks milk in the evening.", "new", embedding=(0.7, 0.714))
    conflict = detect(candidate, known, DetectionConfig(keyword_threshold=0.4, signals=frozenset({KEYWORD})))
    assert conflict is not None
    assert [signal.type for signal in conflict.signals] == [KEYWORD]
    assert conflict.relation is not None
    assert conflict.relation.type is RelationType.CONTRADICTS
    related = detect(candidate, known, DetectionConfig(signals=frozenset({RELATION})))
    assert related is not None
    assert related.signals == (Signal(RELATION, conflict.relation.related, 0.3),)
    strict = DetectionConfig(signals=frozenset({RELATION}), relation_threshold=conflict.relation.related)
    assert detect(candidate, known, strict) is None


def test_a_statement_without_an_embedding_has_no_relation() -> None:
    known = statement("Ada drinks milk.", "stored")
    conflict = detect(statement("Ada never drinks milk.", "new"), known, DetectionConfig())
    assert conflict is not None
    assert conflict.relation is None


def test_dissimilar_statements_do_not_conflict_by_their_relation() -> None:
    known = statement("Ada drinks milk.", "stored", embedding=(1.0, 0.0))
    candidate = statement("Ada never drinks milk.", "new", embedding=(0.29, 0.957))
    assert detect(candidate, known, DetectionConfig(signals=frozenset({RELATION}), relation_threshold=0.0)) is None


@pytest.mark.parametrize(("one", "other"), [("The cat is on the table.", "The milk is on the shelf.")])
def test_statements_that_share_only_stop_words_share_no_keywords(one: str, other: str) -> None:
    comparison = compare(statement(one), statement(other))
    assert (comparison.keywords, comparison.smaller_terms) == ((), 2)


@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.6, 1.0])
def test_a_pair_that_a_judge_calls_unrelated_decides_nothing_however_much_it_doubts(confidence: float) -> None:
    known = statement("Ada drinks milk.", "known", embedding=(1.0, 0.0))
    candidate = statement("Ada drinks milk now.", "new", embedding=(0.95, 0.3))
    unrelated = Relation(RelationType.UNRELATED, confidence, 1.0 - confidence, judge="scripted")
    conflict = detect(candidate, known, DetectionConfig(), judged=unrelated)
    assert conflict is not None and conflict.relation is unrelated
    assert {signal.type for signal in conflict.signals} == {SEMANTIC, KEYWORD}
    assert not decide(conflict.signals, DetectionConfig())


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.3, 0.9, 1.0])
def test_a_relation_is_unrelated_unless_it_exceeds_the_threshold_of_the_rule(threshold: float) -> None:
    known = statement("His uncle plays the harp.", "known", embedding=(1.0, 0.0))
    candidate = statement("His nephew plays the harp.", "new", embedding=(0.66, 0.75))
    conflict = detect(candidate, known, DetectionConfig(relation_threshold=threshold))
    assert conflict is not None and conflict.relation is not None
    fired = RELATION in {signal.type for signal in conflict.signals}
    assert fired == (conflict.relation.related > threshold) == (conflict.relation.type is not RelationType.UNRELATED)


@pytest.mark.parametrize("wanted", [frozenset({TIME}), frozenset({SEMANTIC, IMPORTANCE}), frozenset()])
def test_only_requested_signals_count(wanted: frozenset[SignalType]) -> None:
    conflicts = detect_all(conflicting(), [opponent()], DetectionConfig(signals=wanted))
    assert {signal.type for conflict in conflicts for signal in conflict.signals} == wanted


def test_another_users_statement_never_conflicts() -> None:
    assert detect_all(conflicting(), [opponent(user="ben")], DetectionConfig()) == []


def test_a_statement_conflicts_with_those_without_an_id_but_not_with_itself() -> None:
    others = [opponent("same"), opponent("other")]
    assert [found.memory_id for found in detect_all(conflicting("same"), others, DetectionConfig())] == ["other"]
    assert [found.memory_id for found in detect_all(conflicting(""), [opponent("")], DetectionConfig())] == [""]


@given(statements(), statements(), detection_configs())
def test_scores_are_fractions_and_the_severity_is_their_sum(
    first: SemanticMemory, second: SemanticMemory, config: DetectionConfig
) -> None:
    signals = signals_of(compare(first, second), config)
    assert all(0.0 <= signal.score <= 1.0 for signal in signals)
    assert severity(signals) == pytest.approx(sum(signal.score for signal in signals))
    assert [signal.type for signal in signals] == [kind for kind in SignalType if kind in {s.type for s in signals}]


@given(statements(), statements(), detection_configs())
def test_a_comparison_is_symmetric(first: SemanticMemory, second: SemanticMemory, config: DetectionConfig) -> None:
    assert signals_of(compare(first, second), config) == signals_of(compare(second, first), config)


@given(statements(), st.lists(statements(), max_size=6), detection_configs())
def test_conflicts_are_severe_by_their_signals(
    candidate: SemanticMemory, existing: list[SemanticMemory], config: DetectionConfig
) -> None:
    conflicts = detect_all(candidate, existing, config)
    assert all(conflict.signals for conflict in conflicts)
    assert all(conflict.severity == pytest.approx(severity(conflict.signals)) for conflict in conflicts)
