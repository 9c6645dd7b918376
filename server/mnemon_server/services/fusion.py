"""How the two halves of a hybrid search become one score.

The score is the weighted mean of the cosine similarity, nothing below 0, and of BM25 relative to the query's own text.
Both are absolute, so the mean is: the query's own text scores 1, an unrelated one near 0, and scores compare across
queries. On long conversations equal weights find as much as a sum of scores scaled query by query, and more than a
fusion of ranks; exponents on either half and other weights gain nothing that holds from one conversation to the next.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.base import PassageIds, Scores
from mnemon_server.engines.keywords import query_terms

VECTOR_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class FusedScores:
    """Scores of passages, 0 to 1: four arrays of one length, by ascending id. A half that found nothing says 0."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    vector_scores: NDArray[np.float64]
    keyword_scores: NDArray[np.float64]


def fuse(query: str, vector: Scores, keyword: Scores, *, vector_weight: float = VECTOR_WEIGHT) -> FusedScores:
    """The fused score of every passage that either half found; of the vector alone where the query has no word."""
    passage_ids = np.union1d(vector.passage_ids, keyword.passage_ids)
    vector_scores = np.clip(_scores_of(passage_ids, vector), 0.0, 1.0)
    keyword_scores = np.clip(_scores_of(passage_ids, keyword), 0.0, 1.0)
    weight = vector_weight if query_terms(query) else 1.0
    scores = weight * vector_scores + (1.0 - weight) * keyword_scores
    return FusedScores(passage_ids, scores, vector_scores, keyword_scores)


def _scores_of(passage_ids: PassageIds, found: Scores) -> NDArray[np.float64]:
    scores = np.zeros(len(passage_ids))
    scores[np.searchsorted(passage_ids, found.passage_ids)] = found.scores
    return scores
