"""Statements, conflicts and decisions are converted to messages and back without loss."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, conflicts_pb2, decisions_pb2, errors_pb2
from mnemon.v1 import semantic_pb2 as pb
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationResult,
    ArbitrationSide,
    ArbitrationStrategy,
    Conflict,
    ContentStrategy,
    Decision,
    DecisionPage,
    Factor,
    MergeStatistics,
    Relation,
    RelationType,
    Signal,
    SignalType,
)
from mnemon_server.domain.errors import ThrottledError
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope, SearchMode, View, WriteOutcome, WriteReceipt
from mnemon_server.domain.semantic import (
    Arbitrated,
    ConflictPolicy,
    DeletedSemantic,
    Detected,
    IndexState,
    IndexStatus,
    MemoryRef,
    MergedMemories,
    SavedSemantic,
    SaveSemantic,
    SemanticFilter,
    SemanticMatch,
    SemanticMemory,
    SemanticPage,
    SimilarAnswer,
    SimilarityDiagnostics,
    SimilarQuery,
    Snapshot,
    Unmerged,
)
from mnemon_server.transport.convert import conflicts
from mnemon_server.transport.convert import conflicts as convert_conflicts
from mnemon_server.transport.convert import semantic as convert
from mnemon_server.transport.convert import semantic as requests
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.convert.shared.results import with_results
from mnemon_server.transport.status import Failure

LEARNT, CHANGED, REVERTED = (datetime(2026, 1, day, 3, 4, 5, 678, UTC) for day in (1, 2, 3))
MEMORY = SemanticMemory(
    memory_id="s-1",
    content="Ada lives in Berlin.",
    summary="lives in Berlin",
    scope=Scope("ada", "home", "butler", "claude", "trip"),
    importance=0.75,
    keywords=("Berlin", "home"),
    source="user",
    metadata={"topic": "home", "rank": 5, "sure": 0.5, "open": False, "tags": ("a", "b"), "seen": LEARNT},
    create_time=LEARNT,
    update_time=CHANGED,
    revision=4,
    merged_from=("s-2", "s-3"),
    superseded_by="s-4",
    embedding=(0.6, 0.8),
)
RECEIPT = WriteReceipt("s-1", WriteOutcome.CREATED, 1, LEARNT)
SIGNALS = (
    Signal(SignalType.SEMANTIC, 0.9, 0.8),
    Signal(SignalType.KEYWORD, 1.0, 0.5, keywords=("berlin", "home")),
    Signal(SignalType.TIME, 0.5, 300.0, time_delta=timedelta(seconds=150, microseconds=1)),
    Signal(SignalType.IMPORTANCE, 0.25, 0.4, importance_delta=0.55),
)
RELATION = Relation(RelationType.UPDATES, 0.75, 0.875, "a judge", "it says so")
CONFLICT = Conflict("s-2", SIGNALS, 2.65, RELATION)
KEPT = ArbitrationResult(
    action=ArbitrationAction.KEEP,
    strategy=ArbitrationStrategy.MULTI_FACTOR,
    winner=ArbitrationSide.CANDIDATE,
    loser=ArbitrationSide.EXISTING,
    confidence=0.625,
    reason="0.7 against 0.45",
    factors=(Factor("importance", 0.4, 1.0, 0.5),),
)
STATISTICS = MergeStatistics(
    content_length=42, keywords_count=3, importance_delta=0.1, deduplicated_count=2, guarded_count=1
)
DECISION = Decision(
    decision_id="d-1",
    scope=Scope(user="ada"),
    candidate_id="s-1",
    existing_id="s-2",
    result_id="s-1",
    rule="household",
    signals=SIGNALS[:1],
    conflict_count=3,
    arbitration=KEPT,
    merge=STATISTICS,
    create_time=LEARNT,
    revert_time=REVERTED,
    relation=RELATION,
)


def message_of(memory: SemanticMemory) -> pb.SemanticMemory:
    """The statement as it is received."""
    message = pb.SemanticMemory()
    convert.fill_memory(message, memory)
    return pb.SemanticMemory.FromString(message.SerializeToString())


def test_a_statement_is_written_completely() -> None:
    message = message_of(MEMORY)
    assert (message.memory_id, message.content, message.summary) == ("s-1", "Ada lives in Berlin.", "lives in Berlin")
    scope = message.scope
    assert (scope.user, scope.household, scope.persona, scope.agent, scope.project) == (
        "ada", "home", "butler", "claude", "trip",
    )  # fmt: skip
    assert (message.importance, list(message.keywords), message.source) == (0.75, ["Berlin", "home"], "user")
    assert message.create_time.ToDatetime(UTC) == LEARNT
    assert message.update_time.ToDatetime(UTC) == CHANGED
    assert (message.revision, list(message.merged_from), message.superseded_by) == (4, ["s-2", "s-3"], "s-4")
    assert list(message.embedding) == pytest.approx([0.6, 0.8])


def test_only_fields_that_a_caller_may_set_are_read_from_a_statement() -> None:
    taken = replace(
        MEMORY, memory_id="", update_time=SemanticMemory("", "").update_time, revision=0, merged_from=(),
        superseded_by="", embedding=None,
    )  # fmt: skip
    reader = Reader()
    assert requests.read_statement(reader, "memory", message_of(MEMORY)) == taken
    assert requests.read_statement(reader, "memory", pb.SemanticMemory(content="a")) == SemanticMemory("", "a")
    assert not reader.violations


def test_missing_fields_of_a_statement_are_left_out_and_zero_is_kept() -> None:
    message = message_of(SemanticMemory("", "text"))
    assert not any(message.HasField(field) for field in ("scope", "importance", "create_time", "update_time"))
    assert message_of(SemanticMemory("", "text", importance=0.0)).HasField("importance")


def test_a_save_is_read_completely() -> None:
    message = pb.SaveSemanticMemoryRequest(
        memory=pb.SemanticMemory(content="a", scope={"user": "ada"}),
        embedding=[0.5, 0.25],
        conflict_policy=pb.CONFLICT_POLICY_RESOLVE,
        rule="household",
        request_id="once",
    )
    request = requests.read_save(message)
    assert list(request.embedding or ()) == [0.5, 0.25]
    assert replace(request, embedding=None) == SaveSemantic(
        memory=SemanticMemory("", "a", scope=Scope(user="ada")),
        conflict_policy=ConflictPolicy.RESOLVE,
        rule="household",
        request_id="once",
    )
    bare = requests.read_save(pb.SaveSemanticMemoryRequest(memory={}))
    assert (bare.embedding, bare.conflict_policy) == (None, ConflictPolicy.IGNORE)


@pytest.mark.parametrize("policy", list(ConflictPolicy))
def test_every_policy_has_a_number(policy: ConflictPolicy) -> None:
    assert requests.CONFLICT_POLICIES[pb.ConflictPolicy.Value(f"CONFLICT_POLICY_{policy.name}")] is policy


def test_a_search_is_read_with_its_defaults_and_completely() -> None:
    assert requests.read_search(pb.SearchSimilarRequest()) == SimilarQuery()
    assert (SimilarQuery().top_k, SimilarQuery().min_similarity, SimilarQuery().mode) == (3, None, None)
    condition = common_pb2.Condition(
        field="source", comparator=common_pb2.COMPARATOR_EQ, values=[common_pb2.MetadataValue(string_value="user")]
    )
    message = pb.SearchSimilarRequest(
        query="home",
        limit=7,
        min_score=0.0,
        filter=pb.SemanticMemoryFilter(
            scope={"persona": "butler"},
            created={"start_time": Timestamp(seconds=60), "end_time": Timestamp(seconds=120)},
            filter=common_pb2.Filter(condition=condition),
        ),
        view=common_pb2.VIEW_FULL,
        mode=common_pb2.SEARCH_MODE_VECTOR,
    )
    where = SemanticFilter(
        scope=Scope(persona="butler"),
        created_from=datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
        created_to=datetime(1970, 1, 1, 0, 2, tzinfo=UTC),
        expression=Condition("source", Operator.EQ, ("user",)),
    )
    assert requests.read_search(message) == SimilarQuery(
        text="home", mode=SearchMode.VECTOR, top_k=7, min_similarity=0.0, where=where, view=View.FULL
    )


def test_an_acknowledgement_carries_the_statement_the_decision_and_the_conflicts() -> None:
    saved = SavedSemantic(memory=MEMORY, receipt=RECEIPT, duplicate=True, conflicts=(CONFLICT,), decision=DECISION)
    message = convert.saved_to_pb(saved)
    assert message.memory == message_of(MEMORY)
    assert (message.receipt.id, message.receipt.revision, message.duplicate) == ("s-1", 1, True)
    assert [conflict.memory_id for conflict in message.conflicts] == ["s-2"]
    assert message.decision.decision_id == "d-1"
    rejected = convert.saved_to_pb(SavedSemantic(memory=None, receipt=None))
    assert not any(rejected.HasField(field) for field in ("memory", "receipt", "decision"))


def test_the_results_of_a_run_have_one_entry_per_statement() -> None:
    failure = Failure.of(ThrottledError("held back", 2.0))
    outcomes = [
        SavedSemantic(memory=MEMORY, receipt=RECEIPT),
        failure,
        SavedSemantic(memory=None, receipt=None, decision=DECISION),
        SavedSemantic(memory=MEMORY, receipt=RECEIPT, duplicate=True),
    ]
    answer = pb.BulkSaveSemanticMemoriesResponse()
    first, second, third, fourth = with_results(answer, outcomes, convert.fill_result).results
    assert (first.saved.receipt.id, first.saved.duplicate, first.saved.decision_id) == ("s-1", False, "")
    assert (second.error.reason, second.error.retry_delay) == (errors_pb2.ERROR_REASON_THROTTLED, Duration(seconds=2))
    assert (third.WhichOneof("outcome"), third.saved.HasField("receipt"), third.saved.decision_id) == (
        "saved", False, "d-1",
    )  # fmt: skip
    assert fourth.saved.duplicate
    convert.fill_result(nothing := pb.SaveSemanticMemoryResult(), SavedSemantic(memory=None, receipt=None))
    assert nothing.WhichOneof("outcome") == "saved"


async def test_answers_and_pages_are_written_completely() -> None:
    diagnostics = SimilarityDiagnostics(
        mode=SearchMode.HYBRID,
        total_candidates=9, filtered_by_context=1, filtered_by_window=2, filtered_by_threshold=3, matched_count=4,
        filtered_count=6, returned=1, exact=True, duration_s=0.25,
    )  # fmt: skip
    matches = (SemanticMatch(MEMORY, 0.875, 0.75, 0.5), SemanticMatch(MEMORY, 0.25, None, 0.25))
    answer = await convert.answer_to_pb(SimilarAnswer(matches, diagnostics))
    assert [match.memory for match in answer.results] == [message_of(MEMORY)] * 2
    assert [match.score for match in answer.results] == [
        common_pb2.Score(relevance=0.875, vector=0.75, keyword=0.5),
        common_pb2.Score(relevance=0.25, keyword=0.25),
    ]
    assert answer.diagnostics == common_pb2.SearchDiagnostics(
        mode=common_pb2.SEARCH_MODE_HYBRID,
        total_candidates=9, filtered_by_context=1, filtered_by_window=2, filtered_by_threshold=3, matched_count=4,
        filtered_count=6, returned=1, exact=True, duration=Duration(nanos=250_000_000),
    )  # fmt: skip
    page = await convert.page_to_pb(SemanticPage((MEMORY, MEMORY), 7), "token")
    assert ([memory.memory_id for memory in page.memories], page.next_page_token) == (["s-1", "s-1"], "token")
    deleted = convert.deleted_to_pb(DeletedSemantic(2, 1, replayed=True))
    assert (deleted.deleted_count, deleted.superseded_count, deleted.replayed) == (2, 1, True)


@pytest.mark.parametrize("state", list(IndexState))
def test_the_status_of_the_index_is_written_completely(state: IndexState) -> None:
    status = IndexStatus(
        state=state, message="half way", record_count=1, superseded_count=2, indexed_count=3, total_count=4, capacity=5,
        write_latency_s=0.5, write_latency_target_s=1.5, memory_bytes=6, graph_count=7, snapshot_time=LEARNT,
    )  # fmt: skip
    snapshot_time = Timestamp()
    snapshot_time.FromDatetime(LEARNT)
    assert convert.status_to_pb(status) == pb.GetIndexStatusResponse(
        state=common_pb2.State.Value(f"STATE_{state.name}"), message="half way", record_count=1, superseded_count=2,
        indexed_count=3, total_count=4, capacity=5, write_latency=Duration(nanos=500_000_000),
        write_latency_target=Duration(seconds=1, nanos=500_000_000), memory_bytes=6, graph_count=7,
        snapshot_time=snapshot_time,
    )  # fmt: skip
    assert not convert.status_to_pb(replace(status, snapshot_time=None)).HasField("snapshot_time")


def test_a_snapshot_was_written_or_has_a_reason_why_not() -> None:
    assert convert.snapshot_to_pb(Snapshot(LEARNT)).snapshot_time.ToDatetime(UTC) == LEARNT
    without = convert.snapshot_to_pb(Snapshot(None, "few"))
    assert (without.HasField("snapshot_time"), without.message) == (False, "few")


def test_conflicts_are_written_with_every_signal_and_its_values() -> None:
    message = convert_conflicts.detected_to_pb(Detected((CONFLICT,), 5, "household"))
    assert (message.total_count, message.rule) == (5, "household")
    [conflict] = message.conflicts
    assert (conflict.memory_id, conflict.severity) == ("s-2", 2.65)
    semantic, keyword, time, importance = conflict.signals
    assert (semantic.type, semantic.score, semantic.bound) == (decisions_pb2.SIGNAL_TYPE_SEMANTIC, 0.9, 0.8)
    assert not semantic.HasField("time_delta")
    assert (keyword.type, list(keyword.keywords)) == (decisions_pb2.SIGNAL_TYPE_KEYWORD, ["berlin", "home"])
    assert (time.type, time.time_delta) == (decisions_pb2.SIGNAL_TYPE_TIME, Duration(seconds=150, nanos=1000))
    assert (importance.type, importance.importance_delta) == (decisions_pb2.SIGNAL_TYPE_IMPORTANCE, 0.55)


def test_a_decision_is_written_completely() -> None:
    [message] = convert_conflicts.decisions_to_pb(DecisionPage((DECISION,), None), "").decisions
    assert (message.decision_id, message.scope.user, message.candidate_id, message.existing_id) == (
        "d-1", "ada", "s-1", "s-2",
    )  # fmt: skip
    assert (message.result_id, message.rule, message.conflict_count) == ("s-1", "household", 3)
    assert [signal.score for signal in message.signals] == [0.9]
    assert message.merge == decisions_pb2.MergeStatistics(
        content_length=42, keywords_count=3, importance_delta=0.1, deduplicated_count=2, guarded_count=1
    )
    assert (message.create_time.ToDatetime(UTC), message.revert_time.ToDatetime(UTC)) == (LEARNT, REVERTED)
    open_one = replace(DECISION, merge=None, create_time=None, revert_time=None)
    [message] = convert_conflicts.decisions_to_pb(DecisionPage((open_one,), None), "").decisions
    assert not any(message.HasField(field) for field in ("merge", "create_time", "revert_time"))


def test_an_arbitration_is_written_completely_and_without_sides_if_it_has_none() -> None:
    message = convert_conflicts.arbitrated_to_pb(Arbitrated(KEPT, "household"))
    assert message.rule == "household"
    assert message.arbitration == decisions_pb2.Arbitration(
        action=decisions_pb2.ARBITRATION_ACTION_KEEP,
        strategy=decisions_pb2.ARBITRATION_STRATEGY_MULTI_FACTOR,
        winner=decisions_pb2.ARBITRATION_SIDE_CANDIDATE,
        loser=decisions_pb2.ARBITRATION_SIDE_EXISTING,
        confidence=0.625,
        reason="0.7 against 0.45",
        factors=[
            decisions_pb2.ArbitrationFactor(
                type=decisions_pb2.FACTOR_TYPE_IMPORTANCE, weight=0.4, candidate=1.0, existing=0.5
            )
        ],
    )
    merged = replace(KEPT, action=ArbitrationAction.MERGE, winner=None, loser=None)
    arbitration = convert_conflicts.arbitrated_to_pb(Arbitrated(merged, "")).arbitration
    assert (arbitration.winner, arbitration.loser) == (0, 0)


@pytest.mark.parametrize("action", list(ArbitrationAction))
@pytest.mark.parametrize("strategy", list(ArbitrationStrategy))
def test_every_action_and_strategy_has_a_number(action: ArbitrationAction, strategy: ArbitrationStrategy) -> None:
    result = replace(KEPT, action=action, strategy=strategy)
    message = convert_conflicts.arbitrated_to_pb(Arbitrated(result, "")).arbitration
    assert decisions_pb2.ArbitrationAction.Name(message.action) == f"ARBITRATION_ACTION_{action.name}"
    assert decisions_pb2.ArbitrationStrategy.Name(message.strategy) == f"ARBITRATION_STRATEGY_{strategy.name}"


@pytest.mark.parametrize("strategy", list(ContentStrategy))
def test_a_merge_is_written_with_its_statistics_even_if_they_are_zero(strategy: ContentStrategy) -> None:
    nothing = MergeStatistics(content_length=0, keywords_count=0, importance_delta=0.0, deduplicated_count=0)
    merged = MergedMemories(
        memory=MEMORY, statistics=nothing, content_strategy=strategy, decision=None, rule="household"
    )
    message = convert_conflicts.merged_to_pb(merged)
    assert (message.memory, message.rule) == (message_of(MEMORY), "household")
    assert decisions_pb2.ContentStrategy.Name(message.content_strategy) == f"CONTENT_STRATEGY_{strategy.name}"
    assert (message.HasField("statistics"), message.HasField("decision")) == (True, False)
    assert convert_conflicts.merged_to_pb(replace(merged, decision=DECISION)).decision.decision_id == "d-1"


def test_an_undo_and_a_preview_are_written_completely() -> None:
    unmerged = convert_conflicts.unmerged_to_pb(
        Unmerged(restored=(MEMORY, MEMORY), removed_id="s-9", decision=DECISION)
    )
    assert ([memory.memory_id for memory in unmerged.restored], unmerged.removed_id) == (["s-1", "s-1"], "s-9")
    assert unmerged.decision.decision_id == "d-1"
    preview = convert_conflicts.preview_to_pb(
        SavedSemantic(memory=MEMORY, receipt=None, duplicate=True, decision=DECISION)
    )
    assert (preview.memory.memory_id, preview.duplicate, preview.decision.rule) == ("s-1", True, "household")
    rejected = convert_conflicts.preview_to_pb(SavedSemantic(memory=None, receipt=None))
    assert (rejected.HasField("memory"), rejected.HasField("decision")) == (False, False)


def test_a_reference_is_an_id_or_a_statement_with_its_embedding() -> None:
    by_id = conflicts_pb2.MemoryReference(memory_id="s-1", expected_revision=7)
    given = conflicts_pb2.MemoryReference(memory=pb.SemanticMemory(content="a", embedding=[0.5, 0.25]))
    arbitration = conflicts_pb2.ArbitrateConflictRequest(candidate=by_id, existing=given)
    assert conflicts.read_arbitration(arbitration) == (
        MemoryRef(memory_id="s-1", expected_revision=7),
        MemoryRef(memory=SemanticMemory("", "a", embedding=(0.5, 0.25))),
        {},
    )
    without = conflicts_pb2.MemoryReference(memory=pb.SemanticMemory(content="a"))
    merge = conflicts_pb2.MergeMemoriesRequest(first=without, second={"memory_id": "s-1"})
    assert conflicts.read_merge(merge) == (
        MemoryRef(memory=SemanticMemory("", "a")), MemoryRef(memory_id="s-1"), {},
    )  # fmt: skip
    preview = conflicts_pb2.PreviewResolutionRequest(memory=given.memory)
    assert conflicts.read_preview(preview) == SemanticMemory("", "a", embedding=(0.5, 0.25))


def test_changes_for_one_call_are_read_in_the_form_of_a_rule() -> None:
    detection = decisions_pb2.DetectionConfig(time_window=Duration(seconds=60), signals=[1, 3])
    candidate = conflicts_pb2.MemoryReference(memory_id="s-1")
    request = conflicts_pb2.DetectConflictsRequest(candidate=candidate, detection=detection, limit=7)
    assert conflicts.read_detection(request) == (
        MemoryRef(memory_id="s-1"), {"time_window_s": 60.0, "signals": ["semantic", "time"]}, 7,
    )  # fmt: skip
    bare = conflicts_pb2.DetectConflictsRequest(candidate=candidate)
    assert conflicts.read_detection(bare) == (MemoryRef(memory_id="s-1"), {}, 100)
