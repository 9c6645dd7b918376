"""Searches memories by a text or a vector, and explains the scores."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.documents import Passage
from mnemon_server.domain.memories import (
    MIN_CONFIDENCE_DEFAULT,
    Explanation,
    Memory,
    MemoryMatch,
    MemoryQuery,
    MemorySearchAnswer,
    ScorePart,
)
from mnemon_server.domain.records import NOTHING_RELEVANT, SearchDiagnostics, View
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.values import Fits
from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.services.memories.checks import query_violations, record_filter
from mnemon_server.services.memories.stored_form import to_memory
from mnemon_server.services.search.passage_queries import PassageHit, PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.rankings import timed_search

ROUNDING = 1e-6
EXPLANATION_BYTES = 256
"""The most bytes of an explanation, not counting the words of the query."""


class MemorySearch:
    """Finds memories through their passages; faded memories are skipped unless the query asks for them."""

    def __init__(self, passages: PassageSearch, confidence: ConfidenceModel, *, dimension: int, clock: Clock) -> None:
        self._passages = passages
        self._confidence = confidence
        self._dimension = dimension
        self._clock = clock

    @timed_search
    def find(self, query: MemoryQuery, *, fits: Fits | None = None) -> MemorySearchAnswer:
        """The memories nearest to the query, best first, each once; calls `fits` before it reads one. Blocks."""
        refuse(query_violations(query, self._dimension))
        if query.is_empty:
            nothing = SearchDiagnostics(mode=query.chosen_mode, exact=True, relevance=NOTHING_RELEVANT)
            return MemorySearchAnswer((), nothing)
        now = self._clock()
        where = query.where
        if where.min_confidence is None:
            where = replace(where, min_confidence=MIN_CONFIDENCE_DEFAULT)
        found = self._passages.find(
            replace(
                PassageQuery.of(query, record_filter(where, self._confidence, now), query.limit),
                min_score=query.min_score,
                broad=not replace(where, min_confidence=None),
                # An explanation needs the content, to name the words that match.
                fields_only=query.view is View.IDS and not query.explain,
            ),
            fits=_explained(fits, query) if fits and query.explain else fits,
        )
        explain = self._explainer(query, now, found.vector_weight) if query.explain else None
        matches = (_match(hit, to_memory(hit.document, self._confidence, now), explain) for hit in found.hits)
        return MemorySearchAnswer(tuple(matches), found.diagnostics)

    def _explainer(
        self, query: MemoryQuery, now: datetime, vector_weight: float
    ) -> Callable[[PassageHit, Memory], Explanation]:
        words = STEMMED_WORDS.query(query.text).groups

        def explain(hit: PassageHit, memory: Memory) -> Explanation:
            terms = set(STEMMED_WORDS.terms(memory.content)) if words else set()
            return Explanation(
                parts=_parts(hit, vector_weight),
                matched_terms=tuple(
                    held for variants in words if (held := next((each for each in variants if each in terms), None))
                ),
                confidence=self._confidence.explain(memory, now),
            )

        return explain


def _explained(fits: Fits, query: MemoryQuery) -> Fits:
    """Adds to the size of each memory the largest size that its explanation can have."""
    # The groups of three into which words of some scripts are split overlap.
    longest = len(query.text.encode()) * (1 if query.text.isascii() else 3) + EXPLANATION_BYTES
    return lambda memory_id, size: fits(memory_id, size + longest)


def _match(hit: PassageHit, memory: Memory, explain: Callable[[PassageHit, Memory], Explanation] | None) -> MemoryMatch:
    return MemoryMatch(
        memory=memory,
        score=hit.score,
        similarity=None if hit.cosine is None else _share(hit.cosine),
        distance=None if hit.cosine is None else 1.0 - hit.cosine,
        keyword_score=hit.keyword_score,
        passage=Passage(hit.place.index, hit.place.start, hit.place.end),
        explanation=explain(hit, memory) if explain else None,
    )


def _parts(hit: PassageHit, vector_weight: float) -> tuple[ScorePart, ...]:
    parts = []
    if hit.vector_part is not None:
        parts.append(ScorePart("vector", hit.vector_part, vector_weight))
    if hit.keyword_part is not None:
        parts.append(ScorePart("keyword", hit.keyword_part, 1.0 - vector_weight))
    moved = hit.score - sum(part.score * part.weight for part in parts)
    if abs(moved) > ROUNDING:
        parts.append(ScorePart("ranker", abs(moved), math.copysign(1.0, moved)))
    return tuple(parts)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
