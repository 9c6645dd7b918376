"""Statements keep their types, answers say what happened to them, and a repeated save happens once."""

from datetime import UTC, datetime
from typing import Any

import grpc
import mnemon
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client, F, SemanticMemory
from mnemon._messages.changes import change_from_pb
from mnemon._messages.records import statement_to_pb
from mnemon._messages.translation import read
from mnemon.v1 import changes_pb2, common_pb2, decisions_pb2, errors_pb2, rules_pb2
from mnemon.v1 import semantic_pb2 as pb

from tests.unit.client.scripted_server import BROKEN, scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
DECISION = decisions_pb2.Decision(
    decision_id="d-1",
    scope=common_pb2.Scope(user="ada"),
    candidate_id="m-2",
    existing_id="m-1",
    result_id="m-3",
    rule="default",
    signals=[
        decisions_pb2.ConflictSignal(type=decisions_pb2.SIGNAL_TYPE_SEMANTIC, score=0.9, bound=0.8),
        decisions_pb2.ConflictSignal(
            type=decisions_pb2.SIGNAL_TYPE_TIME, score=0.5, bound=300, time_delta=Duration(seconds=150)
        ),
        decisions_pb2.ConflictSignal(
            type=decisions_pb2.SIGNAL_TYPE_IMPORTANCE, score=0.5, bound=0.4, importance_delta=0.5
        ),
    ],
    conflict_count=2,
    arbitration=decisions_pb2.Arbitration(
        action=decisions_pb2.ARBITRATION_ACTION_KEEP,
        strategy=decisions_pb2.ARBITRATION_STRATEGY_MULTI_FACTOR,
        winner=decisions_pb2.ARBITRATION_SIDE_CANDIDATE,
        loser=decisions_pb2.ARBITRATION_SIDE_EXISTING,
        confidence=0.75,
        reason="0.75 against 0.25",
        factors=[
            decisions_pb2.ArbitrationFactor(
                type=decisions_pb2.FACTOR_TYPE_RECENCY, weight=0.3, candidate=1.0, existing=0.5
            )
        ],
    ),
    merge=decisions_pb2.MergeStatistics(
        content_length=5, keywords_count=2, importance_delta=0.125, deduplicated_count=1, guarded_count=3
    ),
)


@given(
    st.builds(
        SemanticMemory,
        content=TEXTS,
        user=TEXTS,
        household=TEXTS,
        persona=TEXTS,
        agent=TEXTS,
        project=TEXTS,
        summary=TEXTS,
        importance=st.none() | st.floats(0, 1),
        keywords=st.lists(TEXTS, max_size=3).map(tuple),
        source=TEXTS,
        metadata=st.dictionaries(TEXTS, VALUES, max_size=3),
        create_time=st.none() | st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),
        embedding=st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(tuple),
    )
)
def test_a_statement_comes_back_with_its_types(memory: SemanticMemory) -> None:
    sent = statement_to_pb(memory, with_embedding=True)
    back = read(SemanticMemory, pb.SemanticMemory.FromString(sent.SerializeToString()))

    assert back == memory
    assert [type(back.metadata[key]) for key in memory.metadata] == [type(value) for value in memory.metadata.values()]


def test_a_save_sends_its_arguments_and_returns_the_current_statement() -> None:
    def saved(request: pb.SaveSemanticMemoryRequest, context: grpc.ServicerContext) -> pb.SaveSemanticMemoryResponse:
        answer = pb.SaveSemanticMemoryResponse(
            memory=request.memory,
            receipt=common_pb2.WriteReceipt(id="m-1", outcome=common_pb2.WRITE_OUTCOME_CREATED, revision=1),
            conflicts=[decisions_pb2.Conflict(memory_id="m-0", severity=1.5)],
        )
        answer.memory.memory_id = "m-1"
        return answer

    with scripted_server(saved) as (address, server), Client(address) as client:
        answer = client.semantic.add(
            "Ada lives in Berlin.",
            user="ada",
            household="h",
            persona="p",
            importance=0.5,
            keywords=["home"],
            source="user",
            metadata={"n": 5},
            summary="Berlin",
            create_time=NOON,
            embedding=[0.5, 1],
            conflict_policy="detect",
            rule="home",
        )

    [request] = server.requests
    assert list(request.embedding) == [0.5, 1.0]
    assert (request.conflict_policy, request.rule) == (pb.CONFLICT_POLICY_DETECT, "home")
    assert answer.memory == SemanticMemory(
        "Ada lives in Berlin.",
        memory_id="m-1",
        user="ada",
        household="h",
        persona="p",
        importance=0.5,
        keywords=("home",),
        source="user",
        metadata={"n": 5},
        summary="Berlin",
        create_time=NOON,
    )
    assert answer.receipt is not None and answer.receipt.outcome == "created"
    assert answer.conflicts == (mnemon.Conflict("m-0", (), 1.5),)
    assert (answer.memory_id, answer.duplicate, answer.decision) == ("m-1", False, None)


