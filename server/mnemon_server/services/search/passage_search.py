"""Searches passages by filters, meaning and words, and finds documents through them; exact as long as that is cheap.

Up to `exact_scan_max` candidates are compared one by one, directly from the records. Beyond that, a graph proposes
candidates: the graph of the records, or that of the vector index. Proposed candidates are still scored exactly. If the
graph is not available, or too few of its proposals pass the filter, all candidates are compared.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import SearchDiagnostics, SearchMode
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits, KeywordScores, PassageIds, PassageLocation, Scores, Vector
from mnemon_server.ranking.ascending import distinct
from mnemon_server.ranking.fusion import Fusion
from mnemon_server.services.search.fusion import LeftOut
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.passage_queries import PassageAnswer, PassageHit, PassageQuery, ScoredPlace
from mnemon_server.services.search.rankings import NOTHING, Ranking, by_both, by_meaning, by_word
from mnemon_server.services.search.reranking import DEPTH, Ranker
from mnemon_server.services.search.settings import DEFAULT_SEARCH, SearchSettings
from mnemon_server.services.search.turns import JUDGED, Turns

INDEX_HITS_MIN, INDEX_OVERFETCH = 200, 8
GRAPH_HITS_MIN, GRAPH_OVERFETCH = 64, 4
GRAPH_WIDENING = 8
"""If too few of the graph's proposals pass the filter, it is asked again, twice, for this many times as many."""

GRAPH_HITS_MAX = 8_192
"""If more proposals are needed, comparing all candidates is cheaper."""

HYBRID_WIDENING = 8
"""A hybrid search compares this many times as many of the nearest: then few of those with the best words can rival
them.
"""

WORD_HITS_MIN, WORD_HITS_MAX = 1_000, 8_000
"""How many of the passages with the best words a hybrid search compares at first, and at most."""

ROUNDING = 0.002
"""How far rounding may lower a score."""

SPARE_PASSAGES = 8
"""How many more passages than documents are looked up, since several passages may be of the same document."""

