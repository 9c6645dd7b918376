"""Statements, conflicts and decisions are converted to messages and back without loss."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, decisions_pb2, errors_pb2
from mnemon.v1 import semantic_pb2 as pb
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
from mnemon_server.domain.errors import ThrottledError
from mnemon_server.domain.records import PageOf, Scope, WriteOutcome, WriteReceipt
from mnemon_server.domain.semantic import (
    Arbitrated,
    IndexState,
    IndexStatus,
    SavedSemantic,
    SemanticMemory,
)
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


def test_only_fields_that_a_caller_may_set_are_read_from_a_statement() -> None:
    taken = replace(
        MEMORY, memory_id="", update_time=SemanticMemory("", "").update_time, revision=0, merged_from=(),
        superseded_by="", embedding=None,
    )  # fmt: skip
    reader = Reader()
    assert requests.read_statement(reader, "memory", message_of(MEMORY)) == taken
    assert requests.read_statement(reader, "memory", pb.SemanticMemory(content="a")) == SemanticMemory("", "a")
    assert not reader.violations


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


def test_a_decision_is_written_completely() -> None:
    [message] = convert_conflicts.decisions_to_pb(PageOf((DECISION,), None), "").decisions
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
    [message] = convert_conflicts.decisions_to_pb(PageOf((open_one,), None), "").decisions
    assert not any(message.HasField(field) for field in ("merge", "create_time", "revert_time"))


@pytest.mark.parametrize("action", list(ArbitrationAction))
@pytest.mark.parametrize("strategy", list(ArbitrationStrategy))
def test_every_action_and_strategy_has_a_number(action: ArbitrationAction, strategy: ArbitrationStrategy) -> None:
    result = replace(KEPT, action=action, strategy=strategy)
    message = convert_conflicts.arbitrated_to_pb(Arbitrated(result, "")).arbitration
    assert decisions_pb2.ArbitrationAction.Name(message.action) == f"ARBITRATION_ACTION_{action.name}"
    assert decisions_pb2.ArbitrationStrategy.Name(message.strategy) == f"ARBITRATION_STRATEGY_{strategy.name}"
