"""Searches statements by a vector or a text: context and time window first, then similarity, threshold and top_k.

A search by meaning alone compares up to `exact_scan_max` candidates one by one. Beyond that, the graph proposes
statements, and the filters are applied to them. If the graph may have missed a statement that belongs in the answer,
all candidates are compared. PassageSearch does the searches with words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import NOTHING_RELEVANT, Relevance, SearchMode, View
from mnemon_server.domain.semantic import (
    MIN_SIMILARITY_DEFAULT,
    SemanticFilter,
    SemanticMatch,
    SimilarAnswer,
    SimilarityDiagnostics,
    SimilarQuery,
)
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import EXACT_BEST, Fits, PassageIds, PassageLocation, Scores, Vector
from mnemon_server.ranking.fusion import relevance_floors
from mnemon_server.services.search.embedded_passages import unit_vector
from mnemon_server.services.search.passage_queries import PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.rankings import DIGITS, NOTHING, similarities, timed_search
from mnemon_server.services.semantic.checks import query_violations
from mnemon_server.services.semantic.filters import context_filter, record_filter, window
from mnemon_server.services.semantic.stored_form import to_semantic

GRAPH_HITS_MIN, GRAPH_OVERFETCH, GRAPH_WIDENING = 64, 4, 8


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The statements that a search may find. Each has one passage."""

    total: int
    in_context: int
    count: int
    """The statements in the context and in the window."""
    ids: PassageIds | None
    """Ids of their passages, ascending; None means all."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """Candidates with their similarities."""

    scores: Scores
    """The matches that reach the threshold."""
    exact: bool
    """Whether all candidates were compared."""
    best: float
    """The highest similarity, also of those below the threshold."""


class SemanticSearch:
    """Finds statements. A search is one blocking call: switching threads would cost more than the search itself."""

    def __init__(self, passages: PassageSearch, *, dimension: int) -> None:
        self._passages = passages
        self._records = passages.records
        self._dimension = dimension

    @timed_search
    def find(self, query: SimilarQuery, *, fits: Fits | None = None) -> SimilarAnswer:
        """The statements nearest to the query, best first; calls `fits` before it reads one. Blocks."""
        refuse(query_violations(query, self._dimension))
        mode = query.chosen_mode
        if query.is_empty:
            return SimilarAnswer((), SimilarityDiagnostics(mode=mode, relevance=NOTHING_RELEVANT))
        if mode is not SearchMode.VECTOR:
            return self._find_by_words(query, mode, fits)
        candidates = self._candidates(query.where)
        vector = self._passages.embed_query(query.text) if query.vector is None else unit_vector(query.vector)
        compared = self._compare(candidates, vector, query)
        matches = self._matches(compared.scores, query, fits)
        fusion = self._passages.settings.fusion
        if query.vector is not None and not query.of_model:
            fusion = replace(fusion, model=None)
        floor = query.min_similarity or relevance_floors(fusion, query.text, mode).score
        diagnostics = replace(
            _diagnostics(mode, candidates, len(compared.scores.scores), len(matches), exact=compared.exact),
            relevance=Relevance(compared.best, floor),
        )
        return SimilarAnswer(matches, diagnostics)

    def _find_by_words(self, query: SimilarQuery, mode: SearchMode, fits: Fits | None) -> SimilarAnswer:
        """The statements that match a text by words, or by words and meaning."""
        asked = PassageQuery.of(query, record_filter(query.where), query.top_k)
        found = self._passages.find(replace(asked, min_cosine=query.min_similarity), fits=fits)
        matches = tuple(
            SemanticMatch(
                to_semantic(hit.document),
                hit.score,
                None if hit.cosine is None else min(max(round(hit.cosine, DIGITS), 0.0), 1.0),
                hit.keyword_score,
            )
            for hit in found.hits
        )
        candidates = self._counted(query.where, max(found.diagnostics.total_candidates, found.matched))
        said = found.diagnostics
        diagnostics = replace(
            _diagnostics(mode, candidates, found.matched, len(matches), exact=said.exact), relevance=said.relevance
        )
        return SimilarAnswer(matches, diagnostics)

    # Candidates

    def _counted(self, where: SemanticFilter, count: int) -> _Candidates:
        """The counts beside that of the statements that match the filter."""
        total, in_context = self._records.stats().passage_count, count
        if window(where) is not None:
            context = context_filter(where)
            in_context = max(count, len(self._records.match_passages(context)) if context else total)
        return _Candidates(max(total, in_context), in_context, count, None)

    def _candidates(self, where: SemanticFilter) -> _Candidates:
        total = self._records.stats().passage_count
        context = context_filter(where)
        ids = self._records.match_passages(context) if context else None
        in_context = total if ids is None else len(ids)
        if window(where) is not None:
            ids = self._records.match_passages(record_filter(where))
        count = in_context if ids is None else len(ids)
        # A statement that is saved between the two reads must not make a count larger than the one that includes it.
        in_context = max(in_context, count)
        return _Candidates(max(total, in_context), in_context, count, ids)

    # Similarity

    def _compare(self, candidates: _Candidates, vector: Vector, query: SimilarQuery) -> _Compared:
        """The candidates that reach the threshold."""
        if candidates.count > self._passages.settings.exact_scan_max:
            proposed = self._propose(candidates, vector, query)
            if proposed is not None:
                return proposed
        scores = (
            self._records.scan_vectors(vector, candidates.ids, exact=max(EXACT_BEST, 2 * query.top_k))
            if candidates.count
            else NOTHING
        )
        return _Compared(_reaching(scores, _threshold(query)), exact=True, best=_best(scores))

    def _propose(self, candidates: _Candidates, vector: Vector, query: SimilarQuery) -> _Compared | None:
        """The proposals of the graph; None without a graph, or if it may have missed part of the answer."""
        for widening in (1, GRAPH_WIDENING):
            limit = widening * max(GRAPH_HITS_MIN, GRAPH_OVERFETCH * query.top_k)
            near = self._records.nearest_vectors(vector, limit=limit)
            if near is None:
                return None
            proposed = _among(near, candidates.ids)
            if not len(proposed.scores):
                continue  # the best similarity is not known
            found = _reaching(proposed, _threshold(query))
            is_complete = len(near.scores) < limit or not _reaches(near.scores[-1:], _threshold(query)).any()
            if is_complete or len(found.scores) >= query.top_k:
                return _Compared(found, exact=False, best=_best(proposed))
        return None

    # Reading

    def _matches(self, scores: Scores, query: SimilarQuery, fits: Fits | None) -> tuple[SemanticMatch, ...]:
        """The best `top_k` matches, or as many as there are and as fit.

        If a statement is deleted before it is read, the next one takes its place.
        """
        reading = _Reading(fits)
        matches: list[SemanticMatch] = []
        wanted = query.top_k
        while True:
            chosen = scores.best(wanted)
            ids = chosen.passage_ids.tolist()
            score_of = dict(zip(ids, similarities(chosen.scores).tolist(), strict=True))
            located = [place for place in self._records.locate_passages(ids) if place.doc_id not in reading.seen]
            places = located[: query.top_k - len(matches)]
            for place, document in zip(places, reading.read(self._records, places, query.view), strict=True):
                if document is not None and not document.hidden:
                    similarity = score_of[place.passage_id]
                    matches.append(SemanticMatch(to_semantic(document), similarity, similarity))
            if len(matches) == query.top_k or reading.is_full:
                break
            if len(places) == len(located):
                if wanted >= len(scores.scores):
                    break
                wanted *= 2
        return tuple(matches)


class _Reading:
    """Reads documents part by part, until one does not fit."""

    def __init__(self, fits: Fits | None) -> None:
        self._fits = fits
        self.is_full = False
        self.seen: set[str] = set()
        """Ids that were looked up, whether they exist or not."""

    def read(self, records: RecordEngine, places: Sequence[PassageLocation], view: View) -> Sequence[Document | None]:
        doc_ids = [place.doc_id for place in places]
        self.seen.update(doc_ids)
        return records.get_documents(
            doc_ids,
            vectors=view is View.FULL,
            fields_only=view is View.IDS,
            fits=self._ask if self._fits else None,
        )

    def _ask(self, doc_id: str, size: int) -> bool:
        self.is_full = self.is_full or not (self._fits is None or self._fits(doc_id, size))
        return not self.is_full


def _diagnostics(
    mode: SearchMode, candidates: _Candidates, matched: int, returned: int, *, exact: bool
) -> SimilarityDiagnostics:
    return SimilarityDiagnostics(
        mode=mode,
        total_candidates=candidates.total,
        filtered_by_context=candidates.total - candidates.in_context,
        filtered_by_window=candidates.in_context - candidates.count,
        filtered_by_threshold=candidates.count - matched,
        matched_count=matched,
        filtered_count=candidates.total - matched,
        returned=returned,
        exact=exact,
    )


def _threshold(query: SimilarQuery) -> float:
    """The least similarity in a search by meaning alone."""
    return MIN_SIMILARITY_DEFAULT if query.min_similarity is None else query.min_similarity


def _best(scores: Scores) -> float:
    return float(similarities(scores.scores).max(initial=0.0))


def _reaching(scores: Scores, min_similarity: float) -> Scores:
    """The scores that reach the threshold."""
    rows = _reaches(scores.scores, min_similarity)
    return scores if rows.all() else Scores(scores.passage_ids[rows], scores.scores[rows])


def _reaches(cosines: NDArray[np.float64], min_similarity: float) -> NDArray[np.bool_]:
    return similarities(cosines) >= min_similarity


def _among(scores: Scores, ids: PassageIds | None) -> Scores:
    """The scores whose ids are in `ids`, which are ascending."""
    if ids is None or not len(ids):
        return scores if ids is None else NOTHING
    rows = ids[np.minimum(np.searchsorted(ids, scores.passage_ids), len(ids) - 1)] == scores.passage_ids
    return Scores(scores.passage_ids[rows], scores.scores[rows])
