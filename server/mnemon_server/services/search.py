"""How a text finds documents: filters first, then meaning and word, exactly while that is cheap."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import (
    QUERY_BYTES_MAX,
    TOP_K_MAX,
    Document,
    Passage,
    SearchAnswer,
    SearchQuery,
    SearchResult,
)
from mnemon_server.domain.errors import BackendConnectionError, FieldViolation, MnemonError, SearchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import IgnoredFilter, SearchDiagnostics, SearchMode
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.base import PassageIds, PassageLocation, RecordEngine, Scores, Vector
from mnemon_server.services.filters import lenient_filter
from mnemon_server.services.fusion import fuse
from mnemon_server.services.index_applier import IndexApplier

GRAPH_HITS_MIN = 200
GRAPH_OVERFETCH = 8
KEYWORD_HITS_MAX = 1_000
SPARE_PASSAGES = 8
"""Passages looked up beyond the documents wanted, for documents of which several are near."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What can be known of a search before its text is a vector."""

    where: RecordFilter
    ignored: tuple[IgnoredFilter, ...]
    among: PassageIds | None
    candidates: int
    keywords: Scores | None


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Scored passages, in no order, with the parts that made their scores; a cosine may be below 0."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    vector_scores: NDArray[np.float64] | None
    keyword_scores: NDArray[np.float64] | None
    exact: bool
    scanned: int = 0
    degraded: str = ""


class DocumentSearch:
    """Finds documents through their passages.

    Up to `exact_scan_max` candidates are compared one by one, straight from the records. Beyond, the vector index
    proposes candidates; they are scored exactly all the same, together with what the index has yet to take, and where
    it cannot be asked, or proposes too few, everything is compared.

    A search is one blocking call from end to end: every hop between threads would cost as much as a look into the
    records.
    """

    def __init__(
        self,
        records: RecordEngine,
        embed_query: Callable[[str], Vector],
        *,
        backend: str,
        applier: IndexApplier | None,
        exact_scan_max: int,
        vector_weight: float,
        threads: int,
    ) -> None:
        self._records = records
        self._embed_query = embed_query
        self._backend = backend
        self._applier = applier
        self._exact_scan_max = exact_scan_max
        self._vector_weight = vector_weight
        self._plan_threads = ThreadPoolExecutor(threads, thread_name_prefix="query-planner")

    def find(self, query: SearchQuery) -> SearchAnswer:
        """The documents nearest to the query's text, best first, each once, through its best passage. Blocks."""
        started = perf_counter()
        refuse(_violations(query))
        try:
            if not query.text.strip() or query.top_k <= 0:
                _, ignored = lenient_filter(self._records, query.filters, query.scope)
                answer = SearchAnswer((), ignored, SearchDiagnostics(mode=query.mode, exact=True))
            else:
                answer = self._find(query)
        except MnemonError:
            raise
        except Exception as error:
            raise SearchError("the search failed") from error
        return replace(answer, diagnostics=replace(answer.diagnostics, duration_s=perf_counter() - started))

    def close(self) -> None:
        """Waits for what has begun."""
        self._plan_threads.shutdown()

    def _find(self, query: SearchQuery) -> SearchAnswer:
        if query.mode is SearchMode.KEYWORD:
            return self._complete(query, self._plan(query), None)
        if query.mode is SearchMode.VECTOR:
            return self._complete(query, self._plan(query), self._embed_query(query.text))
        # While the model reads the text, its words are looked up. The model runs here, and so begins first: it lets the
        # interpreter go for nearly all its time, and the look-up does not.
        plan = self._plan_threads.submit(self._plan, query)
        vector = self._embed_query(query.text)
        return self._complete(query, plan.result(), vector)

    def _plan(self, query: SearchQuery) -> _Plan:
        where, ignored = lenient_filter(self._records, query.filters, query.scope)
        among = self._records.match_passages(where) if where else None
        candidates = self._records.stats().passage_count if among is None else len(among)
        by_word = query.mode is not SearchMode.VECTOR
        keywords = self._records.search_keywords(query.text, among) if by_word else None
        return _Plan(where, ignored, among, candidates, keywords)

    def _complete(self, query: SearchQuery, plan: _Plan, vector: Vector | None) -> SearchAnswer:
        ranking = self._rank(query, plan, vector)
        results = self._results(query, ranking)
        if len(results) < query.top_k and not ranking.exact and vector is not None:
            # Several passages of one document, or entries that are gone: what is left must come from all.
            ranking = self._scan(query, plan, vector, plan.among, exact=True, degraded=ranking.degraded)
            results = self._results(query, ranking)
        diagnostics = SearchDiagnostics(
            mode=query.mode,
            exact=ranking.exact,
            total_candidates=plan.candidates,
            scanned=ranking.scanned,
            pending=self._applier.pending() if self._applier else 0,
            degraded=ranking.degraded,
        )
        return SearchAnswer(results, plan.ignored, diagnostics)

    def _rank(self, query: SearchQuery, plan: _Plan, vector: Vector | None) -> _Ranking:
        if vector is None:
            found = plan.keywords or _NOTHING
            return _Ranking(found.passage_ids, found.scores, None, found.scores, exact=True)
        if self._applier is None or plan.candidates <= self._exact_scan_max:
            return self._scan(query, plan, vector, plan.among, exact=True)
        degraded = self._applier.problem
        if not degraded:
            try:
                proposed = self._propose(self._applier, query, plan, vector)
            except BackendConnectionError as error:
                degraded = str(error)
            except Exception:
                log.exception("the vector index failed to search")
                degraded = "the vector database failed; the log says why"
            else:
                if proposed is not None:
                    return self._scan(query, plan, vector, proposed, exact=False)
                return self._scan(query, plan, vector, plan.among, exact=True)
            self._applier.distrust()
        return self._scan(query, plan, vector, plan.among, exact=True, degraded=degraded)

    def _propose(self, applier: IndexApplier, query: SearchQuery, plan: _Plan, vector: Vector) -> PassageIds | None:
        """Candidates from the graph, the words, and what the graph has yet to take; None where that is too much."""
        limit = min(max(GRAPH_HITS_MIN, GRAPH_OVERFETCH * query.top_k), plan.candidates)
        pending = applier.pending_passages(self._exact_scan_max)
        if pending is None:
            return None
        near = applier.index.search(vector, limit=limit, equal=plan.where).passage_ids
        proposed = np.unique(np.concatenate([near, pending, _best(plan.keywords, KEYWORD_HITS_MAX)]))
        return proposed if plan.among is None else np.intersect1d(proposed, plan.among, assume_unique=True)

    def _scan(
        self,
        query: SearchQuery,
        plan: _Plan,
        vector: Vector,
        among: PassageIds | None,
        *,
        exact: bool,
        degraded: str = "",
    ) -> _Ranking:
        """Compares the vectors of `among`, or of all, one by one, and joins what the words gave."""
        scan = self._records.scan_vectors(vector, among)
        told = {"exact": exact, "scanned": len(scan.passage_ids), "degraded": degraded}
        if plan.keywords is None:
            # Ranked by what is below 0 too: where a filter leaves few, those come in their right order as well.
            cosine = np.clip(scan.scores, 0.0, 1.0)
            return _Ranking(scan.passage_ids, scan.scores, cosine, None, **told)  # type: ignore[arg-type]
        words = plan.keywords if exact else _among(plan.keywords, scan.passage_ids)
        fused = fuse(query.text, scan, words, vector_weight=self._vector_weight)
        return _Ranking(fused.passage_ids, fused.scores, fused.vector_scores, fused.keyword_scores, **told)  # type: ignore[arg-type]

    def _results(self, query: SearchQuery, ranking: _Ranking) -> tuple[SearchResult, ...]:
        wanted = min(query.top_k, TOP_K_MAX)
        chosen: dict[str, tuple[int, PassageLocation]] = {}
        count = wanted + max(wanted, SPARE_PASSAGES)
        while True:
            rows = _top(ranking.scores, ranking.passage_ids, count)
            rows = rows[np.maximum(ranking.scores[rows], 0.0) >= query.min_score]
            chosen = self._documents_of(ranking.passage_ids[rows], rows, wanted)
            if len(chosen) >= wanted or count >= len(ranking.scores) or len(rows) < count:
                break
            count *= 4
        documents = self._records.get_documents(list(chosen), vectors=query.vectors)
        return tuple(
            self._result(document, row, place, ranking)
            for document, (row, place) in zip(documents, chosen.values(), strict=True)
            if document is not None
        )

    def _documents_of(
        self, passage_ids: PassageIds, rows: NDArray[np.intp], wanted: int
    ) -> dict[str, tuple[int, PassageLocation]]:
        """The first `wanted` documents, each with its best passage."""
        row_of = dict(zip(passage_ids.tolist(), rows.tolist(), strict=True))
        chosen: dict[str, tuple[int, PassageLocation]] = {}
        for place in self._records.locate_passages(passage_ids.tolist()):
            if len(chosen) == wanted:
                break
            chosen.setdefault(place.doc_id, (row_of[place.passage_id], place))
        return chosen

    def _result(self, document: Document, row: int, place: PassageLocation, ranking: _Ranking) -> SearchResult:
        source = document.metadata.get("source")
        vector, keyword = ranking.vector_scores, ranking.keyword_scores
        return SearchResult(
            doc_id=document.doc_id,
            content=document.content,
            metadata=document.metadata,
            score=min(max(float(ranking.scores[row]), 0.0), 1.0),
            source=source if isinstance(source, str) else self._backend,
            vector_score=None if vector is None else float(vector[row]),
            keyword_score=None if keyword is None else float(keyword[row]),
            passage=Passage(place.index, place.start, place.end),
            document=document,
        )


