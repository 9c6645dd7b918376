"""Conflicts found through the index: what it proposes is compared exactly, and only what is shown is loaded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple, Protocol

import numpy as np

from mnemon_server.domain.conflicts import Conflict, DetectionConfig, SignalType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.base import RelatedDocument, RelatedQuery
from mnemon_server.services.conflicts.signals import Comparison, compare, detect, severity, signals_of
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

    def related_documents(self, query: RelatedQuery) -> list[RelatedDocument]:
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


class _Ranked(NamedTuple):
    """Sorts as conflicts do: most severe first, of equal ones that which was saved first."""

    mildness: float
    position: int
    doc_id: str


def find_conflicts(reader: Reader, candidate: SemanticMemory, config: DetectionConfig, *, limit: int) -> Found:
    """The conflicts of a candidate whose time is set, most severe first; ties in the order of saving.

    The same as comparing it with every visible statement of its user, and as cheap as the index is: only the `limit`
    statements that are returned are loaded, and those whose place beside them rounding might decide.
    """
    terms = terms_of(candidate.keywords, candidate.content)
    related = reader.related_documents(_query(candidate, terms, config))
    ranked = [*_rank(reader, candidate, terms, related, config)]
    return Found(_load(reader, candidate, ranked, config, limit), len(ranked))


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


def _rank(
    reader: Reader,
    candidate: SemanticMemory,
    terms: frozenset[str],
    related: Iterable[RelatedDocument],
    config: DetectionConfig,
) -> Iterable[_Ranked]:
    """Those that do conflict, in no promised order."""
    doubtful: list[RelatedDocument] = []
    for document in related:
        similarity = document.similarity
        if similarity is not None and abs(similarity - config.semantic_threshold) <= ROUNDING:
            doubtful.append(document)
        elif signals := signals_of(_comparison(candidate, terms, document), config):
            yield _Ranked(-severity(signals), document.position, document.doc_id)
    loaded = reader.get_documents([document.doc_id for document in doubtful], vectors=True) if doubtful else []
    for document, stored in zip(doubtful, loaded, strict=True):
        if stored and (signals := signals_of(compare(candidate, to_semantic(stored)), config)):
            yield _Ranked(-severity(signals), document.position, document.doc_id)


def _comparison(candidate: SemanticMemory, terms: frozenset[str], document: RelatedDocument) -> Comparison:
    time, importance = candidate.create_time, candidate.importance
    return Comparison(
        similarity=document.similarity,
        shared_terms=document.shared_terms,
        smaller_terms=min(len(terms), document.term_count),
        time_delta=None if time is None or document.time is None else abs(time - document.time),
        importance_delta=None if importance is None or document.number is None else abs(importance - document.number),
    )


def _load(
    reader: Reader, candidate: SemanticMemory, ranked: Sequence[_Ranked], config: DetectionConfig, limit: int
) -> tuple[Opponent, ...]:
    """The first `limit`, with the words that they share with the candidate."""
    first = nsmallest(limit + LOADED_MAX, ranked)
    if len(first) > limit:
        last = first[limit - 1].mildness + 2 * ROUNDING
        first = [one for one in first if one.mildness <= last]
    loaded = reader.get_documents([one.doc_id for one in first], vectors=True)
    exact = [
        (one.position, opponent)
        for one, stored in zip(first, loaded, strict=True)
        if stored and (opponent := _opponent(candidate, to_semantic(stored), config))
    ]
    exact.sort(key=lambda pair: (-pair[1].conflict.severity, pair[0]))
    return tuple(opponent for _, opponent in exact[:limit])


def _opponent(candidate: SemanticMemory, existing: SemanticMemory, config: DetectionConfig) -> Opponent | None:
    conflict = detect(candidate, existing, config)
    return Opponent(conflict, existing) if conflict else None
