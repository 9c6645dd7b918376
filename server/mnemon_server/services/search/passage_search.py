"""Searches passages by filters, meaning and words, and finds documents through them; exact as long as that is cheap.

Up to `exact_scan_max` candidates are compared one by one, directly from the records. Beyond that, a graph proposes
candidates: the graph of the records, or that of the vector index. Proposed candidates are still scored exactly. If the
graph is not available, or too few of its proposals pass the filter, all candidates are compared.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.records import Relevance, RelevanceFloors, SearchDiagnostics, SearchMode
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits, KeywordScores, PassageIds, PassageLocation, Scores, Vector
from mnemon_server.ranking.fusion import Fusion, relevance_floors
from mnemon_server.ranking.keyword_context import distinct
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.passage_queries import (
    Choice,
    PassageAnswer,
    PassageHit,
    PassageQuery,
    Plan,
    ScoredPlace,
)
from mnemon_server.services.search.rankings import (
    NOTHING,
    LeftOut,
    Ranking,
    by_both,
    by_meaning,
    by_word,
    joined,
    nearest,
)
from mnemon_server.services.search.reranking import JUDGED, Reranking
from mnemon_server.services.search.settings import DEFAULT_SEARCH, SearchSettings

INDEX_HITS_MIN, INDEX_OVERFETCH = 200, 8
GRAPH_HITS_MIN, GRAPH_OVERFETCH = 64, 4
GRAPH_WIDENING = 8
"""If too few of the graph's proposals pass the filter, it is asked again, twice, for this many times as many."""

GRAPH_HITS_MAX = 8_192
"""If more proposals are needed, comparing all candidates is cheaper."""

HYBRID_WIDENING = 8
HYBRID_SHARE = 1_024
"""A hybrid search compares this many times as many of the nearest, and at least one of so many passages: then few of
those with the best words can rival them.
"""

WORD_HITS_MIN, WORD_HITS_MAX = 1_000, 8_000
"""How many of the passages with the best words a hybrid search compares at first, and at most."""

SPARE_PASSAGES = 8
"""How many more passages than documents are looked up, since several passages may be of the same document."""

log = logging.getLogger(__name__)


