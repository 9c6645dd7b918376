"""Rankings of passages: both halves of a search combined, and the selection of the best."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import SearchAnswer
from mnemon_server.domain.errors import MnemonError, SearchError
from mnemon_server.domain.events import WindowPage
from mnemon_server.domain.facts import FactSearchAnswer
from mnemon_server.domain.memories import MemorySearchAnswer
from mnemon_server.domain.records import NEAREST_MAX
from mnemon_server.domain.semantic import SimilarAnswer
from mnemon_server.engines.promises.values import KeywordScores, PassageIds, Scores, best_rows
from mnemon_server.ranking.fusion import Fusion


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Upper bounds for the scores of the passages that were not compared, 0 to 1."""

    cosine_max: float
    keyword_scores: NDArray[np.float64]
    """The passages with the best words, best first; the last one is the highest of the rest."""


def _places(wanted: PassageIds, known: PassageIds) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The index of each wanted passage once the unknown ones are appended to `known`, and which ones are unknown."""
    order = None if np.all(known[:-1] < known[1:]) else np.argsort(known)
    if order is None and len(known) and known[-1] - known[0] == len(known) - 1:
        # The ids have no gaps, as in a store without deletions: then the index follows from the id.
        places = wanted - known[0]
        is_new = (places < 0) | (places >= len(known))
    else:
        places = np.searchsorted(known, wanted, sorter=order)
        if order is not None:
            places = np.append(order, 0)[places]
        is_new = np.append(known, -1)[places] != wanted
    places[is_new] = len(known) + np.arange(np.count_nonzero(is_new))
    return places, is_new


NOTHING = Scores(np.empty(0, np.int64), np.empty(0, np.float64))

ROUNDING = 0.002
"""How far rounding may lower or raise a cosine."""

DIGITS = 6
"""The decimal places of a similarity that vectors of 32-bit numbers give reliably."""

SPARE_ROUNDED = 32
"""How many more rounded scores than those wanted are replaced by exact ones, since rounding may have changed their
order.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Scored passages, in no particular order, with the parts of their scores. Cosines may be negative."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    cosines: NDArray[np.float64] | None
    keyword_scores: NDArray[np.float64] | None
    exact: bool
    """Whether all candidates were compared."""
    scanned: int = 0
    degraded: str = ""
    left_out: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))
    """The highest scores that passages may have that were left out, best first."""
    vector_parts: NDArray[np.float64] | None = None
    """The contributions of cosines to the scores, 0 to 1; None if they are not part of the scores."""
    keyword_parts: NDArray[np.float64] | None = None
    """The same for the keyword scores."""
    rounding: float = ROUNDING
    """How far rounding may lower or raise a score."""
    refined: "Callable[[PassageIds], Ranking] | None" = None
    """Ranks again with exact cosines of these passages; None if all cosines are exact."""

    def top(self, count: int) -> NDArray[np.intp]:
        """Rows of the `count` best positive scores, best first; see best_rows."""
        rows = best_rows(self.scores, self.passage_ids, count, self.cosines)
        return rows[self.scores[rows] > 0.0]

    def rivals(self, count: int) -> NDArray[np.intp]:
        """Rows that may have one of the `count` best scores once these are exact, best first."""
        rows = best_rows(self.scores, self.passage_ids, count + SPARE_ROUNDED, self.cosines)
        best = self.scores[rows]
        found: NDArray[np.intp] = rows[best >= best[:count].min(initial=np.inf) - 2 * self.rounding]
        return found


def by_meaning(found: Scores, *, exact: bool, scanned: int, degraded: str = "", left_out_max: float = 1.0) -> Ranking:
    """Ranks by cosine."""
    return Ranking(
        passage_ids=found.passage_ids,
        scores=found.scores,
        cosines=found.scores,
        keyword_scores=None,
        exact=exact,
        scanned=scanned,
        degraded=degraded,
        left_out=np.array([left_out_max]),
        vector_parts=np.clip(found.scores, 0.0, 1.0),
    )


