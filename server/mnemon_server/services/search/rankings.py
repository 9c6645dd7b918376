"""Scored passages, and the selection of the best."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import KeywordScores, PassageIds, Scores, best_rows
from mnemon_server.ranking.fusion import Fusion
from mnemon_server.services.search.fusion import LeftOut, fuse

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
    """Ranks by meaning and words; unless `exact`, leaves out passages that were not compared by meaning.

    Passages below `min_cosine` get the score 0. A rounded cosine may be a little below.
    """
    compared = words if exact else words.of(near.passage_ids)
    fused = fuse(query, near, compared, fusion=fusion, left_out=left_out)
    scores = fused.scores
    if min_cosine is not None:
        least = min_cosine - 2 * ROUNDING if near.rounded else min_cosine
        scores = np.where(similarities(fused.cosines) >= least, scores, 0.0)
    return Ranking(
        passage_ids=fused.passage_ids,
        scores=scores,
        cosines=fused.cosines,
        keyword_scores=fused.keyword_scores,
        exact=exact,
        scanned=len(near.passage_ids),
        degraded=degraded,
        left_out=fused.left_out,
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