_NOTHING = Scores(np.empty(0, np.int64), np.empty(0, np.float64))


def _violations(query: SearchQuery) -> list[FieldViolation]:
    violations = []
    if len(query.text.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
        violations.append(FieldViolation("query", f"must be at most {QUERY_BYTES_MAX:,} bytes of UTF-8"))
    if not 0.0 <= query.min_score <= 1.0:
        violations.append(FieldViolation("min_score", "must be between 0 and 1"))
    return violations


def _among(scores: Scores, passage_ids: PassageIds) -> Scores:
    """The scores of these passages alone: the others were not compared."""
    kept = np.isin(scores.passage_ids, passage_ids)
    return Scores(scores.passage_ids[kept], scores.scores[kept])


def _best(scores: Scores | None, count: int) -> PassageIds:
    if scores is None:
        return _NOTHING.passage_ids
    return scores.passage_ids[_top(scores.scores, scores.passage_ids, count)]


def _top(scores: NDArray[np.float64], passage_ids: PassageIds, count: int) -> NDArray[np.intp]:
    """Rows of the `count` best scores, best first; of equal ones the older passage comes first."""
    if count < len(scores):
        # All that equal the last one taken belong in, or the order of equals would hang on chance.
        bound = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= bound)
    else:
        rows = np.arange(len(scores))
    return rows[np.lexsort((passage_ids[rows], -scores[rows]))][:count]
