"""BM25 computed from occurrences of a query's words, as arrays.

An occurrence is one number: the passage's id, how often the passage contains the word, and the passage's length, in the
bits from high to low. So occurrences sort by passage, and the low bits look up what the occurrence contributes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import NO_SCORES, KeywordScores, Scores
from mnemon_server.ranking.analysis import QueryWords
from mnemon_server.ranking.keyword_context import Matches, SummedGains, common, distinct, weight_at

LENGTH_BITS = 8
COUNT_BITS = 8
ID_SHIFT = LENGTH_BITS + COUNT_BITS
COUNT_MAX = (1 << COUNT_BITS) - 1
"""A word counts at most this often in a passage. Contributions are saturated long before."""

_LENGTH_STEPS = 16
"""Steps per doubling of the length. 255 steps reach 60,000 words, each within 2.2 % of the true length."""

_SATURATION, _LENGTH_WEIGHT = 0.9, 0.4
"""BM25's k1 and b, with values that are usual for short passages. The values 1.2 and 0.75 find less in
conversations.
"""

_LENGTHS_READ = 1 << 13
"""About so many occurrences tell how long passages are: reading all would take a tenth of the time of scoring them."""

Floats = NDArray[np.float64]
PassageIds = NDArray[np.int64]
Occurrences = NDArray[np.int64]
"""The occurrences of one word, ascending, one for each passage that contains it."""

_COUNTS = np.arange(COUNT_MAX + 1)[:, np.newaxis]
_LENGTHS = np.exp2(np.arange(1 << LENGTH_BITS) / _LENGTH_STEPS) - 1


@dataclass(frozen=True, slots=True)
class Found:
    """The occurrences of a query's words in a part of an index."""

    passage_count: int
    """Number of passages, with or without these words."""
    occurrences: Sequence[Occurrences]
    """For each word of the query."""


def length_code(length: int) -> int:
    """The logarithm of a passage's length in words, as stored."""
    return min(round(_LENGTH_STEPS * math.log2(length + 1)), (1 << LENGTH_BITS) - 1)


def score(
    words: QueryWords,
    parts: Sequence[Found],
    among: PassageIds | None,
    *,
    context_weight: float,
) -> KeywordScores:
    """The scores of the passages that share a word with the query; only those in `among`, if given, which must ascend.

    A score is BM25 relative to the score of the query's own text, 0 to 1. The weights of words, and the length that
    counts as usual, come from the searched passages only, so passages outside the search do not affect scores.
    Neighbours are adjacent passages among the searched ones, see `keyword_context`; their words have `context_weight`
    if passages are short. No passage is in two of the parts, which have what the index contains of `words.terms`.
    """
    of_variants = iter(_joined(each, among) for each in zip(*(part.occurrences for part in parts), strict=True))
    of_terms = [_united([next(of_variants) for _ in group]) for group in words.groups]
    positions = [each >> ID_SHIFT for each in of_terms]
    if among is not None:
        positions = [common(each, among)[1] for each in positions]
    if not any(map(len, positions)):
        return NO_SCORES
    searched = sum(part.passage_count for part in parts) if among is None else len(among)
    weights = _weights(np.array([len(each) for each in positions]), searched)
    mean_length = _mean_length(of_terms)
    low_bits = [each & ((1 << ID_SHIFT) - 1) for each in of_terms]
    own_counts = [min(max(words.own[term] for term in group), COUNT_MAX) for group in words.groups]
    code = length_code(words.own.total())
    own_bits = [count << LENGTH_BITS | code for count in own_counts]
    saturated = _saturated(mean_length, max(*own_bits, *(int(each.max(initial=0)) for each in low_bits)))
    gains = [weight * saturated[each] for weight, each in zip(weights, low_bits, strict=True)]
    own_score = sum(weight * saturated[each] for weight, each in zip(weights, own_bits, strict=True))
    matches = Matches(positions=positions, gains=gains, weights=weights, passage_count=searched)
    weight = weight_at(mean_length / words.terms_per_word, context_weight)
    return _ScoredMatches(SummedGains(matches, weight), max(own_score, 1e-9), among)