def test_a_rejected_statement_has_no_id_and_no_receipt() -> None:
    with (
        scripted_server(lambda *_: pb.SaveSemanticMemoryResponse(decision=DECISION)) as (address, _),
        Client(address) as client,
    ):
        answer = client.semantic.add("Ada lives in Rome.", user="ada", conflict_policy="resolve")

    assert (answer.memory, answer.receipt, answer.memory_id) == (None, None, "")
    assert answer.decision is not None and answer.decision.decision_id == "d-1"
    assert answer.to_dict()["decision"]["signals"][1]["time_delta_s"] == 150.0


def test_a_decision_has_all_its_fields() -> None:
    decision = read(mnemon.Decision, DECISION)

    assert decision == mnemon.Decision(
        decision_id="d-1",
        scope=mnemon.Scope(user="ada"),
        candidate_id="m-2",
        existing_id="m-1",
        result_id="m-3",
        rule="default",
        signals=(
            mnemon.ConflictSignal(mnemon.SignalType.SEMANTIC, 0.9, 0.8),
            mnemon.ConflictSignal(mnemon.SignalType.TIME, 0.5, 300.0, time_delta_s=150.0),
            mnemon.ConflictSignal(mnemon.SignalType.IMPORTANCE, 0.5, 0.4, importance_delta=0.5),
        ),
        conflict_count=2,
        arbitration=mnemon.Arbitration(
            mnemon.ArbitrationAction.KEEP,
            mnemon.ArbitrationStrategy.MULTI_FACTOR,
            mnemon.ArbitrationSide.CANDIDATE,
            mnemon.ArbitrationSide.EXISTING,
            0.75,
            "0.75 against 0.25",
            (mnemon.ArbitrationFactor("recency", 0.3, 1.0, 0.5),),
        ),
        merge=mnemon.MergeStatistics(5, 2, 0.125, 1, 3),
        create_time=None,
        revert_time=None,
    )
    unknown = read(mnemon.Decision, decisions_pb2.Decision(arbitration={"action": 99}))  # type: ignore[arg-type, dict-item]
    assert (unknown.arbitration.action, unknown.arbitration.winner, unknown.merge) == ("unknown", None, None)