SPARE_ROUNDED = 32
"""How many more rounded scores are replaced by exact ones, since rounding may have changed their order."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known before comparing the candidates."""

    candidates: int
    among: PassageIds | None
    """The passages that match the filter; None means all passages, or that `check` filters them later."""
    check: RecordFilter | None
    """The filter to apply to the passages that were found; None if they are filtered already."""
    keywords: KeywordScores | None
    near: Scores | None = None
    """The first proposals of the records, if they were looked up at the same time as the words."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Documents chosen from a ranking, best first: the row and the location of the best passage of each."""

    ranking: Ranking
    places: dict[str, tuple[int, PassageLocation]]
    candidates: int
    """The number of passages that match the filter; if it was applied afterwards, only among those looked at."""
    compared: Ranking
    """The ranking before rounded scores were replaced: it has every passage that was compared."""
    widened: "Callable[[int], _Choice]"
    """Chooses the given number of documents from the same ranking, whatever their score."""

    def shown_scores(self) -> NDArray[np.float64]:
        """The scores of the documents, best first."""
        return self.ranking.scores[[row for row, _ in self.places.values()]]

    def scored(self) -> list[ScoredPlace]:
        """The places with their scores."""
        scores = self.ranking.scores
        return [ScoredPlace(place, row, min(max(float(scores[row]), 0.0), 1.0)) for row, place in self.places.values()]


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
        self._records = records
        self._embed_query = embed_query
        self._applier = applier
        self._settings = settings
        self._fusion_of_own_vectors = replace(settings.fusion, coverage=None)
        self._plan_threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="query-planner")

    def over(self, records: RecordEngine) -> "PassageSearch":
        """The same search over a part of the records. It shares the threads, and uses no vector index."""
        part = copy(self)
        part._records, part._applier = records, None
        return part

    def find(self, query: PassageQuery, *, fits: Fits | None = None) -> PassageAnswer:
        """The documents nearest to the query, best first, each once; calls `fits` before it reads one. Blocks."""
        ranker = self._settings.ranker
        if ranker is None or query.mode is not SearchMode.HYBRID:
            choice = self._find(query)
            ranking, places = choice.ranking, choice.scored()
        else:
            choice = self._find(replace(query, min_score=ranker.score_before(query.min_score)))
            ranking, places = self._reranked(ranker, query, choice)
        hits = self._hits(query, ranking, places[query.skip :], fits)
        return PassageAnswer(hits, self._diagnostics(query, choice), self._weight(query))

    def _find(self, query: PassageQuery) -> _Choice:
        if query.mode is SearchMode.KEYWORD:
            return self._decide(query, self._plan(query), None)
        if query.mode is SearchMode.VECTOR:
            return self._decide(query, self._plan(query), self._vector(query))
        takes_proposals = self._takes_proposals(query)
        if query.vector is not None and not takes_proposals:
            return self._decide(query, self._plan(query), query.vector)
        # The words are looked up on another thread while the model embeds the text on this one, and while the nearest
        # vectors are looked up. The model should start first: it releases the interpreter lock for nearly all its time,
        # and the look-up of words does not.
        planning = self._plan_threads.submit(self._plan, query)
        vector = self._vector(query)
        near = self._nearest(query, vector, 1, exact=False) if takes_proposals else None
        return self._decide(query, replace(planning.result(), near=near), vector)

    def _vector(self, query: PassageQuery) -> Vector:
        return self._embed_query(query.text) if query.vector is None else query.vector

    def _takes_proposals(self, query: PassageQuery) -> bool:
        """Whether it is certain that a hybrid search asks the records for proposals."""
        is_large = self._records.stats().passage_count > self._settings.exact_scan_max
        return is_large and self._applier is None and (not query.where or self._may_check(query))

    def close(self) -> None:
        """Waits for the look-ups that have begun."""
        self._plan_threads.shutdown()

    def _plan(self, query: PassageQuery) -> _Plan:
        stored, few = self._records.stats().passage_count, self._settings.exact_scan_max
        among = None
        if query.where and (stored <= few or not self._may_check(query)):
            among = self._records.match_passages(query.where)
        elif query.where and not query.broad:
            among = self._records.match_few_passages(query.where, limit=few)
        by_words = query.mode is not SearchMode.VECTOR
        return _Plan(
            candidates=stored if among is None else len(among),
            among=among,
            check=query.where if query.where and among is None else None,
            keywords=self._records.search_keywords(query.text, among) if by_words else None,
        )

    def _may_check(self, query: PassageQuery) -> bool:
        if query.mode is SearchMode.HYBRID and not self._settings.fusion.is_absolute:
            return False  # a relative score must not depend on passages that do not match the filter
        return query.broad or (query.mode is SearchMode.VECTOR and self._applier is None)

    def _diagnostics(self, query: PassageQuery, choice: _Choice) -> SearchDiagnostics:
        ranking = choice.ranking
        return SearchDiagnostics(
            mode=query.mode,
            exact=ranking.exact,
            total_candidates=choice.candidates,
            scanned=ranking.scanned,
            pending=self._applier.pending() if self._applier else 0,
            degraded=ranking.degraded,
        )

    def _weight(self, query: PassageQuery) -> float:
        """The weight of meaning in the scores."""
        if query.mode is SearchMode.HYBRID:
            return self._fusion(query).weight(query.text)
        return 1.0 if query.mode is SearchMode.VECTOR else 0.0

    def _fusion(self, query: PassageQuery) -> Fusion:
        """The fusion for a query. A vector that the caller made counts in full, whatever model made it."""
        return self._settings.fusion if query.vector is None else self._fusion_of_own_vectors

    def _decide(self, query: PassageQuery, plan: _Plan, vector: Vector | None) -> _Choice:
        if vector is None:
            return self._choose_by_word(query, plan, plan.keywords or NOTHING)
        degraded = ""
        if plan.candidates > self._settings.exact_scan_max:
            if self._applier is None:
                choice = self._propose_from_records(query, plan, vector)
            else:
                choice, degraded = self._propose_from_index(self._applier, query, plan, vector)
            if choice is not None:
                return choice
        return self._compare_all(query, plan, vector, degraded)

    def _choose_by_word(self, query: PassageQuery, plan: _Plan, words: KeywordScores) -> _Choice:
        count = max(WORD_HITS_MIN, GRAPH_OVERFETCH * query.limit)
        while True:
            found = words.best(count)
            choice = self._choose(query, plan, by_word(found))
            is_last = len(found.scores) < count or found.scores[-1] < query.min_score
            if is_last or len(choice.places) == query.limit:
                return choice
            count *= GRAPH_WIDENING

    def _compare_all(self, query: PassageQuery, plan: _Plan, vector: Vector, degraded: str) -> _Choice:
        if plan.check is not None and not query.broad:
            among = self._records.match_passages(plan.check)
            plan = _Plan(len(among), among, None, plan.keywords)
        return self._choose(query, plan, self._scan(query, plan, vector, plan.among, exact=True, degraded=degraded))

    # Proposals of the records

    def _propose_from_records(self, query: PassageQuery, plan: _Plan, vector: Vector) -> _Choice | None:
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

    def _choose_nearest(self, query: PassageQuery, plan: _Plan, vector: Vector, widening: int) -> _Choice | None:
        near = plan.near if widening == 1 else None
        if near is None:
            near = self._nearest(query, vector, widening, exact=plan.keywords is None)
        if near is None:
            return None
        is_all = len(near.scores) < self._proposals_max(query, widening)
        left_out_max = 0.0 if is_all else max(float(near.scores[-1]), 0.0)
        if plan.keywords is None:
            return self._choose(query, plan, by_meaning(near, exact=False, scanned=0, left_out_max=left_out_max))
        # Few words are enough for most queries, and to find eight times as many takes twice as long.
        for words_max in (WORD_HITS_MIN, widening * WORD_HITS_MAX):
            words = plan.keywords.best(words_max)
            left_out = LeftOut(left_out_max, words.scores[-1:] if len(words.scores) == words_max else np.zeros(1))
            choice = self._choose_by_both(query, plan, vector, near, words, left_out)
            if len(words.scores) < words_max or not _rivals(query, choice.ranking.left_out[-1:], choice.shown_scores()):
                break
        return choice

    def _choose_by_both(
        self, query: PassageQuery, plan: _Plan, vector: Vector, near: Scores, words: Scores, left_out: LeftOut
    ) -> _Choice:
        """The choice from the nearest and from the passages with the best words. `left_out` bounds all others."""
        assert plan.keywords is not None  # noqa: S101 - it is a hybrid search
        plan = replace(plan, keywords=_joined(words, plan.keywords.of(near.passage_ids)))

        def ranked(count: int) -> Ranking:
            proposed = distinct(np.concatenate([near.passage_ids, words.passage_ids[:count]]))
            if plan.among is not None:
                proposed = np.intersect1d(proposed, plan.among, assume_unique=True)
            rest = replace(left_out, keyword_scores=np.append(words.scores[count:], left_out.keyword_scores))
            return self._scan(query, plan, vector, proposed, exact=False, left_out=rest)

        return self._choose_among_rivals(query, plan, ranked)

    def _nearest(self, query: PassageQuery, vector: Vector, widening: int, *, exact: bool) -> Scores | None:
        """The nearest vectors that the records propose; None if they propose nothing or too many are needed."""
        limit = self._proposals_max(query, widening)
        return None if limit > GRAPH_HITS_MAX else self._records.nearest_vectors(vector, limit=limit, exact=exact)

    def _proposals_max(self, query: PassageQuery, widening: int) -> int:
        limit = widening * max(GRAPH_HITS_MIN, GRAPH_OVERFETCH * query.limit)
        return limit * HYBRID_WIDENING if query.mode is SearchMode.HYBRID else limit

    def _choose_among_rivals(self, query: PassageQuery, plan: _Plan, ranked: Callable[[int], Ranking]) -> _Choice:
        """The choice from a ranking with so many of the passages with the best words that no other one can be as good.

        Most of them are too far from the query, so few are compared before it is known how good the best are. The last
        bound of those left out is that of all others, which are never compared here.
        """
        count = WORD_HITS_MIN
        ranking = ranked(count)
        shown = ranking.scores[ranking.top(query.limit)]
        rivals = _rivals(query, ranking.left_out[:-1], shown)
        while True:
            if rivals:
                count += rivals
                ranking = ranked(count)
            choice = self._choose(query, plan, ranking)
            # More if some of the best passages are of the same document, or do not pass the filter.
            rivals = _rivals(query, choice.ranking.left_out[:-1], choice.shown_scores())
            if not rivals:
                return choice

    # Proposals of the vector index

    def _propose_from_index(
        self, applier: IndexApplier, query: PassageQuery, plan: _Plan, vector: Vector
    ) -> tuple[_Choice | None, str]:
        """The choice from the index's proposals, or None if they are not enough; and why the index was not used."""
        if applier.problem:
            return None, applier.problem
        try:
            proposed = self._ask_index(applier, query, plan, vector)
        except BackendConnectionError as error:
            applier.distrust()
            return None, str(error)
        except Exception:
            log.exception("the vector index failed to search")
            applier.distrust()
            return None, "the vector database failed; the log says why"
        if proposed is None:
            return None, ""
        choice = self._choose(query, plan, self._scan(query, plan, vector, proposed, exact=False))
        # Proposals may be of the same document, or of deleted ones. If too few are left, all candidates are compared.
        return (choice if len(choice.places) == query.limit else None), ""

    def _ask_index(self, applier: IndexApplier, query: PassageQuery, plan: _Plan, vector: Vector) -> PassageIds | None:
        """Candidates: those of the index, those of the words, and changes that the index lacks; None if too many."""
        limit = min(max(INDEX_HITS_MIN, INDEX_OVERFETCH * query.limit), self._records.stats().passage_count)
        pending = applier.pending_passages(self._settings.exact_scan_max)
        if pending is None:
            return None
        near = applier.index.search(vector, limit=limit, equal=query.where).passage_ids
        words = (plan.keywords or NOTHING).best(WORD_HITS_MIN).passage_ids
        proposed = distinct(np.concatenate([near, pending, words]))
        return proposed if plan.among is None else np.intersect1d(proposed, plan.among, assume_unique=True)

    # From vectors to documents

    def _scan(
        self,
        query: PassageQuery,
        plan: _Plan,
        vector: Vector,
        among: PassageIds | None,
        *,
        exact: bool,
        degraded: str = "",
        left_out: LeftOut | None = None,
    ) -> Ranking:
        """Compares the vectors of `among`, or all vectors, one by one, and combines them with the keyword scores."""

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
            )

        def refined(passage_ids: PassageIds) -> Ranking:
            return ranked(near.replaced(self._records.scan_vectors(vector, passage_ids, exact=len(passage_ids))))

        near = self._records.scan_vectors(vector, among, exact=0)
        return replace(ranked(near), refined=refined if near.rounded else None)

    def _choose(self, query: PassageQuery, plan: _Plan, ranking: Ranking) -> _Choice:
        """The best documents of a ranking, up to the limit."""
        count, found = query.limit + max(query.limit, SPARE_PASSAGES), ranking
        while True:
            if found.refined is not None:
                ranking = found.refined(found.passage_ids[found.top(count + SPARE_ROUNDED)])
            rows = ranking.top(count, query.min_score)
            ids = ranking.passage_ids[rows]
            matching = ids if plan.check is None else self._records.filter_passages(ids, plan.check)
            places = self._places(matching, dict(zip(ids.tolist(), rows.tolist(), strict=True)), query.limit)
            if len(places) == query.limit or count >= len(ranking.scores) or len(rows) < count:
                candidates = plan.candidates if plan.check is None else len(matching)
                return _Choice(ranking, places, candidates, found, partial(self._widened, query, plan, found))
            # Enough if the share of rows that lead to a document stays the same further down.
            count = max(4 * count, 3 * count * query.limit // (2 * max(len(places), 1)))

    def _widened(self, query: PassageQuery, plan: _Plan, ranking: Ranking, limit: int) -> _Choice:
        return self._choose(replace(query, limit=limit, min_score=0.0), plan, ranking)

    def _places(
        self, passage_ids: PassageIds, row_of: dict[int, int], limit: int
    ) -> dict[str, tuple[int, PassageLocation]]:
        """The first `limit` documents, each with its best passage."""
        places: dict[str, tuple[int, PassageLocation]] = {}
        for place in self._records.locate_passages(passage_ids.tolist()):
            if len(places) == limit:
                break
            places.setdefault(place.doc_id, (row_of[place.passage_id], place))
        return places

    def _reranked(self, ranker: Ranker, query: PassageQuery, choice: _Choice) -> tuple[Ranking, list[ScoredPlace]]:
        """The best places after reranking, in their new order, and the ranking that has their rows."""
        judged = choice if len(choice.places) >= JUDGED else choice.widened(JUDGED)
        turns = Turns(self._records, judged.compared)
        if turns.are_turns([place.passage_id for _, place in judged.places.values()][:JUDGED]):
            choice = choice if len(choice.places) >= DEPTH else choice.widened(max(query.limit, DEPTH))
            places = choice.scored()
            first, rest = places[:DEPTH], places[DEPTH:]
            scores = np.array([scored.score for scored in first], np.float64)
            order = ranker.rerank(query.text, turns.turns([scored.place.passage_id for scored in first]), scores)
            places = [*(first[row]._replace(score=score) for row, score in order), *rest]
        else:
            places = choice.scored()
        return choice.ranking, [scored for scored in places if scored.score >= query.min_score][: query.limit]

    def _hits(
        self, query: PassageQuery, ranking: Ranking, places: Sequence[ScoredPlace], fits: Fits | None
    ) -> tuple[PassageHit, ...]:
        documents = self._records.get_documents(
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


def _is_enough(query: PassageQuery, choice: _Choice, *, is_last: bool) -> bool:
    """Whether no better passage can have been left out; in the last round, whether the choice has enough documents."""
    left_out_max = float(choice.ranking.left_out[0])
    if max(left_out_max, 0.0) < query.min_score:
        return True
    if len(choice.places) < query.limit:
        return False
    return is_last or float(choice.shown_scores().min()) >= left_out_max


def _joined(one: Scores, other: Scores) -> Scores:
    """Scores of either, by ascending id."""
    ids, rows = np.unique(np.concatenate([one.passage_ids, other.passage_ids]), return_index=True)
    return Scores(ids, np.concatenate([one.scores, other.scores])[rows])


def _rivals(query: PassageQuery, left_out: NDArray[np.float64], shown: NDArray[np.float64]) -> int:
    """How many passages could be shown, judged by their highest possible scores."""
    worst = float(shown.min()) if len(shown) == query.limit else 0.0
    return int(np.count_nonzero(left_out > max(worst - ROUNDING, query.min_score)))
