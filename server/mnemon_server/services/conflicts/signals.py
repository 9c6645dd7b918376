"""Compares two statements: how far apart they are, the signals of a conflict, and its severity."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.conflicts import Conflict, DetectionConfig, Relation, RelationType, Signal, SignalType
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.relation_features import FEATURES, features, read
from mnemon_server.services.semantic.terms import terms_of

# How two statements relate to each other, without a language model: a softmax regression over a few features.


WEIGHTS_FILE = Path(__file__).with_name("relation_weights.json")

RELATED_ABOVE = DetectionConfig().relation_threshold
_RELATED = tuple(type_ for type_ in RelationType if type_ is not RelationType.UNRELATED)


@dataclass(frozen=True, slots=True)
class RelationModel:
    """Gives the probabilities of the relations."""

    weights: NDArray[np.float64]
    """In the shape (features and the intercept, types)."""

    def probabilities(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of each RelationType, in their order, in the shape (pairs, types).

        Args:
            inputs: the features of pairs, in the shape (pairs, features).
        """
        odds = inputs @ self.weights[:-1] + self.weights[-1]
        shares = np.exp(odds - odds.max(axis=1, keepdims=True))
        likely: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return likely

    def relate(self, ours: str, theirs: str, cosine: float, *, related_above: float = RELATED_ABOVE) -> Relation | None:
        """The relation of two texts whose vectors have this cosine; None if a text has no telling words."""
        our_reading, their_reading = read(ours), read(theirs)
        if not (our_reading.words and their_reading.words):
            return None
        [likely] = self.probabilities(np.array([features(our_reading, their_reading, cosine)])).tolist()
        return relation_of(dict(zip(RelationType, likely, strict=True)), related_above=related_above)


def relation_of(likely: dict[RelationType, float], *, related_above: float) -> Relation:
    """The likeliest relation; UNRELATED if the other relations together stay below the signal's threshold."""
    related = 1.0 - likely[RelationType.UNRELATED]
    is_related = related > related_above
    type_ = max(_RELATED, key=lambda type_: likely[type_]) if is_related else RelationType.UNRELATED
    return Relation(type_, likely[type_], related)


@cache
def default_relations() -> RelationModel:
    """The model with the weights in the file beside this module."""
    stored = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    rows = [[float(stored[type_][name]) for type_ in RelationType] for name in (*FEATURES, "intercept")]
    return RelationModel(np.array(rows))


RELATION_SIMILARITY_MIN = 0.3
"""The relation signal fires only above this cosine: hardly any less similar statements are about the same thing."""
RELATION_CERTAIN = 0.65
"""Above this, a relation needs no other required signal: "smokes" and "quit smoking" share too little for those."""
TOLERANCE = 1e-7
"""Numbers closer than this are equal. It is the resolution of single precision, and exceeds the errors of sums."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far apart two statements are. A field is None if a side lacks the value, or if the values do not compare."""

    similarity: float | None
    """Cosine, -1 to 1."""
    keywords: tuple[str, ...]
    """The terms that both have, sorted."""
    smaller_terms: int
    """The number of terms of the side that has fewer."""
    time_delta: timedelta | None
    importance_delta: float | None
    relation: Relation | None


def compare(
    candidate: SemanticMemory,
    existing: SemanticMemory,
    *,
    judged: Relation | None = None,
    related_above: float = RELATED_ABOVE,
) -> Comparison:
    """How far apart two statements are. Their embeddings need not be of unit length.

    They are unrelated unless the relation model gives the other relations a probability above `related_above`.
    """
    ours, theirs = (terms_of(each.keywords, each.content) for each in (candidate, existing))
    similarity = _cosine(candidate.embedding, existing.embedding)
    return Comparison(
        similarity=similarity,
        keywords=tuple(sorted(ours & theirs)),
        smaller_terms=min(len(ours), len(theirs)),
        time_delta=_time_delta(candidate, existing),
        importance_delta=_importance_delta(candidate, existing),
        relation=judged or _relation(candidate, existing, similarity, related_above),
    )


def signals_of(comparison: Comparison, config: DetectionConfig) -> tuple[Signal, ...]:
    """The signals that fire, at most one of each type, in the order of SignalType.

    Thresholds must be exceeded; the time window includes its ends.
    """
    fired = (
        _semantic(comparison, config),
        _keyword(comparison, config),
        _time(comparison, config),
        _importance(comparison, config),
        _related(comparison, config),
    )
    return tuple(signal for signal in fired if signal is not None and signal.type in config.signals)


def decide(signals: Iterable[Signal], config: DetectionConfig) -> bool:
    """Whether a save acts on a conflict with these signals.

    One that is required must have fired. If the relation is among those, it must have fired in any case, so that
    statements which can both be true are kept, however many words or minutes they share.
    """
    fired = {signal.type: signal.score for signal in signals}
    required = config.deciding_signals
    if SignalType.RELATION not in required:
        return not required.isdisjoint(fired)
    if SignalType.RELATION not in fired:
        return False
    others = required - {SignalType.RELATION}
    return not others or not others.isdisjoint(fired) or exceeds(fired[SignalType.RELATION], RELATION_CERTAIN)


