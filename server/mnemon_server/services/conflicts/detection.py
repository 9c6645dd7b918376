"""Finds conflicts through the index: what it proposes is compared exactly, and only what is returned is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.conflicts import Conflict, DetectionConfig, SignalType
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.engines.promises.related import NO_TIME, RelatedDocuments, RelatedQuery
from mnemon_server.services.conflicts.signals import RELATION_SIMILARITY_MIN, TOLERANCE, decide, detect
from mnemon_server.services.semantic.resolver import NOT_JUDGED, Judged
from mnemon_server.services.semantic.stored_form import to_semantic
from mnemon_server.services.semantic.terms import terms_of

# The severities of many conflicts: what `signals` computes for one comparison, for whole columns of numbers.


_MICROSECOND = timedelta(microseconds=1)

Fired = NDArray[np.bool_]
Scores = NDArray[np.float64]

_NONE: tuple[Fired, Scores] = (np.zeros(1, np.bool_), np.zeros(1))
"""A signal that never fires."""


@dataclass(frozen=True, slots=True)
class Severities:
    """Which of several statements conflict with a candidate, and how severely: two arrays of the same length."""

    conflicting: Fired
    severities: Scores


def severities_of(
    candidate: SemanticMemory,
    own_terms: int,
    related: RelatedDocuments,
    config: DetectionConfig,
) -> Severities:
    """The same results as `signals_of` and `severity`, except for rounding errors in the similarities of the index.

    The relation signal does not fire here, because it depends on texts. `own_terms` is the number of the candidate's.
    """
    conflicting, severities = np.zeros(len(related), np.bool_), np.zeros(len(related))
    columns = {
        SignalType.SEMANTIC: lambda: _semantic(related, config),
        SignalType.KEYWORD: lambda: _keyword(own_terms, related, config),
        SignalType.TIME: lambda: _time(candidate, related, config),
        SignalType.IMPORTANCE: lambda: _importance(candidate, related, config),
        SignalType.RELATION: lambda: _NONE,
    }
    # In the order of SignalType, as `severity` adds them.
    for signal in SignalType:
        fired, scores = columns[signal]() if signal in config.signals else _NONE
        if signal in config.deciding_signals:
            conflicting |= fired
        severities += np.where(fired, np.clip(scores, 0.0, 1.0), 0.0)
    return Severities(conflicting, severities)


def _semantic(related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    return related.similarities > config.semantic_threshold + TOLERANCE, related.similarities


def _keyword(own_terms: int, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    # If neither side has terms, none are shared.
    smaller = np.maximum(np.minimum(related.term_counts, own_terms), 1)
    overlap = related.shared_terms / smaller
    return (related.shared_terms > 0) & (overlap > config.keyword_threshold + TOLERANCE), overlap


def _time(candidate: SemanticMemory, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    if candidate.create_time is None:
        return _NONE
    time, window = to_microseconds(candidate.create_time), config.time_window // _MICROSECOND
    known = related.times != NO_TIME
    deltas = np.abs(np.where(known, related.times, time) - time)
    return known & (deltas <= window), 1.0 - deltas / max(window, 1)


def _importance(candidate: SemanticMemory, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    if candidate.importance is None:
        return _NONE
    deltas, bound = np.abs(related.numbers - candidate.importance), config.importance_delta
    return deltas > bound + TOLERANCE, deltas / (1.0 - bound) if bound < 1.0 else np.ones(len(related))


ROUNDING = 1e-5
"""The largest error of a similarity that the index computed."""
RELATIONS_MAX = 32
"""Most statements whose relation to the candidate is computed for the relation signal: the most similar ones."""
LOADED_MAX = 100
"""Most statements loaded beyond the requested ones because they are as severe as the last of those."""

BY_VECTOR = frozenset({SignalType.SEMANTIC, SignalType.RELATION})
"""The signals that compare embeddings."""


@dataclass(frozen=True, slots=True)
class Opponent:
    """A conflict, and the stored statement that conflicts."""

    conflict: Conflict
    memory: SemanticMemory


@dataclass(frozen=True, slots=True)
class Found:
    """The most severe conflicts, and the number of all conflicts."""

    opponents: tuple[Opponent, ...]
    total_count: int


@dataclass(frozen=True, slots=True)
class Examined:
    """A candidate, and what it is compared with."""

    reader: DocumentReader
    candidate: SemanticMemory
    config: DetectionConfig
    deciding: bool
    judged: Judged

    def opponents(self, doc_ids: Sequence[str]) -> list[Opponent | None]:
        """The exact conflict with each of these statements; None if there is none."""
        loaded = self.reader.get_documents(doc_ids, vectors=True) if doc_ids else []
        return [self._opponent(to_semantic(stored)) if stored else None for stored in loaded]

    def _opponent(self, existing: SemanticMemory) -> Opponent | None:
        revision, relation = self.judged.get(existing.memory_id, (0, None))
        judged = relation if revision == existing.revision else None
        conflict = detect(self.candidate, existing, self.config, judged=judged)
        if conflict is None or (self.deciding and not decide(conflict.signals, self.config)):
            return None
        return Opponent(conflict, existing)


def find_conflicts(
    reader: DocumentReader,
    candidate: SemanticMemory,
    config: DetectionConfig,
    *,
    limit: int,
    deciding: bool = False,
    judged: Judged = NOT_JUDGED,
) -> Found:
    """The conflicts of a candidate whose time is set, most severe first; equal ones in the order of saving.

    If `deciding`, only those that a save acts on. What was `judged` of the present
    revision of a statement takes the place of what the relation model says.

    The result is the same as from a comparison with every visible statement of its user, household and persona, at the
    cost of an index: it loads only the `limit` statements that it returns, and any that rounding might place among
    them. The relation signal is the exception: it needs texts, and considers only the RELATIONS_MAX most similar
    statements.
    """
    terms = terms_of(candidate.keywords, candidate.content)
    related = reader.related_documents(_query(candidate, terms, config))
    rated = severities_of(candidate, len(terms), related, config)
    examined = Examined(reader, candidate, config, deciding, judged)
    _settle_doubts(examined, related, rated)
    places = _most_severe(rated, limit)
    opponents = _load(examined, [related.doc_ids[place] for place in places])
    return Found(tuple(opponents[:limit]), int(np.count_nonzero(rated.conflicting)))


def _query(candidate: SemanticMemory, terms: frozenset[str], config: DetectionConfig) -> RelatedQuery:
    """A query for slightly more than the conflicts, so that rounding loses none; only deciding signals find any."""
    scope, deciding = candidate.scope, config.deciding_signals
    compared = not config.signals.isdisjoint(BY_VECTOR) and candidate.embedding is not None
    thresholds = {SignalType.SEMANTIC: config.semantic_threshold, SignalType.RELATION: RELATION_SIMILARITY_MIN}
    bounds = [threshold for signal, threshold in thresholds.items() if signal in deciding]
    importance_apart = max(0.0, config.importance_delta - ROUNDING)
    return RelatedQuery(
        user=scope.user,
        household=scope.household,
        persona=scope.persona,
        without=frozenset({candidate.memory_id} - {""}),
        vector=np.array(candidate.embedding, np.float32) if compared else None,
        similarity_above=min(bounds) - ROUNDING if bounds else None,
        terms=terms if SignalType.KEYWORD in config.signals else frozenset(),
        overlap_above=config.keyword_threshold - ROUNDING if SignalType.KEYWORD in deciding else None,
        time=candidate.create_time,
        time_within=config.time_window if SignalType.TIME in deciding else None,
        number=candidate.importance,
        number_apart=importance_apart if SignalType.IMPORTANCE in deciding else None,
    )


def _settle_doubts(examined: Examined, related: RelatedDocuments, rated: Severities) -> None:
    """Compares exactly if rounding might decide whether the semantic signal fires, or if the relation signal might."""
    config = examined.config
    doubts = np.zeros(len(related), np.bool_)
    if SignalType.SEMANTIC in config.signals:
        doubts |= np.abs(related.similarities - config.semantic_threshold) <= ROUNDING
    if SignalType.RELATION in config.signals:
        doubts[_most_similar(related)] = True
        if examined.deciding and SignalType.RELATION in config.deciding_signals:
            rated.conflicting[~doubts] = False
    doubtful = np.flatnonzero(doubts).tolist()
    settled = examined.opponents([related.doc_ids[place] for place in doubtful])
    for place, opponent in zip(doubtful, settled, strict=True):
        rated.conflicting[place] = opponent is not None
        rated.severities[place] = opponent.conflict.severity if opponent else 0.0


def _most_similar(related: RelatedDocuments) -> NDArray[np.int64]:
    """The places of the RELATIONS_MAX most similar statements that may be related; of equal ones, those saved first."""
    places = np.flatnonzero(related.similarities > RELATION_SIMILARITY_MIN - ROUNDING)
    order = np.argsort(-related.similarities[places], kind="stable")
    return places[order[:RELATIONS_MAX]]


def _most_severe(rated: Severities, limit: int) -> list[int]:
    """The places, ascending, of the `limit` most severe conflicts, and of those that rounding may have put behind them.

    If more than LOADED_MAX are as severe as the last one, the ones saved first are taken.
    """
    places = np.flatnonzero(rated.conflicting)
    severities = rated.severities[places]
    if len(places) <= limit:
        return places.tolist()
    last = np.partition(severities, -limit)[-limit]
    surely = places[severities > last + 2 * ROUNDING]
    perhaps = places[np.abs(severities - last) <= 2 * ROUNDING]
    return sorted([*surely.tolist(), *perhaps[: limit - len(surely) + LOADED_MAX].tolist()])


def _load(examined: Examined, doc_ids: Sequence[str]) -> list[Opponent]:
    """These statements, compared exactly, most severe first; equally severe ones in the given order."""
    opponents = filter(None, examined.opponents(doc_ids))
    return sorted(opponents, key=lambda opponent: -opponent.conflict.severity)