def by_word(found: Scores) -> Ranking:
    """Ranks by words; every passage that shares a word with the query is included."""
    return Ranking(
        passage_ids=found.passage_ids,
        scores=found.scores,
        cosines=None,
        keyword_scores=found.scores,
        exact=True,
        keyword_parts=found.scores,
    )


def by_both(
    query: str,
    near: Scores,
    words: KeywordScores,
    *,
    fusion: Fusion,
    exact: bool,
    degraded: str = "",
    left_out: LeftOut | None = None,
    min_cosine: float | None = None,
) -> Ranking:
    """Ranks by meaning and words, each 0 where that half did not find a passage; unless `exact`, leaves out passages
    that were not compared by meaning. If the query has no word, the vector alone decides.

    Passages below `min_cosine` get the score 0. A rounded cosine may be a little below.
    """
    if not exact:
        words = words.of(near.passage_ids)
    places, is_new = _places(words.passage_ids, near.passage_ids)
    passage_ids = np.concatenate((near.passage_ids, words.passage_ids[is_new]))
    cosines, keyword_scores = np.zeros(len(passage_ids)), np.zeros(len(passage_ids))
    cosines[: len(near.scores)] = near.scores
    keyword_scores[places] = words.scores
    np.clip(keyword_scores, 0.0, 1.0, out=keyword_scores)
    fused = fusion.fuse(query, cosines, keyword_scores)
    scores, bounds = fused.scores, np.ones(1)
    if left_out is not None:
        bounds = fusion.bounds(query, cosines, keyword_scores, left_out.cosine_max, left_out.keyword_scores)
    if min_cosine is not None:
        least = min_cosine - 2 * ROUNDING if near.rounded else min_cosine
        scores = np.where(similarities(cosines) >= least, scores, 0.0)
    return Ranking(
        passage_ids=passage_ids,
        scores=scores,
        cosines=cosines,
        keyword_scores=keyword_scores,
        exact=exact,
        scanned=len(near.passage_ids),
        degraded=degraded,
        left_out=bounds,
        rounding=ROUNDING * fusion.slope,
        vector_parts=fused.vector_parts,
        keyword_parts=fused.keyword_parts,
    )


def similarities(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """0 to 1, without the digits that come from rounding errors: the similarity of a vector to itself is 1."""
    return np.clip(cosines.round(DIGITS), 0.0, 1.0)


def joined(one: Scores, other: Scores) -> Scores:
    """Scores of either, by ascending id."""
    ids = np.concatenate([one.passage_ids, other.passage_ids])
    order = np.argsort(ids, kind="stable")
    rows = order[np.diff(ids[order], prepend=-1) != 0]
    return Scores(ids[rows], np.concatenate([one.scores, other.scores])[rows], one.rounded or other.rounded)


P = ParamSpec("P")
Answer = TypeVar(
    "Answer", SearchAnswer, MemorySearchAnswer, FactSearchAnswer, SimilarAnswer, WindowPage, WindowPage | None
)


def nearest(cosines: NDArray[np.float64] | None) -> tuple[float, ...]:
    """The highest cosines, descending, at most NEAREST_MAX; without NaN."""
    if cosines is None:
        return ()
    known = cosines[~np.isnan(cosines)]
    if len(known) > NEAREST_MAX:
        known = np.partition(known, -NEAREST_MAX)[-NEAREST_MAX:]
    return tuple(np.sort(known)[::-1].tolist())


def timed_search(search: Callable[P, Answer]) -> Callable[P, Answer]:
    """Wraps a search: its answer, if there is one, has the duration, checks included; an unexpected error becomes a
    SearchError.
    """

    @wraps(search)
    def timed(*args: P.args, **kwargs: P.kwargs) -> Answer:
        started = perf_counter()
        try:
            answer = search(*args, **kwargs)
        except MnemonError:
            raise
        except Exception as error:
            raise SearchError("the search failed") from error
        if answer is None:
            return answer  # type: ignore[unreachable] # for the kinds of answer that are never None
        return replace(answer, diagnostics=replace(answer.diagnostics, duration_s=perf_counter() - started))

    return timed