def severity(signals: Iterable[Signal]) -> float:
    """The sum of the scores."""
    return sum((signal.score for signal in signals), 0.0)


def detect(
    candidate: SemanticMemory, existing: SemanticMemory, config: DetectionConfig, *, judged: Relation | None = None
) -> Conflict | None:
    """The conflict of two statements; None for different users, for the same statement, or if no deciding signal fired.

    By default, being learnt at the same time or differing in importance does not make a conflict. What was
    judged takes the place of what the relation model says.
    """
    if candidate.scope.user != existing.scope.user or (candidate.memory_id == existing.memory_id != ""):
        return None
    comparison = compare(candidate, existing, judged=judged, related_above=config.relation_threshold)
    signals = signals_of(comparison, config)
    if config.deciding_signals.isdisjoint(signal.type for signal in signals):
        return None
    return Conflict(existing.memory_id, signals, severity(signals), comparison.relation)


def exceeds(value: float, bound: float) -> bool:
    """Whether the value is above the bound by more than a rounding error."""
    return value > bound + TOLERANCE


def _semantic(comparison: Comparison, config: DetectionConfig) -> Signal | None:
    cosine, bound = comparison.similarity, config.semantic_threshold
    if cosine is None or not exceeds(cosine, bound):
        return None
    return Signal(SignalType.SEMANTIC, share(cosine), bound)


def _keyword(comparison: Comparison, config: DetectionConfig) -> Signal | None:
    keywords, bound = comparison.keywords, config.keyword_threshold
    if not comparison.smaller_terms:
        return None
    overlap = len(keywords) / comparison.smaller_terms
    return Signal(SignalType.KEYWORD, share(overlap), bound, keywords=keywords) if exceeds(overlap, bound) else None


def _time(comparison: Comparison, config: DetectionConfig) -> Signal | None:
    delta, window = comparison.time_delta, config.time_window
    if delta is None or delta > window:
        return None
    # A window of length 0 contains only the same moment.
    score = 1.0 - delta / window if window else 1.0
    return Signal(SignalType.TIME, share(score), window.total_seconds(), time_delta=delta)


def _importance(comparison: Comparison, config: DetectionConfig) -> Signal | None:
    delta, bound = comparison.importance_delta, config.importance_delta
    if delta is None or not exceeds(delta, bound):
        return None
    score = delta / (1.0 - bound) if bound < 1.0 else 1.0
    return Signal(SignalType.IMPORTANCE, share(score), bound, importance_delta=delta)


def _related(comparison: Comparison, config: DetectionConfig) -> Signal | None:
    relation, bound = comparison.relation, config.relation_threshold
    # An unsure judge leaves some probability for the other relations.
    if relation is None or relation.type is RelationType.UNRELATED or not exceeds(relation.related, bound):
        return None
    if comparison.similarity is None or not exceeds(comparison.similarity, RELATION_SIMILARITY_MIN):
        return None
    return Signal(SignalType.RELATION, share(relation.related), bound)


def share(score: float) -> float:
    """The score, within 0 to 1."""
    return min(1.0, max(0.0, score))


def _relation(
    candidate: SemanticMemory, existing: SemanticMemory, similarity: float | None, related_above: float
) -> Relation | None:
    if similarity is None:
        return None
    return default_relations().relate(candidate.content, existing.content, similarity, related_above=related_above)


def _time_delta(candidate: SemanticMemory, existing: SemanticMemory) -> timedelta | None:
    if candidate.create_time is None or existing.create_time is None:
        return None
    return timedelta(microseconds=abs(to_microseconds(candidate.create_time) - to_microseconds(existing.create_time)))


def _importance_delta(candidate: SemanticMemory, existing: SemanticMemory) -> float | None:
    if candidate.importance is None or existing.importance is None:
        return None
    return abs(candidate.importance - existing.importance)


def _cosine(first: Sequence[float] | None, second: Sequence[float] | None) -> float | None:
    if first is None or second is None or len(first) != len(second):
        return None
    ours, theirs = direction(first), direction(second)
    if ours is None or theirs is None:
        return None
    return min(1.0, max(-1.0, float(ours @ theirs)))


def direction(vector: Sequence[float]) -> NDArray[np.float64] | None:
    """The vector with unit length; None if it is empty, all zeros or not finite."""
    numbers = np.asarray(vector, np.float64)
    greatest = float(np.abs(numbers).max(initial=0.0))
    if greatest == 0.0 or not math.isfinite(greatest):
        return None
    # Divided by its greatest number first, so that squares do not overflow or underflow.
    scaled = numbers / greatest
    return np.asarray(scaled / math.sqrt(float(scaled @ scaled)), np.float64)
