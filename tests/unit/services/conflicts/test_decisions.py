"""Decisions can be stored and read, without the words of the statements that they are about."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationResult,
    ArbitrationSide,
    ArbitrationStrategy,
    Decision,
    Factor,
    MergeStatistics,
    Relation,
    RelationType,
    Signal,
    SignalType,
)
from mnemon_server.domain.records import Scope
from mnemon_server.services.semantic.decisions import (
    decision_document,
    decision_from_json,
    decision_to_json,
    stored_decision,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
SIGNALS = st.builds(
    Signal,
    type=st.sampled_from(SignalType),
    score=NUMBERS,
    bound=NUMBERS,
    keywords=st.lists(TEXTS, max_size=3).map(tuple),
    time_delta=st.none() | st.timedeltas(timedelta(), timedelta(days=40_000)),
    importance_delta=st.none() | NUMBERS,
)
ARBITRATIONS = st.builds(
    ArbitrationResult,
    action=st.sampled_from(ArbitrationAction),
    strategy=st.sampled_from(ArbitrationStrategy),
    winner=st.none() | st.sampled_from(ArbitrationSide),
    loser=st.none() | st.sampled_from(ArbitrationSide),
    confidence=NUMBERS,
    reason=TEXTS,
    factors=st.lists(st.builds(Factor, TEXTS, NUMBERS, NUMBERS, NUMBERS), max_size=4).map(tuple),
)
DECISIONS = st.builds(
    Decision,
    decision_id=TEXTS,
    scope=st.builds(Scope, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    candidate_id=TEXTS,
    existing_id=TEXTS,
    result_id=TEXTS,
    rule=TEXTS,
    signals=st.lists(SIGNALS, max_size=4).map(tuple),
    conflict_count=st.integers(0, 10**6),
    arbitration=ARBITRATIONS,
    merge=st.none()
    | st.builds(
        MergeStatistics,
        **dict.fromkeys(("content_length", "keywords_count"), st.integers(0)),
        importance_delta=NUMBERS,
        deduplicated_count=st.integers(0),
        guarded_count=st.integers(0),
    ),
    create_time=st.none() | TIMES,
    revert_time=st.none() | TIMES,
    relation=st.none() | st.builds(Relation, st.sampled_from(RelationType), NUMBERS, NUMBERS, TEXTS, TEXTS),
)


@settings(derandomize=True)
@given(DECISIONS)
def test_a_decision_comes_back_as_stored_without_the_shared_words(decision: Decision) -> None:
    wordless = replace(decision, signals=tuple(replace(signal, keywords=()) for signal in decision.signals))
    assert decision_from_json(decision_to_json(decision)) == wordless
    assert stored_decision(decision_document(decision, decision_to_json(decision))) == wordless


def test_a_decision_from_before_the_guard_and_the_relation_opens_without_them() -> None:
    arbitration = ArbitrationResult(
        action=ArbitrationAction.MERGE, strategy=ArbitrationStrategy.MULTI_FACTOR, confidence=0.6, reason="0.1 apart"
    )
    decision = Decision(
        **dict.fromkeys(("decision_id", "candidate_id", "existing_id", "result_id", "rule"), "x"),
        scope=Scope(user="ada"),
        signals=(),
        conflict_count=1,
        arbitration=arbitration,
        merge=MergeStatistics(content_length=5, keywords_count=2, importance_delta=0.1, deduplicated_count=1),
    )
    written = decision_to_json(decision)
    earlier = written.replace(',"guarded_count":0', "").replace(',"relation":null', "")
    assert earlier != written
    assert decision_from_json(earlier) == decision


def test_the_shared_words_are_not_stored() -> None:
    decision = Decision(
        decision_id="d",
        scope=Scope(user="ada"),
        candidate_id="c",
        existing_id="e",
        result_id="c",
        rule="default",
        signals=(Signal(SignalType.KEYWORD, 0.75, 0.5, keywords=("berlin", "lives")),),
        conflict_count=1,
        arbitration=ArbitrationResult(
            action=ArbitrationAction.KEEP, strategy=ArbitrationStrategy.RECENCY, confidence=1.0, reason="newer"
        ),
    )
    document = decision_document(decision, decision_to_json(decision))
    assert "berlin" not in document.content
    assert json.loads(document.content)["signals"][0]["score"] == 0.75
    assert (document.doc_id, document.scope) == ("d", Scope(user="ada"))
    assert document.fields == {"candidate_id": "c", "existing_id": "e", "result_id": "c"}
