"""Combines the two parts of a hybrid search into one score, and knows below which score matches are mostly unrelated.

The parts are the cosine, counted from the model's zero, and BM25 relative to the score of the query's own text. The
zero is the cosine that the model gives to unrelated texts: near 0 for most models, above 0.7 for others, whose vectors
would hardly tell anything otherwise. A cosine at or below it counts as 0, and one of 1 as 1.

Both parts are absolute. The default score is their weighted mean and absolute too: the query's own text scores 1, an
unrelated text near 0, and scores of different queries are comparable. On long conversations, equal weights find as much
as a sum of scores that are scaled per query, and more than reciprocal rank fusion. Exponents on either part and other
weights bring no gain that holds across conversations.

A model gives every text a vector, also one in a language that it does not read. Such vectors are hardly related to the
meaning, and would spoil what the words find. So the less of a query its vocabulary covers, the less the vector counts;
but it always decides among texts that the words do not tell apart.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.records import NO_FLOORS, RelevanceFloors, SearchMode
from mnemon_server.ranking.analysis import query_terms

Floats = NDArray[np.float64]

RRF_K = 60


class FusionMethod(StrEnum):
    """How each part is transformed before the weighted mean."""

    ABSOLUTE = "absolute"
    """Nothing."""
    WEIGHTED = "weighted"
    """Scaled per query, so that the best candidate scores 1 and the worst 0.01 (min-max); 0 if the value is 0."""
    RRF = "rrf"
    """The reciprocal of the rank among the candidates, (k + 1) / (k + rank); 0 if the value is 0."""


_VECTOR_WEIGHTS = {FusionMethod.ABSOLUTE: 0.5, FusionMethod.WEIGHTED: 0.6, FusionMethod.RRF: 0.5}

_UNREAD_COVERAGE, _READ_COVERAGE = 0.1, 0.9
"""Coverages of a query from which on its vector counts, and counts in full: as much as a vocabulary covers of its own
language. The default model covers 0.9 of an English question, 0.7 of a German one, of which it reads half, and 0.01 of
one in Arabic, Chinese or Russian.
"""

MEANING = 1.2
"""How much more than in other texts meaning counts in messages to and from an assistant: 0.6 instead of 0.5."""

_LEAST_SHARE = 0.04
"""The share of its weight that a vector always has. It changes no result that the words find in another language, and
orders the others.
"""

_SCALED_MIN = 0.01
"""The least scaled score of a positive value: the worst match of a list is still a match."""


class TextModel(Protocol):
    """The model that embeds the queries, as far as a fusion needs it."""

    def coverage(self, text: str) -> float:
        """How well its vocabulary covers a text, 0 to 1."""

    def unrelated_cosine(self) -> float:
        """The cosine that it gives to unrelated texts, at least 0 and below 1."""


class Fused(NamedTuple):
    """Scores, and the two parts whose weighted mean they are: arrays of equal length, values 0 to 1."""

    scores: Floats
    vector_parts: Floats
    keyword_parts: Floats


@dataclass(frozen=True, slots=True)
class Fusion:
    """A fusion method and its parameters."""

    method: FusionMethod = FusionMethod.ABSOLUTE
    vector_weight: float | None = None
    """Weight of the vector part, 0 to 1; the keyword part has the rest. None: the method's default."""
    rrf_k: int = RRF_K
    """At least 1. The larger it is, the less the first ranks stand out."""
    model: TextModel | None = None
    """The model that embeds the query. None, as for vectors from elsewhere: it reads every text, and its zero is 0."""

    @property
    def is_absolute(self) -> bool:
        """Whether a candidate's score is independent of the other candidates."""
        return self.method is FusionMethod.ABSOLUTE

    @property
    def slope(self) -> float:
        """How much faster than a cosine the vector part grows, at least 1."""
        return 1.0 / (1.0 - self._zero())

    def weight(self, query: str) -> float:
        """The weight of the vector part; 1 if the query has no keyword. It is less for text that the model cannot
        read, and 0 if there is neither a keyword nor anything that the model knows: to it, all emoji look alike.
        """
        if not query_terms(query):
            return float(self.model is None or self.model.coverage(query) > 0.0)
        weight = _VECTOR_WEIGHTS[self.method] if self.vector_weight is None else self.vector_weight
        return weight * self.read_share(query)

    def read_share(self, query: str) -> float:
        """How much of a text the model reads, above 0 and at most 1."""
        if self.model is None:
            return 1.0
        share = (self.model.coverage(query) - _UNREAD_COVERAGE) / (_READ_COVERAGE - _UNREAD_COVERAGE)
        return min(max(share, _LEAST_SHARE), 1.0)

    def fuse(self, query: str, cosines: Floats, keyword: Floats, *, meaning: float = 1.0) -> Fused:
        """The scores of the candidates. Cosines and keyword scores have equal length; a candidate without a word of the
        query has the keyword score 0. The weight of meaning is multiplied by `meaning`.
        """
        weight, similar = min(meaning * self.weight(query), 1.0), self.above_zero(cosines)
        vector_parts, keyword_parts = self._scaled(similar, similar), self._scaled(keyword, keyword)
        return Fused(weight * vector_parts + (1.0 - weight) * keyword_parts, vector_parts, keyword_parts)

    def bounds(self, query: str, cosines: Floats, keyword: Floats, cosine_max: float, keyword_scores: Floats) -> Floats:
        """The highest possible scores of further candidates with these keyword scores, and cosines of at most
        `cosine_max`.
        """
        weight = self.weight(query)
        by_meaning = self._scaled(self.above_zero(np.array([cosine_max])), self.above_zero(cosines))
        return weight * by_meaning + (1.0 - weight) * self._scaled(keyword_scores, keyword)

    def keyword_score_needed(self, query: str, score: float, cosine_max: float) -> float:
        """The keyword score that a candidate needs for this score, if its cosine is at most `cosine_max`; 0 if that
        depends on the other candidates.
        """
        weight = self.weight(query)
        if not self.is_absolute or weight >= 1.0:
            return 0.0
        vector_part = float(self.above_zero(np.array([cosine_max]))[0])
        return max((score - weight * vector_part) / (1.0 - weight), 0.0)

    def _zero(self) -> float:
        return 0.0 if self.model is None else self.model.unrelated_cosine()

    def above_zero(self, cosines: Floats) -> Floats:
        """The cosines on a scale from the model's zero to 1: the vector parts of scores."""
        zero = self._zero()
        return np.clip((cosines - zero) * self.slope if zero else cosines, 0.0, 1.0)

    def _scaled(self, values: Floats, among: Floats) -> Floats:
        """Transforms the values of a part as the method requires. Keeps their order."""
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
        # All values are equal: 1 if they are positive, otherwise 0.
        return np.where((values >= high) & (values > 0.0), 1.0, 0.0)
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    return np.where(values > 0.0, _SCALED_MIN + (1.0 - _SCALED_MIN) * scaled, 0.0)


