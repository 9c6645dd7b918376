"""Converts protobuf messages to conflicts and decisions."""

from collections.abc import Iterable

from mnemon._enums import members_by_number, words_by_number
from mnemon._messages import documents as convert
from mnemon._values import decisions
from mnemon.v1 import conflicts_pb2
from mnemon.v1 import decisions_pb2 as pb

_ENUMS = pb.DESCRIPTOR.enum_types_by_name
_SIGNALS = members_by_number(decisions.SignalType, _ENUMS["SignalType"])
_RELATIONS = members_by_number(decisions.RelationType, _ENUMS["RelationType"])
_ACTIONS = members_by_number(decisions.ArbitrationAction, _ENUMS["ArbitrationAction"])
_STRATEGIES = members_by_number(decisions.ArbitrationStrategy, _ENUMS["ArbitrationStrategy"])
_FACTORS = words_by_number(pb.FactorType.DESCRIPTOR)
_SIDES = members_by_number(decisions.ArbitrationSide, _ENUMS["ArbitrationSide"])


def conflicts_from_pb(conflicts: Iterable[pb.Conflict]) -> tuple[decisions.Conflict, ...]:
    """The conflicts of messages."""
    return tuple(
        decisions.Conflict(each.memory_id, _signals_from_pb(each.signals), each.severity, _relation_from_pb(each))
        for each in conflicts
    )


def arbitration_from_pb(arbitration: pb.Arbitration) -> decisions.Arbitration:
    """A decision between two statements."""
    return decisions.Arbitration(
        action=_ACTIONS.get(arbitration.action, decisions.ArbitrationAction.UNKNOWN),
        strategy=_STRATEGIES.get(arbitration.strategy, decisions.ArbitrationStrategy.UNKNOWN),
        winner=_SIDES.get(arbitration.winner),
        loser=_SIDES.get(arbitration.loser),
        confidence=arbitration.confidence,
        reason=arbitration.reason,
        factors=tuple(
            decisions.ArbitrationFactor(_FACTORS.get(each.type, "unknown"), each.weight, each.candidate, each.existing)
            for each in arbitration.factors
        ),
    )


def statistics_from_pb(statistics: pb.MergeStatistics) -> decisions.MergeStatistics:
    """What a merge did."""
    return decisions.MergeStatistics(
        content_length=statistics.content_length,
        keywords_count=statistics.keywords_count,
        importance_delta=statistics.importance_delta,
        deduplicated_count=statistics.deduplicated_count,
        guarded_count=statistics.guarded_count,
    )


def decision_from_pb(decision: pb.Decision) -> decisions.Decision:
    """The decision of a message."""
    return decisions.Decision(
        decision_id=decision.decision_id,
        scope=convert.scope_from_pb(decision.scope),
        candidate_id=decision.candidate_id,
        existing_id=decision.existing_id,
        result_id=decision.result_id,
        rule=decision.rule,
        signals=_signals_from_pb(decision.signals),
        conflict_count=decision.conflict_count,
        arbitration=arbitration_from_pb(decision.arbitration),
        merge=statistics_from_pb(decision.merge) if decision.HasField("merge") else None,
        create_time=convert.time_from_pb(decision, "create_time"),
        revert_time=convert.time_from_pb(decision, "revert_time"),
        relation=_relation_from_pb(decision),
    )


def decision_page_from_pb(response: conflicts_pb2.ListDecisionsResponse) -> decisions.DecisionPage:
    """A page of decisions."""
    return decisions.DecisionPage(tuple(map(decision_from_pb, response.decisions)), response.next_page_token)


def _relation_from_pb(message: pb.Conflict | pb.Decision) -> decisions.StatementRelation | None:
    if not message.HasField("relation"):
        return None
    relation = message.relation
    type_ = _RELATIONS.get(relation.type, decisions.RelationType.UNKNOWN)
    return decisions.StatementRelation(type_, relation.probability, relation.judge, relation.reason)


def _signals_from_pb(signals: Iterable[pb.ConflictSignal]) -> tuple[decisions.ConflictSignal, ...]:
    return tuple(
        decisions.ConflictSignal(
            type=_SIGNALS.get(signal.type, decisions.SignalType.UNKNOWN),
            score=signal.score,
            bound=signal.bound,
            keywords=tuple(signal.keywords),
            time_delta_s=signal.time_delta.ToTimedelta().total_seconds() if signal.HasField("time_delta") else None,
            importance_delta=signal.importance_delta if signal.type == pb.SIGNAL_TYPE_IMPORTANCE else None,
        )
        for signal in signals
    )