class PassageSearch:
    """Finds documents through their passages.

    A search is one blocking call from end to end: a hop between threads would cost as much as a read of the records.
    """

    def __init__(
        self,
        records: RecordEngine,
        embed_query: Callable[[str], Vector],
        *,
        applier: IndexApplier | None = None,
        settings: SearchSettings = DEFAULT_SEARCH,
    ) -> None:
        self.records = records
        self.embed_query = embed_query
        self._applier = applier
        self.settings = settings
        self._fusion_of_own_vectors = replace(settings.fusion, model=None)
        # One thread is always reserved for calls that do not need the index, which may hang.
        self._at_index = threading.Semaphore(max(1, settings.threads - 1))
        self._plan_threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="query-planner")

    def over(self, records: RecordEngine) -> "PassageSearch":
        """The same search over a part of the records. It shares the threads, and uses no vector index."""
        part = copy(self)
        part.records, part._applier = records, None
        return part

    def find(self, query: PassageQuery, *, fits: Fits | None = None) -> PassageAnswer:
        """The documents nearest to the query, best first, each once; calls `fits` before it reads one. Blocks."""
        ranker, (choice, vector) = self.settings.ranker, self._find(query)
        if ranker is None or query.mode is not SearchMode.HYBRID:
            ranking, places = choice.ranking, choice.scored()
        else:
            assert vector is not None  # noqa: S101 - the search is by meaning, too
            reranking = Reranking(self.records, ranker, self._fusion(query))
            ranking, places = reranking.applied(query, vector, choice)
        relevance = self._relevance(query, ranking, places)
        places = [scored for scored in places[query.skip :] if scored.score >= query.min_score]
        hits = self._hits(query, ranking, places, fits)
        return PassageAnswer(hits, self._diagnostics(query, choice, relevance), self._weight(query), choice.matched)

    def _find(self, query: PassageQuery) -> tuple[Choice, Vector | None]:
        """The best documents, and the vector that was compared; None in keyword mode."""
        takes_proposals = query.mode is SearchMode.HYBRID and self._takes_proposals(query)
        is_simple = query.mode is not SearchMode.HYBRID or query.vector is not None
        if is_simple and not takes_proposals:
            vector = None if query.mode is SearchMode.KEYWORD else self._vector(query)
            return self._decide(query, self._plan(query), vector), vector
        # The words are looked up on another thread while the model embeds the text on this one, and while the nearest
        # vectors are looked up. The model should start first: it releases the interpreter lock for nearly all its time,
        # and the look-up of words does not.
        planning = self._plan_threads.submit(self._plan, query)
        vector = self._vector(query)
        near = self._nearest(query, vector, 1) if takes_proposals else None
        return self._decide(query, replace(planning.result(), near=near), vector), vector

    def _vector(self, query: PassageQuery) -> Vector:
        return self.embed_query(query.text) if query.vector is None else query.vector

    def _takes_proposals(self, query: PassageQuery) -> bool:
        """Whether it is certain that a hybrid search asks the records for proposals."""
        is_large = self.records.stats().passage_count > self.settings.exact_scan_max
        return is_large and self._applier is None and (not query.where or self._may_check(query))

    def close(self) -> None:
        """Waits for the look-ups that have begun."""
        self._plan_threads.shutdown()

    def _plan(self, query: PassageQuery) -> Plan:
        stored, few = self.records.stats().passage_count, self.settings.exact_scan_max
        among = None
        if query.where and (stored <= few or not self._may_check(query)):
            among = self.records.match_passages(query.where)
        elif query.where and not query.broad:
            among = self.records.match_few_passages(query.where, limit=few)
        by_words = query.mode is not SearchMode.VECTOR
        return Plan(
            candidates=stored if among is None else len(among),
            among=among,
            check=query.where if query.where and among is None else None,
            keywords=self.records.search_keywords(query.text, among) if by_words else None,
        )

    def _may_check(self, query: PassageQuery) -> bool:
        if query.mode is SearchMode.HYBRID and not self.settings.fusion.is_absolute:
            return False  # a relative score must not depend on passages that do not match the filter
        return query.broad or (query.mode is SearchMode.VECTOR and self._applier is None)

    def _diagnostics(self, query: PassageQuery, choice: Choice, relevance: Relevance) -> SearchDiagnostics:
        ranking = choice.ranking
        return SearchDiagnostics(
            mode=query.mode,
            exact=ranking.exact,
            total_candidates=choice.candidates,
            scanned=ranking.scanned,
            pending=self._applier.pending() if self._applier else 0,
            degraded=ranking.degraded,
            relevance=relevance,
        )

    def _relevance(self, query: PassageQuery, ranking: Ranking, places: Sequence[ScoredPlace]) -> Relevance:
        """The relevance of the best place, whether or not the answer includes it."""
        if query.min_score:
            floors = RelevanceFloors(query.min_score)
        else:
            floors = relevance_floors(self._fusion(query), query.text, query.mode)
        if not places:
            return floors.relevance(0.0)
        cosine = None if ranking.cosines is None else float(ranking.cosines[places[0].row])
        relevance = floors.relevance(places[0].score, cosine)
        return replace(relevance, nearest=nearest(ranking.cosines)) if query.of_model else relevance

    def _weight(self, query: PassageQuery) -> float:
        """The weight of meaning in the scores."""
        if query.mode is SearchMode.HYBRID:
            return self._fusion(query).weight(query.text)
        return 1.0 if query.mode is SearchMode.VECTOR else 0.0

    def _fusion(self, query: PassageQuery) -> Fusion:
        """The fusion for a query. A vector that the caller made counts in full and from 0, whatever model made it."""
        is_of_model = query.vector is None or query.of_model
        return self.settings.fusion if is_of_model else self._fusion_of_own_vectors

    def _decide(self, query: PassageQuery, plan: Plan, vector: Vector | None) -> Choice:
        if vector is None:
            return self._choose_by_word(query, plan, plan.keywords or NOTHING)
        degraded = ""
        if plan.candidates > self.settings.exact_scan_max:
            if self._applier is None:
                choice = self._propose_from_records(query, plan, vector)
            else:
                choice, degraded = self._propose_from_index(self._applier, query, plan, vector)
            if choice is not None:
                return choice
        return self._compare_all(query, plan, vector, degraded)

    def _choose_by_word(self, query: PassageQuery, plan: Plan, words: KeywordScores) -> Choice:
        count = max(WORD_HITS_MIN, GRAPH_OVERFETCH * query.limit)
        while True:
            found = words.best(count)
            choice = self._choose(query, plan, by_word(found))
            if len(found.scores) < count or len(choice.places) == query.limit:
                return replace(choice, matched=len(words.passage_ids))
            count *= GRAPH_WIDENING

    def _compare_all(self, query: PassageQuery, plan: Plan, vector: Vector, degraded: str) -> Choice:
        if plan.check is not None and not query.broad:
            among = self.records.match_passages(plan.check)
            plan = Plan(len(among), among, None, plan.keywords)
        return self._choose(query, plan, self._scan(query, plan, vector, plan.among, exact=True, degraded=degraded))

    # Proposals of the records

    def _propose_from_records(self, query: PassageQuery, plan: Plan, vector: Vector) -> Choice | None:
        """The choice from what the records propose; None if they propose nothing, or not enough."""
        for widening in (1, GRAPH_WIDENING, GRAPH_WIDENING**2):
            choice = self._choose_nearest(query, plan, vector, widening)
            if choice is None:
                return None
            if _is_enough(query, choice, is_last=widening > 1 or plan.keywords is not None):
                return choice
            if widening > 1 and GRAPH_WIDENING * len(choice.places) < query.limit:
                return None
        return None

    def _choose_nearest(self, query: PassageQuery, plan: Plan, vector: Vector, widening: int) -> Choice | None:
        near = plan.near if widening == 1 else None
        if near is None:
            near = self._nearest(query, vector, widening)
        if near is None:
            return None
        # More may be stored, and would be proposed, than when they were looked up: what is certain is the least number.
        is_all = len(near.scores) < widening * max(GRAPH_HITS_MIN, GRAPH_OVERFETCH * query.limit)
        left_out_max = 0.0 if is_all else max(float(near.scores[-1]), 0.0)
        if plan.keywords is None:
            ranked = partial(by_meaning, exact=False, scanned=0, left_out_max=left_out_max)
            return self._choose(query, plan, self._refinable(vector, near, ranked))
        if plan.among is not None:
            near = near.those(np.isin(near.passage_ids, plan.among))
        return self._choose_by_both(query, plan, vector, near, left_out_max, widening)

    def _choose_by_both(
        self,
        query: PassageQuery,
        plan: Plan,
        vector: Vector,
        near: Scores,
        left_out_max: float,
        widening: int,
        words_min: int = 0,
    ) -> Choice:
        """The choice from the nearest, and from others whose words may raise them above those; at least from the
        `words_min` with the best words. `left_out_max` bounds the cosines of the others.
        """
        assert plan.keywords is not None  # noqa: S101 - it is a hybrid search
        fusion, words_max, depth = self._fusion(query), widening * WORD_HITS_MAX, max(query.limit, JUDGED)
        of_near = plan.keywords.of(near.passage_ids)
        by_near = by_both(query.text, near, of_near, fusion=fusion, exact=False, min_cosine=query.min_cosine)
        needed = _needed(by_near.scores[by_near.top(depth)], depth)
        for _ in range(2):
            # Rounding may have raised the scores that are shown, and lowered those of others.
            least = fusion.keyword_score_needed(query.text, needed - 2 * by_near.rounding, left_out_max)
            words = plan.keywords.best(words_max, least)
            left_out = LeftOut(left_out_max, words.scores[-1:] if len(words.scores) == words_max else np.array([least]))
            if len(words.scores) < words_min:
                words = plan.keywords.best(words_min)
            ranking = self._ranked(
                query,
                replace(plan, keywords=joined(words, of_near)),
                vector,
                joined(near, self.records.scan_vectors(vector, words.passage_ids, exact=0)),
                exact=False,
                left_out=left_out,
            )
            choice = self._choose(query, plan, ranking)
            # Again if some of the nearest are of the same document, or do not pass the filter.
            needed = _needed(choice.shown_scores(), query.limit)
            is_last = len(words.scores) >= words_max or not least
            if is_last or choice.ranking.left_out[0] <= needed - ranking.rounding:
                break

        def widened(limit: int) -> Choice:
            if limit <= depth:
                return self._widened(query, plan, ranking, limit)
            wider = replace(query, limit=limit)
            return self._choose_by_both(wider, plan, vector, near, left_out_max, widening, WORD_HITS_MIN)

        return replace(choice, widened=widened)

    def _nearest(self, query: PassageQuery, vector: Vector, widening: int) -> Scores | None:
        """The nearest vectors that the records propose; None if they propose nothing or too many are needed."""
        limit = self._proposals_max(query, widening)
        return None if limit > GRAPH_HITS_MAX else self.records.nearest_vectors(vector, limit=limit, exact=False)

    def _proposals_max(self, query: PassageQuery, widening: int) -> int:
        limit = widening * max(GRAPH_HITS_MIN, GRAPH_OVERFETCH * query.limit)
        if query.mode is not SearchMode.HYBRID:
            return limit
        share = self.records.stats().passage_count // HYBRID_SHARE
        return max(limit * HYBRID_WIDENING, min(share, GRAPH_HITS_MAX))

    # Proposals of the vector index

    def _propose_from_index(
        self, applier: IndexApplier, query: PassageQuery, plan: Plan, vector: Vector
    ) -> tuple[Choice | None, str]:
        """The choice from the index's proposals, or None if they are not enough; and why the index was not used."""
        if applier.problem:
            return None, applier.problem
        try:
            proposed = self._ask_index(applier, query, plan, vector)
        except Exception as error:
            problem = str(error)
            if not isinstance(error, BackendConnectionError):
                log.exception("the vector index failed to search")
                problem = "the vector database failed; the log says why"
            applier.distrust(problem)
            return None, problem
        if proposed is None:
            return None, ""
        choice = self._choose(query, plan, self._scan(query, plan, vector, proposed, exact=False))
        # Proposals may be of the same document, or of deleted ones. If too few are left, all candidates are compared.
        return (choice if len(choice.places) == query.limit else None), ""

    def _ask_index(self, applier: IndexApplier, query: PassageQuery, plan: Plan, vector: Vector) -> PassageIds | None:
        """Candidates from the index and from keywords, and changes that the index lacks.

        None if there are too many, or if so many searches wait for the index that this one is quicker without it.
        """
        limit = min(max(INDEX_HITS_MIN, INDEX_OVERFETCH * query.limit), self.records.stats().passage_count)
        pending = applier.pending_passages(self.settings.exact_scan_max)
        if pending is None:
            return None
        if not self._at_index.acquire(blocking=False):
            return None
        try:
            near = applier.index.search(vector, limit=limit, equal=query.where).passage_ids
        finally:
            self._at_index.release()
        words = (plan.keywords or NOTHING).best(WORD_HITS_MIN).passage_ids
        proposed = distinct(np.concatenate([near, pending, words]))
        return proposed if plan.among is None else np.intersect1d(proposed, plan.among, assume_unique=True)

    # From vectors to documents

    def _scan(
        self,
        query: PassageQuery,
        plan: Plan,
        vector: Vector,
        among: PassageIds | None,
        *,
        exact: bool,
        degraded: str = "",
    ) -> Ranking:
        """Compares the vectors of `among`, or all vectors, one by one, and combines them with the keyword scores."""
        near = self.records.scan_vectors(vector, among, exact=0)
        return self._ranked(query, plan, vector, near, exact=exact, degraded=degraded)

    def _ranked(
        self,
        query: PassageQuery,
        plan: Plan,
        vector: Vector,
        near: Scores,
        *,
        exact: bool,
        degraded: str = "",
        left_out: LeftOut | None = None,
    ) -> Ranking:
        """Combines cosines with the keyword scores."""

        def ranked(near: Scores) -> Ranking:
            if plan.keywords is None:
                return by_meaning(near, exact=exact, scanned=len(near.passage_ids), degraded=degraded)
            return by_both(
                query.text,
                near,
                plan.keywords,
                fusion=self._fusion(query),
                exact=exact,
                degraded=degraded,
                left_out=left_out,
                min_cosine=query.min_cosine,
            )

        return self._refinable(vector, near, ranked)

    def _refinable(self, vector: Vector, near: Scores, ranked: Callable[[Scores], Ranking]) -> Ranking:
        """The ranking of these cosines, which becomes exact where it matters."""

        def refined(passage_ids: PassageIds) -> Ranking:
            exact = self.records.scan_vectors(vector, passage_ids, exact=len(passage_ids))
            return ranked(replace(near.replaced(exact), rounded=False))

        return replace(ranked(near), refined=refined if near.rounded else None)

    def _choose(self, query: PassageQuery, plan: Plan, ranking: Ranking) -> Choice:
        """The best documents of a ranking, up to the limit."""
        count, found = query.limit + max(query.limit, SPARE_PASSAGES), ranking
        while True:
            if found.refined is not None:
                ranking = found.refined(found.passage_ids[found.rivals(count)])
            rows = ranking.top(count)
            ids = ranking.passage_ids[rows]
            matching = ids if plan.check is None else self.records.filter_passages(ids, plan.check)
            places = self._places(matching, dict(zip(ids.tolist(), rows.tolist(), strict=True)), query.limit)
            if len(places) == query.limit or count >= len(ranking.scores) or len(rows) < count:
                candidates = plan.candidates if plan.check is None else len(matching)
                matched = int(np.count_nonzero(ranking.scores > 0.0))
                return Choice(ranking, places, candidates, found, partial(self._widened, query, plan, found), matched)
            # Enough if the share of rows that lead to a document stays the same further down.
            count = max(4 * count, 3 * count * query.limit // (2 * max(len(places), 1)))

    def _widened(self, query: PassageQuery, plan: Plan, ranking: Ranking, limit: int) -> Choice:
        return self._choose(replace(query, limit=limit), plan, ranking)

    def _places(
        self, passage_ids: PassageIds, row_of: dict[int, int], limit: int
    ) -> dict[str, tuple[int, PassageLocation]]:
        """The first `limit` documents, each with its best passage."""
        places: dict[str, tuple[int, PassageLocation]] = {}
        for place in self.records.locate_passages(passage_ids.tolist()):
            if len(places) == limit:
                break
            places.setdefault(place.doc_id, (row_of[place.passage_id], place))
        return places

    def _hits(
        self, query: PassageQuery, ranking: Ranking, places: Sequence[ScoredPlace], fits: Fits | None
    ) -> tuple[PassageHit, ...]:
        documents = self.records.get_documents(
            [scored.place.doc_id for scored in places],
            vectors=query.vectors,
            fields_only=query.fields_only,
            fits=fits,
        )
        return tuple(
            PassageHit.of(document, scored, ranking)
            for document, scored in zip(documents, places, strict=True)
            # A document may have been deleted since its passage was found.
            if document is not None and not document.hidden
        )


def _is_enough(query: PassageQuery, choice: Choice, *, is_last: bool) -> bool:
    """Whether no better passage can have been left out; in the last round, whether the choice has enough documents."""
    left_out_max = float(choice.ranking.left_out[0])
    if left_out_max <= 0.0:
        return True
    if len(choice.places) < query.limit:
        return False
    return is_last or float(choice.shown_scores().min()) >= left_out_max


def _needed(best: NDArray[np.float64], count: int) -> float:
    """The score that a further passage needs to be one of the best `count`."""
    return float(best.min()) if len(best) == count else 0.0
