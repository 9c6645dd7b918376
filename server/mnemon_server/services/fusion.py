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
    """Scores of passages, 0 to 1: arrays of one length, in no promised order. A half that found nothing says 0."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    vector_scores: NDArray[np.float64]
    keyword_scores: NDArray[np.float64]
    cosines: NDArray[np.float64]
    """What the vector scores were before all below 0 became 0."""


def effective_weight(query: str, vector_weight: float) -> float:
    """The share of meaning in the score: all of it where the query has no word."""
    return vector_weight if query_terms(query) else 1.0


def fuse(query: str, vector: Scores, keyword: Scores, *, vector_weight: float = VECTOR_WEIGHT) -> FusedScores:
    """The fused score of every passage that either half found; of the vector alone where the query has no word."""
    places, is_new = _places(keyword.passage_ids, vector.passage_ids)
    passage_ids = np.concatenate((vector.passage_ids, keyword.passage_ids[is_new]))
    cosines, keyword_scores = np.zeros(len(passage_ids)), np.zeros(len(passage_ids))
    cosines[: len(vector.scores)] = vector.scores
    keyword_scores[places] = keyword.scores
    vector_scores: NDArray[np.float64] = np.clip(cosines, 0.0, 1.0)
    np.clip(keyword_scores, 0.0, 1.0, out=keyword_scores)
    weight = effective_weight(query, vector_weight)
    scores = weight * vector_scores + (1.0 - weight) * keyword_scores
    return FusedScores(passage_ids, scores, vector_scores, keyword_scores, cosines)


def _places(wanted: PassageIds, known: PassageIds) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where `wanted` stand once those that are not known have been put behind `known`, and which those are."""
    order = None if np.all(known[:-1] < known[1:]) else np.argsort(known)
    if order is None and len(known) and known[-1] - known[0] == len(known) - 1:
        # No gaps, as in a store from which nothing was deleted: the id tells the place, without a look-up.
        places = wanted - known[0]
        is_new = (places < 0) | (places >= len(known))
    else:
        places = np.searchsorted(known, wanted, sorter=order)
        if order is not None:
            places = np.append(order, 0)[places]
        is_new = np.append(known, -1)[places] != wanted
    places[is_new] = len(known) + np.arange(np.count_nonzero(is_new))
    return places, is_new