VECTOR_FLOOR, KEYWORD_FLOOR = 0.44, 0.32
"""The floors of the two parts of a score, chosen on conversations and chats by `tests/bench/relevance.py`."""


def relevance_floors(fusion: Fusion, query: str, mode: SearchMode) -> RelevanceFloors:
    """The floors below which matches are mostly unrelated to the query.

    Empty if the scores depend on the other candidates.
    """
    if mode is SearchMode.KEYWORD:
        return RelevanceFloors(KEYWORD_FLOOR)
    if mode is SearchMode.VECTOR:
        return RelevanceFloors(_cosine(fusion, VECTOR_FLOOR))
    if not fusion.is_absolute:
        return NO_FLOORS
    weight = fusion.weight(query)
    # A paraphrase without a common word can hardly reach the floor of the mean. The less of a query the model reads,
    # the less its meaning alone is evidence.
    by_meaning = _cosine(fusion, VECTOR_FLOOR / fusion.read_share(query))
    return RelevanceFloors(weight * VECTOR_FLOOR + (1.0 - weight) * KEYWORD_FLOOR, by_meaning)


def _cosine(fusion: Fusion, vector_part: float) -> float:
    """The cosine of a vector part, which counts from the model's zero."""
    zero = 1.0 - 1.0 / fusion.slope
    return vector_part + (1.0 - vector_part) * zero