def test_a_search_sends_its_filters_and_reads_the_diagnostics() -> None:
    answer = pb.SearchSimilarResponse(
        results=[
            pb.SemanticMatch(
                memory=pb.SemanticMemory(memory_id="m-1", content="text"),
                score={"relevance": 0.75, "vector": 0.5, "keyword": 0.25},
            ),
            pb.SemanticMatch(score={"relevance": 0.125, "keyword": 0.125}),
        ],
        diagnostics=common_pb2.SearchDiagnostics(
            mode=common_pb2.SEARCH_MODE_HYBRID,
            total_candidates=9,
            filtered_by_context=1,
            filtered_by_window=2,
            filtered_by_threshold=3,
            matched_count=3,
            filtered_count=6,
            returned=1,
            exact=True,
            duration=Duration(nanos=500_000_000),
        ),
    )
    with scripted_server(lambda *_: answer) as (address, server), Client(address) as client:
        found = client.semantic.search(
            "home",
            user="ada",
            created_from=NOON,
            where=F("importance") >= 0.5,
            limit=1,
            min_similarity=0,
            mode="vector",
        )
        client.semantic.search(vector=[1, 0])

    first, second = found
    assert (first.memory_id, first.content, first.score, first.similarity) == ("m-1", "text", 0.75, 0.5)
    assert (second.score, second.similarity, second.keyword_score) == (0.125, None, 0.125)
    assert found.diagnostics == mnemon.SimilarityDiagnostics(
        9, 1, 2, 3, 3, 6, 1, exact=True, duration_s=0.5, mode=mnemon.SearchMode.HYBRID
    )
    scores = {name: found.to_dict()["results"][0][name] for name in ("score", "similarity", "keyword_score")}
    assert scores == {"score": 0.75, "similarity": 0.5, "keyword_score": 0.25}
    request, by_vector = server.requests
    assert (request.limit, request.HasField("min_score"), request.min_score) == (1, True, 0.0)
    assert (request.mode, by_vector.mode) == (common_pb2.SEARCH_MODE_VECTOR, common_pb2.SEARCH_MODE_UNSPECIFIED)
    assert request.filter.scope.user == "ada"
    assert request.filter.created.start_time.ToDatetime(UTC) == NOON
    assert request.filter.filter.condition.field == "importance"
    assert (by_vector.limit, by_vector.HasField("min_score"), by_vector.HasField("filter")) == (3, False, False)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.semantic.add("a", user="u", conflict_policy="merge"), "conflict_policy"),
        (lambda client: client.semantic.add("a", user="u", keywords="tea"), "keywords"),
        (lambda client: client.semantic.add("a", user="u", importance="high"), "importance"),
        (lambda client: client.semantic.add("a", user="u", create_time=datetime(2026, 5, 1)), "create_time"),
        (lambda client: client.semantic.search("a", user=""), "user"),
        (lambda client: client.semantic.search("a", limit=0), "limit"),
        (lambda client: client.semantic.search("a", view="all"), "view"),
        (lambda client: client.semantic.search("a", min_similarity=1.5), "min_similarity"),
        (lambda client: client.semantic.search("a", min_similarity=float("nan")), "min_similarity"),
        (lambda client: client.semantic.search("a", min_similarity=0.5, mode="keyword"), "min_similarity"),
        (lambda client: client.semantic.delete_many("m-1"), "memory_ids"),
        (lambda client: client.conflicts.unmerge(), "target"),
        (lambda client: client.conflicts.unmerge("d-1", memory_id="m-1"), "target"),
        (lambda client: client.conflicts.detect(""), "candidate"),
        (lambda client: client.conflicts.preview("text"), "memory"),
        (lambda client: client.rules.match("text"), "candidate"),
        (lambda client: client.rules.match(mnemon.SemanticMemory("a"), "text"), "existing"),
        (lambda client: client.rules.list_page(order="name"), "order"),
    ],
)
def test_an_invalid_argument_is_refused_by_name(call: Any, field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        call(client)

    assert [violation.field for violation in raised.value.violations] == [field]


def _answers(
    request: pb.BulkSaveSemanticMemoriesRequest, context: grpc.ServicerContext
) -> pb.BulkSaveSemanticMemoriesResponse:
    """One saved, one known, one rejected and one failed, depending on the content."""
    outcomes = {
        "saved": pb.SaveSemanticMemoryResult(saved=pb.SavedSemanticMemory(receipt={"id": "m-1"})),
        "known": pb.SaveSemanticMemoryResult(saved=pb.SavedSemanticMemory(receipt={"id": "m-0"}, duplicate=True)),
        "rejected": pb.SaveSemanticMemoryResult(saved=pb.SavedSemanticMemory(decision_id="d-1")),
        "throttled": pb.SaveSemanticMemoryResult(
            error=common_pb2.ItemError(
                code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
                message="held back",
                reason=errors_pb2.ERROR_REASON_THROTTLED,
            )
        ),
    }
    return pb.BulkSaveSemanticMemoriesResponse(results=[outcomes[each.memory.content] for each in request.requests])


def test_many_statements_get_their_results_in_order_and_a_broken_stream_is_resumed() -> None:
    items: list[Any] = ["saved", SemanticMemory("known", user="bob", embedding=(1.0,)), 5, "rejected", "throttled"]
    with scripted_server(BROKEN, _answers) as (address, server), Client(address) as client:
        results = list(
            client.semantic.add_many(items, scope=mnemon.Scope(user="ada"), conflict_policy="resolve", rule="home")
        )

    assert [(each.position, each.memory_id, each.duplicate, each.decision_id) for each in results] == [
        (0, "m-1", False, ""),
        (1, "m-0", True, ""),
        (2, "", False, ""),
        (3, "", False, "d-1"),
        (4, "", False, ""),
    ]
    assert isinstance(results[2].error, mnemon.InvalidArgumentError)
    assert isinstance(results[4].error, mnemon.ThrottledError)
    assert results[4].to_dict()["error"]["reason"] == "THROTTLED"
    first, again = server.requests
    assert first == again
    assert [each.memory.scope.user for each in first.requests] == ["ada", "bob", "ada", "ada"]
    assert {each.conflict_policy for each in first.requests} == {pb.CONFLICT_POLICY_RESOLVE}
    assert {each.rule for each in first.requests} == {"home"}
    assert list(first.requests[1].embedding) == [1.0]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (changes_pb2.Change(decision=DECISION), read(mnemon.Decision, DECISION)),
        (changes_pb2.Change(rule=rules_pb2.MergeRuleConfig(name="a", priority=3)), {"name": "a", "priority": 3}),
        (
            changes_pb2.Change(
                warning={"severity": "WARNING_SEVERITY_CRITICAL", "message": "full", "remediation": "delete"}
            ),
            mnemon.ServiceWarning("critical", "full", "delete"),
        ),
        (changes_pb2.Change(prune_reason=changes_pb2.SEMANTIC_PRUNE_REASON_MERGED), "merged"),
        (changes_pb2.Change(), None),
    ],
)
def test_an_event_has_its_details(event: changes_pb2.Change, expected: Any) -> None:
    found = change_from_pb(event)

    assert found.details == expected
    assert ("decision_id" in found.to_json()) == isinstance(expected, mnemon.Decision)
