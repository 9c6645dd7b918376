"""Decisions as JSON and as stored documents, in both directions, and the filters that list them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import DECISIONS
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
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.filters import AnyOf, Condition, Expression, Operator, RecordFilter
from mnemon_server.domain.records import Scope

MICROSECOND = timedelta(microseconds=1)
ABOUT = ("candidate_id", "existing_id", "result_id")
"""The fields of a decision that name its statements."""


def decision_to_json(decision: Decision) -> str:
    """The decision without the words that both statements share: it outlives them, and must not hold their text."""
    values = asdict(decision) | {
        "scope": {name: text for name in SCOPE_FIELDS if (text := getattr(decision.scope, name))},
        "signals": [_signal_values(signal) for signal in decision.signals],
        "create_time": decision.create_time and to_microseconds(decision.create_time),
        "revert_time": decision.revert_time and to_microseconds(decision.revert_time),
    }
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def decision_from_json(text: str) -> Decision:
    """The decision that `decision_to_json` wrote."""
    values = json.loads(text)
    return Decision(
        **{name: values[name] for name in ("decision_id", *ABOUT, "rule", "conflict_count")},
        scope=Scope(**values["scope"]),
        signals=tuple(map(_signal, values["signals"])),
        arbitration=_arbitration(values["arbitration"]),
        merge=MergeStatistics(**values["merge"]) if values["merge"] else None,
        create_time=_time(values["create_time"]),
        revert_time=_time(values["revert_time"]),
        relation=relation_of_values(values.get("relation")),
    )


def without_reason(decision: Decision) -> Decision:
    """The decision without what a judge wrote."""
    if decision.relation is None:
        return decision
    return replace(decision, relation=replace(decision.relation, reason=""))


def decision_document(decision: Decision, text: str) -> Document:
    """The stored document of a decision whose JSON is `text`."""
    return Document(
        decision.decision_id,
        text,
        scope=decision.scope,
        fields={name: getattr(decision, name) for name in ABOUT},
    )


@reads(DECISIONS)
def stored_decision(document: Document) -> Decision:
    """The decision of a stored document."""
    return decision_from_json(document.content)


def decisions_about(memory_id: str) -> Expression:
    """Matches the decisions that name this statement as candidate, existing one or result."""
    return AnyOf(tuple(Condition(name, Operator.EQ, (memory_id,)) for name in ABOUT))


def decision_filter(*, user: str = "", memory_id: str = "") -> RecordFilter:
    """The decisions of a user about a statement; an empty argument matches all."""
    return RecordFilter(scope=Scope(user=user), expression=decisions_about(memory_id) if memory_id else None)


def relation_values(relation: Relation | None) -> dict[str, Any] | None:
    """A relation as JSON."""
    return asdict(relation) if relation else None


def relation_of_values(values: Mapping[str, Any] | None) -> Relation | None:
    """The relation that `relation_values` wrote."""
    return Relation(**{**values, "type": RelationType(values["type"])}) if values else None


def _signal_values(signal: Signal) -> dict[str, Any]:
    delta = signal.time_delta
    return {
        "type": signal.type,
        "score": signal.score,
        "bound": signal.bound,
        "time_delta_us": None if delta is None else delta // MICROSECOND,
        "importance_delta": signal.importance_delta,
    }


def _signal(values: Mapping[str, Any]) -> Signal:
    delta = values["time_delta_us"]
    return Signal(
        SignalType(values["type"]),
        values["score"],
        values["bound"],
        time_delta=None if delta is None else delta * MICROSECOND,
        importance_delta=values["importance_delta"],
    )


def _arbitration(values: Mapping[str, Any]) -> ArbitrationResult:
    return ArbitrationResult(
        action=ArbitrationAction(values["action"]),
        strategy=ArbitrationStrategy(values["strategy"]),
        winner=ArbitrationSide(values["winner"]) if values["winner"] else None,
        loser=ArbitrationSide(values["loser"]) if values["loser"] else None,
        confidence=values["confidence"],
        reason=values["reason"],
        factors=tuple(Factor(**factor) for factor in values["factors"]),
    )


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)
