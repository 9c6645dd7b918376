"""Conflicts, decisions about them, and the statistics of mergers as messages. Clients only read these."""

from collections.abc import Iterable
from typing import Any

from mnemon.v1 import decisions_pb2 as pb

from mnemon_server.domain.conflicts import (
    FACTOR_WEIGHTS,
    ArbitrationAction,
    ArbitrationResult,
    ArbitrationSide,
    ArbitrationStrategy,
    Conflict,
    ContentStrategy,
    Decision,
    MergeStatistics,
    Relation,
    RelationType,
    Signal,
    SignalType,
)
from mnemon_server.wire.enums import numbers_of
from mnemon_server.wire.values import duration_to_pb, fill_scope, fill_time

_SIGNALS_TO_PB = numbers_of(pb.SignalType, SignalType)
_RELATIONS_TO_PB = numbers_of(pb.RelationType, RelationType)
_ACTIONS_TO_PB = numbers_of(pb.ArbitrationAction, ArbitrationAction)
_STRATEGIES_TO_PB = numbers_of(pb.ArbitrationStrategy, ArbitrationStrategy)
_FACTORS_TO_PB = {name: pb.FactorType.Value(f"FACTOR_TYPE_{name.upper()}") for name in FACTOR_WEIGHTS}
_SIDES_TO_PB = numbers_of(pb.ArbitrationSide, ArbitrationSide)
CONTENT_STRATEGIES_TO_PB = numbers_of(pb.ContentStrategy, ContentStrategy)


def fill_conflicts(target: Any, conflicts: Iterable[Conflict], room: int) -> bool:
    """Writes conflicts into a repeated field, in their order and up to `room` bytes; returns whether there are more."""
    for conflict in conflicts:
        message = target.add()
        message.memory_id = conflict.memory_id
        message.severity = conflict.severity
        _fill_relation(message, conflict.relation)
        _fill_signals(message.signals, conflict.signals)
        room -= message.ByteSize()
        if room < 0:
            del target[-1]
            return True
    return False


def fill_arbitration(target: pb.Arbitration, result: ArbitrationResult) -> None:
    """Writes a decision between two statements into a message of its own."""
    target.action = _ACTIONS_TO_PB[result.action]
    target.strategy = _STRATEGIES_TO_PB[result.strategy]
    if result.winner is not None:
        target.winner = _SIDES_TO_PB[result.winner]
    if result.loser is not None:
        target.loser = _SIDES_TO_PB[result.loser]
    target.confidence = result.confidence
    target.reason = result.reason
    for factor in result.factors:
        type_ = _FACTORS_TO_PB.get(factor.name, pb.FACTOR_TYPE_UNSPECIFIED)
        target.factors.add(type=type_, weight=factor.weight, candidate=factor.candidate, existing=factor.existing)


def fill_statistics(target: pb.MergeStatistics, statistics: MergeStatistics) -> None:
    """Writes what a merge did into a message of its own."""
    # The message is set even if all of its fields are 0.
    target.SetInParent()
    target.content_length = statistics.content_length
    target.keywords_count = statistics.keywords_count
    target.importance_delta = statistics.importance_delta
    target.deduplicated_count = statistics.deduplicated_count
    target.guarded_count = statistics.guarded_count


def fill_decision(target: pb.Decision, decision: Decision) -> None:
    """Writes a decision into a message of its own."""
    target.decision_id = decision.decision_id
    fill_scope(target, decision.scope)
    target.candidate_id = decision.candidate_id
    target.existing_id = decision.existing_id
    target.result_id = decision.result_id
    target.rule = decision.rule
    _fill_signals(target.signals, decision.signals)
    target.conflict_count = decision.conflict_count
    fill_arbitration(target.arbitration, decision.arbitration)
    if decision.merge is not None:
        fill_statistics(target.merge, decision.merge)
    fill_time(target.create_time, decision.create_time)
    fill_time(target.revert_time, decision.revert_time)
    _fill_relation(target, decision.relation)


def _fill_relation(target: pb.Conflict | pb.Decision, relation: Relation | None) -> None:
    if relation is not None:
        target.relation.type = _RELATIONS_TO_PB[relation.type]
        target.relation.probability = relation.probability
        target.relation.judge = relation.judge
        target.relation.reason = relation.reason


def _fill_signals(target: Any, signals: Iterable[Signal]) -> None:
    for signal in signals:
        message = target.add()
        message.type = _SIGNALS_TO_PB[signal.type]
        message.score = signal.score
        message.bound = signal.bound
        message.keywords.extend(signal.keywords)
        if signal.time_delta is not None:
            message.time_delta.CopyFrom(duration_to_pb(signal.time_delta.total_seconds()))
        if signal.importance_delta is not None:
            message.importance_delta = signal.importance_delta