class _ScoredMatches:
    """See KeywordScores."""

    def __init__(self, sums: SummedGains, own_score: float, among: PassageIds | None) -> None:
        self._sums = sums
        self._own_score = own_score
        self._among = among
        """The positions of `sums` are places in this array, or passage ids if it is None."""

    @property
    def passage_ids(self) -> PassageIds:
        return self._all.passage_ids

    @property
    def scores(self) -> Floats:
        return self._all.scores

    def best(self, count: int, least: float = 0.0) -> Scores:
        return self._scores(*self._sums.best(count, self._own_score, least * self._own_score)).best(count, least)

    def of(self, passage_ids: PassageIds) -> Scores:
        wanted = distinct(passage_ids)
        places = wanted if self._among is None else common(wanted, self._among)[1]
        return self._scores(*self._sums.of(places))

    @cached_property
    def _all(self) -> Scores:
        return self._scores(*self._sums.all())

    def _scores(self, positions: NDArray[np.int64], sums: Floats) -> Scores:
        ids = positions if self._among is None else self._among[positions]
        return Scores(ids, np.minimum(sums / self._own_score, 1.0))


def _joined(parts: Sequence[Occurrences], among: PassageIds | None) -> Occurrences:
    """The occurrences of one word in all parts, or in `among`. Each part covers its own range of ids."""
    held = sorted((part for part in parts if len(part)), key=lambda part: int(part[0]))
    if among is not None:
        held = [_narrowed(part, among) for part in held]
    if len(held) == 1:
        return held[0]
    return np.concatenate(held) if held else np.empty(0, np.int64)


def _narrowed(found: Occurrences, among: PassageIds) -> Occurrences:
    """The occurrences in the passages of `among`, which costs as much as reading `among`: they sort by passage."""
    if len(among) > len(found):
        return found[common(found >> ID_SHIFT, among)[0]]
    rows = np.searchsorted(found, among << ID_SHIFT)
    rows = rows[: np.searchsorted(rows, len(found))]
    next_ones = found[rows]
    kept: Occurrences = next_ones[next_ones >> ID_SHIFT == among[: len(rows)]]
    return kept


def _united(variants: Sequence[Occurrences]) -> Occurrences:
    """The occurrences of a word in all its variants. A passage that contains several counts the most frequent one."""
    held = [each for each in variants if len(each)]
    if len(held) < 2:
        return held[0] if held else np.empty(0, np.int64)
    found = np.sort(np.concatenate(held))
    united: Occurrences = found[np.diff(found >> ID_SHIFT, append=-1) != 0]
    return united


def _weights(holding: NDArray[np.int64], passage_count: int) -> Floats:
    """The weight of each word, given the number of passages that contain it: BM25's idf in the form that is always
    positive, so that small stores find by keyword too.
    """
    weights: Floats = np.log1p((passage_count - holding + 0.5) / (holding + 0.5))
    return weights


def _mean_length(of_terms: Sequence[Occurrences]) -> float:
    """The mean length of the passages with these words. Passages without any of them may be in another language, whose
    texts have other numbers of terms.
    """
    step = 1 + sum(map(len, of_terms)) // _LENGTHS_READ
    codes = np.concatenate([each[::step] for each in of_terms]) & ((1 << LENGTH_BITS) - 1)
    return float(_LENGTHS[codes].mean())


def _saturated(mean_length: float, bits_max: int) -> Floats:
    """The score of an occurrence per weight, by its low bits, up to the given ones. Words are seldom often in a
    passage, so to compute all takes longer than to score the passages of one user.
    """
    counts = _COUNTS[: (bits_max >> LENGTH_BITS) + 1]
    norms = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * _LENGTHS / mean_length
    saturated: Floats = counts * (_SATURATION + 1) / (counts + _SATURATION * norms)
    return saturated.ravel()
