"""Conflicts found through the index: what it proposes is compared exactly, and only what is shown is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mnemon_server.domain.conflicts import Conflict, DetectionConfig, SignalType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.related import RelatedDocuments, RelatedQuery
from mnemon_server.services.conflicts.severities import Severities, severities_of
from mnemon_server.services.conflicts.signals import compare, detect, severity, signals_of
from mnemon_server.services.conflicts.terms import terms_of
from mnemon_server.services.semantic_documents import to_semantic

ROUNDING = 1e-5
"""By how much a similarity that the index computed may be off."""
LOADED_MAX = 100
"""How many statements are loaded beyond those asked for, because they are as severe as the last of those."""


class Reader(Protocol):
    """What a collection and a collection inside a transaction share."""

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordEngine."""

    def list_documents(
        self, where: RecordFilter, *, after: int = 0, limit: int, vectors: bool = False
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine."""


@dataclass(frozen=True, slots=True)
class Opponent:
    """A conflict, and the stored statement that it is with."""

    conflict: Conflict
    memory: SemanticMemory


@dataclass(frozen=True, slots=True)
class Found:
    """The most severe conflicts, and how many there are in all."""

    opponents: tuple[Opponent, ...]
    total_count: int


def find_conflicts(reader: Reader, candidate: SemanticMemory, config: DetectionConfig, *, limit: int) -> Found:
    """The conflicts of a candidate whose time is set, most severe first; ties in the order of saving.

    The same as comparing it with every visible statement of its user, and as cheap as the index is: only the `limit`
    statements that are returned are loaded, and those whose place beside them rounding might decide.
    """
    terms = terms_of(candidate.keywords, candidate.content)
    related = reader.related_documents(_query(candidate, terms, config))
    rated = severities_of(candidate, len(terms), related, config)
    _settle_doubts(reader, candidate, related, rated, config)
    places = _most_severe(rated, limit)
    opponents = _load(reader, candidate, [related.doc_ids[place] for place in places], config)
    return Found(tuple(opponents[:limit]), int(np.count_nonzero(rated.conflicting)))


def _query(candidate: SemanticMemory, terms: frozenset[str], config: DetectionConfig) -> RelatedQuery:
    """Asks for a little more than conflicts, so that rounding loses none."""
    semantic = SignalType.SEMANTIC in config.signals and candidate.embedding is not None
    keyword, time = SignalType.KEYWORD in config.signals, SignalType.TIME in config.signals
    importance = SignalType.IMPORTANCE in config.signals
    return RelatedQuery(
        user=candidate.scope.user,
        without=frozenset({candidate.memory_id} - {""}),
        vector=np.array(candidate.embedding, np.float32) if semantic else None,
        similarity_above=config.semantic_threshold - ROUNDING if semantic else None,
        terms=terms if keyword else frozenset(),
        overlap_above=config.keyword_threshold - ROUNDING if keyword else None,
        time=candidate.create_time if time else None,
        time_within=config.time_window if time else None,
        number=candidate.importance if importance else None,
        number_apart=max(0.0, config.importance_delta - ROUNDING) if importance else None,
    )


def _settle_doubts(
    reader: Reader, candidate: SemanticMemory, related: RelatedDocuments, rated: Severities, config: DetectionConfig
) -> None:
    """Compares exactly where rounding might decide whether the signal of meaning fires."""
    if SignalType.SEMANTIC not in config.signals:
        return
    doubtful = np.flatnonzero(np.abs(related.similarities - config.semantic_threshold) <= ROUNDING).tolist()
    stored = reader.get_documents([related.doc_ids[place] for place in doubtful], vectors=True) if doubtful else []
    for place, document in zip(doubtful, stored, strict=True):
        signals = signals_of(compare(candidate, to_semantic(document)), config) if document else ()
        rated.conflicting[place], rated.severities[place] = bool(signals), severity(signals)


def _most_severe(rated: Severities, limit: int) -> list[int]:
    """The places, ascending, of the `limit` most severe conflicts, and of those that rounding may have put behind them.

    Of more than LOADED_MAX that are as severe as the last one, those that were saved first.
    """
    places = np.flatnonzero(rated.conflicting)
    severities = rated.severities[places]
    if len(places) <= limit:
        return places.tolist()
    last = np.partition(severities, -limit)[-limit]
    surely = places[severities > last + 2 * ROUNDING]
    perhaps = places[np.abs(severities - last) <= 2 * ROUNDING]
    return sorted([*surely.tolist(), *perhaps[: limit - len(surely) + LOADED_MAX].tolist()])


def _load(reader: Reader, candidate: SemanticMemory, doc_ids: Sequence[str], config: DetectionConfig) -> list[Opponent]:
    """These statements, compared exactly, most severe first; equally severe ones as they are given."""
    loaded = reader.get_documents(doc_ids, vectors=True) if doc_ids else []
    opponents = [_opponent(candidate, to_semantic(stored), config) for stored in loaded if stored]
    return sorted(filter(None, opponents), key=lambda opponent: -opponent.conflict.severity)


def _opponent(candidate: SemanticMemory, existing: SemanticMemory, config: DetectionConfig) -> Opponent | None:
    conflict = detect(candidate, existing, config)
    return Opponent(conflict, existing) if conflict else None
