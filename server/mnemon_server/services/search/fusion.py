"""Combines the two halves of a hybrid search: aligns their scores by passage, and fuses them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import KeywordScores, PassageIds, Scores
from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Upper bounds for the scores of the passages that were not compared, 0 to 1."""

    cosine_max: float
    keyword_scores: NDArray[np.float64]
    """Of those with the best words, best first; the last one is the highest of all others."""


@dataclass(frozen=True, slots=True)
class FusedScores:
    """Scores of passages, 0 to 1, and their cosines: arrays of the same length, in no particular order. 0 if a half did
    not find it.
    """

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    cosines: NDArray[np.float64]
    keyword_scores: NDArray[np.float64]
    vector_parts: NDArray[np.float64]
    """The share of the cosines in the scores; `keyword_parts` is the same for the keyword scores."""
    keyword_parts: NDArray[np.float64]
    left_out: NDArray[np.float64]
    """The highest score that each passage of LeftOut may have."""


def fuse(
    query: str,
    vector: Scores,
    keyword: KeywordScores,
    *,
    fusion: Fusion = DEFAULT_FUSION,
    left_out: LeftOut | None = None,
) -> FusedScores:
    """The fused score of every passage that either half found; if the query has no word, of the vector scores alone."""
    places, is_new = _places(keyword.passage_ids, vector.passage_ids)
    passage_ids = np.concatenate((vector.passage_ids, keyword.passage_ids[is_new]))
    cosines, keyword_scores = np.zeros(len(passage_ids)), np.zeros(len(passage_ids))
    cosines[: len(vector.scores)] = vector.scores
    keyword_scores[places] = keyword.scores
    np.clip(keyword_scores, 0.0, 1.0, out=keyword_scores)
    fused = fusion.fuse(query, cosines, keyword_scores)
    bounds = np.ones(1)
    if left_out is not None:
        bounds = fusion.bounds(query, cosines, keyword_scores, left_out.cosine_max, left_out.keyword_scores)
    return FusedScores(
        passage_ids=passage_ids,
        scores=fused.scores,
        cosines=cosines,
        keyword_scores=keyword_scores,
        vector_parts=fused.vector_parts,
        keyword_parts=fused.keyword_parts,
        left_out=bounds,
    )


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
