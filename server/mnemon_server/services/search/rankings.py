"""Scored passages, and which of them are best."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Scores
from mnemon_server.ranking.fusion import Fusion
from mnemon_server.services.search.fusion import LeftOut, fuse

NOTHING = Scores(np.empty(0, np.int64), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Scored passages, in no order, with what made their scores; a cosine may be below 0."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    cosines: NDArray[np.float64] | None
    keyword_scores: NDArray[np.float64] | None
    exact: bool
    """Nothing was left out."""
    scanned: int = 0
    degraded: str = ""
    left_out_max: float = 1.0
    """No passage that was left out scores higher."""
    vector_parts: NDArray[np.float64] | None = None
    """What the cosines count for in the scores, 0 to 1; None where they are not in them."""
    keyword_parts: NDArray[np.float64] | None = None
    """The same of the keyword scores."""

    def top(self, count: int, min_score: float = 0.0) -> NDArray[np.intp]:
        """Rows of the `count` best scores that are at least `min_score`, best first; of equals, the older passage."""
        rows = top(self.scores, self.passage_ids, count)
        return rows[np.maximum(self.scores[rows], 0.0) >= min_score]


def by_meaning(found: Scores, *, exact: bool, scanned: int, degraded: str = "", left_out_max: float = 1.0) -> Ranking:
    """Ranked by cosine, also below 0: where a filter leaves few, those come in their right order as well."""
    return Ranking(
        passage_ids=found.passage_ids,
        scores=found.scores,
        cosines=found.scores,
        keyword_scores=None,
        exact=exact,
        scanned=scanned,
        degraded=degraded,
        left_out_max=left_out_max,
        vector_parts=np.clip(found.scores, 0.0, 1.0),
    )


def by_word(found: Scores) -> Ranking:
    """Ranked by words: every passage that shares one is there."""
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
    words: Scores,
    *,
    fusion: Fusion,
    exact: bool,
    degraded: str = "",
    left_out: LeftOut | None = None,
) -> Ranking:
    """Ranked by meaning and words; where not exact, what was not compared by meaning is left out."""
    compared = words if exact else _among(words, near.passage_ids)
    fused = fuse(query, near, compared, fusion=fusion, left_out=left_out)
    return Ranking(
        passage_ids=fused.passage_ids,
        scores=fused.scores,
        cosines=fused.cosines,
        keyword_scores=fused.keyword_scores,
        exact=exact,
        scanned=len(near.passage_ids),
        degraded=degraded,
        left_out_max=fused.left_out_max,
        vector_parts=fused.vector_parts,
        keyword_parts=fused.keyword_parts,
    )


def best(scores: Scores, count: int) -> Scores:
    """The `count` best, best first."""
    rows = top(scores.scores, scores.passage_ids, count)
    return Scores(scores.passage_ids[rows], scores.scores[rows])


def top(scores: NDArray[np.float64], passage_ids: PassageIds, count: int) -> NDArray[np.intp]:
    """Rows of the `count` best scores, best first; of equal ones the older passage comes first."""
    if count < len(scores):
        # All that equal the last one taken belong in, or the order of equals would hang on chance.
        bound = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= bound)
    else:
        rows = np.arange(len(scores))
    return rows[np.lexsort((passage_ids[rows], -scores[rows]))][:count]


def _among(scores: Scores, passage_ids: PassageIds) -> Scores:
    """The scores of these passages alone: the others were not compared."""
    kept = np.isin(scores.passage_ids, passage_ids)
    return Scores(scores.passage_ids[kept], scores.scores[kept])
