"""How the two halves of a hybrid search become one score.

A half is a cosine similarity, nothing below 0, or BM25 relative to the query's own text. Both are absolute. By default
so is their weighted mean: the query's own text scores 1, an unrelated one near 0, and scores compare across queries. On
long conversations equal weights find as much as a sum of scores scaled query by query, and more than a fusion of ranks;
exponents on either half and other weights gain nothing that holds from one conversation to the next.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.ranking.keywords import query_terms

Floats = NDArray[np.float64]

RRF_K = 60


class FusionMethod(StrEnum):
    """What is made of a half before the weighted mean."""

    ABSOLUTE = "absolute"
    """Nothing."""
    WEIGHTED = "weighted"
    """Scaled query by query, so that the best of what was compared scores 1 and the worst 0 (min-max)."""
    RRF = "rrf"
    """The reciprocal of its rank among what was compared, (k + 1) / (k + rank), and 0 where it is 0."""


_VECTOR_WEIGHTS = {FusionMethod.ABSOLUTE: 0.5, FusionMethod.WEIGHTED: 0.6, FusionMethod.RRF: 0.5}


class Fused(NamedTuple):
    """Scores, and the two halves of which they are the weighted mean: arrays of one length, 0 to 1."""

    scores: Floats
    vector_parts: Floats
    keyword_parts: Floats


@dataclass(frozen=True, slots=True)
class Fusion:
    """A method and its terms."""

    method: FusionMethod = FusionMethod.ABSOLUTE
    vector_weight: float | None = None
    """Share of meaning, 0 to 1, the rest is words; None: the method's own."""
    rrf_k: int = RRF_K
    """At least 1; the larger it is, the less the first ranks stand out."""

    @property
    def is_absolute(self) -> bool:
        """Whether a score is the same whatever else is compared."""
        return self.method is FusionMethod.ABSOLUTE

    def weight(self, query: str) -> float:
        """The share of meaning in the score: all of it where the query has no word."""
        if not query_terms(query):
            return 1.0
        return _VECTOR_WEIGHTS[self.method] if self.vector_weight is None else self.vector_weight

    def fuse(self, query: str, vector: Floats, keyword: Floats) -> Fused:
        """The scores of what was compared; its halves, of one length, are 0 where there is nothing in common."""
        weight = self.weight(query)
        vector_parts, keyword_parts = self._scaled(vector, vector), self._scaled(keyword, keyword)
        return Fused(weight * vector_parts + (1.0 - weight) * keyword_parts, vector_parts, keyword_parts)

    def bound(self, query: str, vector: Floats, keyword: Floats, vector_max: float, keyword_max: float) -> float:
        """What at most something would score beside these whose halves are at most `vector_max` and `keyword_max`."""
        weight = self.weight(query)
        by_meaning = self._scaled(np.array([vector_max]), vector)[0]
        by_word = self._scaled(np.array([keyword_max]), keyword)[0]
        return float(weight * by_meaning + (1.0 - weight) * by_word)

    def _scaled(self, values: Floats, among: Floats) -> Floats:
        """Values of a half as the method counts them, which keeps their order."""
        match self.method:
            case FusionMethod.ABSOLUTE:
                return values
            case FusionMethod.WEIGHTED:
                return _min_max(values, among)
            case FusionMethod.RRF:
                return self._reciprocal_ranks(values, among)

    def _reciprocal_ranks(self, values: Floats, among: Floats) -> Floats:
        better = len(among) - np.sort(among).searchsorted(values, "right")
        ranks: Floats = np.where(values > 0.0, (self.rrf_k + 1.0) / (self.rrf_k + 1.0 + better), 0.0)
        return ranks


DEFAULT_FUSION = Fusion()


def _min_max(values: Floats, among: Floats) -> Floats:
    low, high = float(among.min(initial=1.0)), float(among.max(initial=0.0))
    if low >= high:
        # All are equally good: as good as any, or no good at all.
        return np.where((values >= high) & (values > 0.0), 1.0, 0.0)
    scaled: Floats = np.clip((values - low) / (high - low), 0.0, 1.0)
    return scaled
