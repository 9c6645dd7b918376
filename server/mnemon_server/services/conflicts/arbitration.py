"""Decides which of two statements stands: by importance, recency, source, a weighted score, or else by default.

Each step either decides or leaves the decision to the next one. A value that either side lacks decides nothing.
"""

from collections.abc import Mapping
from datetime import timedelta

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.conflicts import (
    FACTOR_WEIGHTS,
    ArbitrationAction,
    ArbitrationConfig,
    ArbitrationResult,
    ArbitrationSide,
    ArbitrationStrategy,
    DefaultStrategy,
    Factor,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.signals import TOLERANCE, share

RECENCY_HALF_LIFE = timedelta(hours=24)
"""The lead at which the recency of the older statement counts half; also the lead at which recency is certain."""
SOURCE_CONFIDENCE, MERGE_CONFIDENCE, DEFAULT_CONFIDENCE = 0.7, 0.6, 0.5
UNKNOWN_IMPORTANCE = 0.5
SOURCE_PRIORITY_MAX = 10.0

_UNITS = (
    ("days", timedelta(days=1)),
    ("hours", timedelta(hours=1)),
    ("minutes", timedelta(minutes=1)),
    ("seconds", timedelta(seconds=1)),
    ("milliseconds", timedelta(milliseconds=1)),
)

_CANDIDATE, _EXISTING = ArbitrationSide.CANDIDATE, ArbitrationSide.EXISTING
_NAMES = {_CANDIDATE: "candidate", _EXISTING: "existing statement"}


def arbitrate(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig, *, similarity: float | None
) -> ArbitrationResult:
    """Decides which of the two stands, whether they are merged, or whether the candidate is rejected.

    Any two statements have an answer, and always the same one. `similarity` is their cosine; None if it is unknown.
    """
    for step in (_by_importance, _by_recency, _by_source):
        if (result := step(candidate, existing, config)) is not None:
            return result
    return _by_all_factors(_factors(candidate, existing, config, similarity), config)


def no_conflict() -> ArbitrationResult:
    """The answer if there is no conflict."""
    return ArbitrationResult(
        action=ArbitrationAction.NONE,
        strategy=ArbitrationStrategy.NONE,
        confidence=1.0,
        reason="There is no conflict.",
    )


def source_priority(source: str, priorities: Mapping[str, float]) -> float:
    """The priority of a source; 0 if it has none."""
    return priorities.get(source, 0.0)


def _by_importance(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig
) -> ArbitrationResult | None:
    if not config.priority_importance or candidate.importance is None or existing.importance is None:
        return None
    difference = candidate.importance - existing.importance
    if abs(difference) <= TOLERANCE:
        return None
    side = _CANDIDATE if difference > 0.0 else _EXISTING
    more, less = max(candidate.importance, existing.importance), min(candidate.importance, existing.importance)
    return _keep(
        side,
        ArbitrationStrategy.IMPORTANCE,
        min(1.0, 2.0 * abs(difference)),
        f"The {_NAMES[side]} is more important: {more:g} against {less:g}.",
    )


def _by_recency(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig
) -> ArbitrationResult | None:
    lead = _lead(candidate, existing)
    if not config.priority_recency or not lead:
        return None
    side = _CANDIDATE if lead > timedelta() else _EXISTING
    return _keep(
        side,
        ArbitrationStrategy.RECENCY,
        min(1.0, abs(lead) / RECENCY_HALF_LIFE),
        f"The {_NAMES[side]} is newer by {_span(abs(lead))}.",
    )


def _by_source(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig
) -> ArbitrationResult | None:
    priorities = config.source_priority
    difference = source_priority(candidate.source, priorities) - source_priority(existing.source, priorities)
    if not config.priority_source or abs(difference) <= TOLERANCE:
        return None
    side = _CANDIDATE if difference > 0.0 else _EXISTING
    winner, loser = (candidate, existing) if side is _CANDIDATE else (existing, candidate)
    better, other = _named_source(winner.source, priorities), _named_source(loser.source, priorities)
    return _keep(
        side,
        ArbitrationStrategy.SOURCE,
        SOURCE_CONFIDENCE,
        f"The {_NAMES[side]} has the better source: {better} against {other}.",
    )


def _by_all_factors(factors: tuple[Factor, ...], config: ArbitrationConfig) -> ArbitrationResult:
    ours = sum(factor.weight * factor.candidate for factor in factors)
    theirs = sum(factor.weight * factor.existing for factor in factors)
    gap = abs(ours - theirs)
    scores = f"the candidate scores {ours:g}, the existing statement {theirs:g}"
    if config.allow_merge and gap < config.merge_threshold - TOLERANCE:
        return _merge(
            factors, f"They are merged: {scores}, a gap of {gap:g}, which is below {config.merge_threshold:g}."
        )
    if gap <= TOLERANCE:
        return _by_default(factors, config.default_strategy, scores)
    side = _CANDIDATE if ours > theirs else _EXISTING
    bound = f"is not below {config.merge_threshold:g}" if config.allow_merge else "decides, as merging is not allowed"
    reason = f"The {_NAMES[side]} weighs more: {scores}, a gap of {gap:g}, which {bound}."
    return _keep(side, ArbitrationStrategy.MULTI_FACTOR, min(1.0, 0.5 + gap / 2.0), reason, factors)


def _by_default(factors: tuple[Factor, ...], strategy: DefaultStrategy, scores: str) -> ArbitrationResult:
    reason = f"Nothing decides between them, {scores}: the default strategy {strategy.value} does."
    if strategy is not DefaultStrategy.REJECT:
        side = _CANDIDATE if strategy is DefaultStrategy.KEEP_CANDIDATE else _EXISTING
        return _keep(side, ArbitrationStrategy.DEFAULT, DEFAULT_CONFIDENCE, reason, factors)
    return ArbitrationResult(
        action=ArbitrationAction.REJECT,
        strategy=ArbitrationStrategy.DEFAULT,
        confidence=DEFAULT_CONFIDENCE,
        reason=reason,
        factors=factors,
    )


def _merge(factors: tuple[Factor, ...], reason: str) -> ArbitrationResult:
    return ArbitrationResult(
        action=ArbitrationAction.MERGE,
        strategy=ArbitrationStrategy.MULTI_FACTOR,
        confidence=MERGE_CONFIDENCE,
        reason=reason,
        factors=factors,
    )


def _keep(
    winner: ArbitrationSide,
    strategy: ArbitrationStrategy,
    confidence: float,
    reason: str,
    factors: tuple[Factor, ...] = (),
) -> ArbitrationResult:
    return ArbitrationResult(
        action=ArbitrationAction.KEEP,
        strategy=strategy,
        winner=winner,
        loser=_EXISTING if winner is _CANDIDATE else _CANDIDATE,
        confidence=confidence,
        reason=reason,
        factors=factors,
    )


def _factors(
    candidate: SemanticMemory, existing: SemanticMemory, config: ArbitrationConfig, similarity: float | None
) -> tuple[Factor, ...]:
    semantic = share(similarity or 0.0)
    values = {
        "importance": (_importance(candidate), _importance(existing)),
        "recency": _recencies(_lead(candidate, existing)),
        "source": (
            share(source_priority(candidate.source, config.source_priority) / SOURCE_PRIORITY_MAX),
            share(source_priority(existing.source, config.source_priority) / SOURCE_PRIORITY_MAX),
        ),
        "semantic": (semantic, semantic),
    }
    return tuple(
        Factor(name, config.weights.get(name, default), *values[name]) for name, default in FACTOR_WEIGHTS.items()
    )


def _recencies(lead: timedelta | None) -> tuple[float, float]:
    """The recency of the candidate and of the existing statement; if a time is missing, neither is older."""
    if not lead:
        return 1.0, 1.0
    older: float = 0.5 ** (abs(lead) / RECENCY_HALF_LIFE)
    return (1.0, older) if lead > timedelta() else (older, 1.0)


def _lead(candidate: SemanticMemory, existing: SemanticMemory) -> timedelta | None:
    """By how much the candidate is newer; None if that is unknown."""
    if candidate.create_time is None or existing.create_time is None:
        return None
    return timedelta(microseconds=to_microseconds(candidate.create_time) - to_microseconds(existing.create_time))


def _importance(memory: SemanticMemory) -> float:
    return UNKNOWN_IMPORTANCE if memory.importance is None else memory.importance


def _named_source(source: str, priorities: Mapping[str, float]) -> str:
    """A source and its priority. Only configured sources are named: a reason must not contain text of a user."""
    name = source if source in priorities else "another"
    return f"{name} ({source_priority(source, priorities):g})"


def _span(time: timedelta) -> str:
    """A duration in the largest unit of which it has at least two: "36 hours", "143 milliseconds"."""
    name, unit = next((name, unit) for name, unit in _UNITS if time >= 2 * unit or unit is _UNITS[-1][1])
    return f"{time / unit:.4g} {name}"
