"""Adds keyword scores from neighbouring passages, because consecutive passages are often about the same subject.

An answer seldom repeats the words of its question, but the passage before it often has them. So a word also counts for
the passages around the one that contains it, with a share that falls with the distance, unless it scores higher there
already. Only passages that share a word with the query are raised.

If neighbouring passages are unrelated, this would only blur the order. So the effect is scaled by evidence: how much
more often than by chance the query's words occur close together. Evidence is the share of such pairs that chance does
not explain, where one pair is always attributed to chance. It is near 0 in a store of unrelated passages, and the
scores then stay unchanged. Long passages have the words of their subject themselves, so the effect falls with their
length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONTEXT_WEIGHT = 0.75
"""Weight of a word from the adjacent passage. At distance two it is two thirds of that, at distance three one third."""

REACH = 3
FULL_EVIDENCE = 0.25
"""The share of unexplained pairs from which neighbours count in full."""
FULL_LENGTH = 64
"""The mean length in words up to which they do. Turns of a conversation are shorter, paragraphs longer."""

_DENSE = 16
"""Up to this many positions per occurrence, scores are added up in an array with a cell for every position."""
_RANGE = 1 << 16
"""Number of cells that are added up together: half a MiB."""

_FEW = 16
"""Up to one cell in so many is computed without the others."""
_TOLERANCE = 1e-9
"""Sums that differ by this share may have equal scores."""

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Which passages contain which words of a query. `positions`, `gains` and `weights` have one item for each word."""

    positions: Sequence[Positions]
    """The positions of the passages that contain the word, ascending. The positions of neighbours differ by 1."""
    gains: Sequence[Floats]
    """The word's contribution to the score of each of these passages, more than 0."""
    weights: Floats
    """The weight of each word: rare words have more."""
    passage_count: int
    """Number of searched passages, with or without such words."""


def weight_at(mean_length: float, context_weight: float = CONTEXT_WEIGHT) -> float:
    """The weight of words from neighbours of passages that have this mean length, in words."""
    return context_weight * min(1.0, FULL_LENGTH / mean_length)


class SummedGains:
    """The passages that contain any of the words, with their summed gains. What neighbours add is computed only for
    passages that are asked for.
    """

    def __init__(self, matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> None:
        """A weight of 0 ignores neighbours."""
        self._gains = matches.gains
        self._cells = _cells(matches.positions)
        self._weight = context_weight and context_weight * _evidence(matches)
        self._alone = np.zeros(self._cells.count)
        """The summed gains of each cell without neighbours."""
        for places, gains in zip(self._cells.places, self._gains, strict=True):
            np.add.at(self._alone, places, gains)
        self._held = np.flatnonzero(self._alone > 0)

    def all(self) -> tuple[Positions, Floats]:
        """Every such passage, by ascending position."""
        return self._cells.positions(self._held), self._summed()[self._held]

    def best(self, count: int, sufficient: float) -> tuple[Positions, Floats]:
        """Those with the `count` highest sums, with all that equal the last one, and some others, by ascending
        position. Sums from `sufficient` on count as equal.
        """
        alone = self._alone[self._held]
        if count >= len(alone):
            return self.all()
        bound = min(np.partition(alone, len(alone) - count)[len(alone) - count], sufficient)
        # No passage gains more than this from its neighbours.
        lifted_max = self._weight * sum(float(gains.max(initial=0.0)) for gains in self._gains)
        cells = self._held[alone >= bound * (1 - _TOLERANCE) - lifted_max]
        return self._cells.positions(cells), self._sums_of(cells)

    def of(self, positions: Positions) -> tuple[Positions, Floats]:
        """Those of the given ascending positions that contain any of the words."""
        cells = self._cells.of(positions)
        cells = cells[self._alone[cells] > 0]
        return self._cells.positions(cells), self._sums_of(cells)

    def _summed(self) -> Floats:
        """The sum of each cell."""
        if not self._weight:
            return self._alone
        return _with_context(self._cells.count, self._cells.places, self._gains, self._weight)

    def _sums_of(self, cells: NDArray[np.int64]) -> Floats:
        if not self._weight or _FEW * len(cells) > len(self._held):
            return self._summed()[cells]
        # The same among these cells and their neighbours alone.
        is_near = np.zeros(self._cells.count, np.bool_)
        for distance in range(-REACH, REACH + 1):
            is_near[cells + distance] = True
        near = np.flatnonzero(is_near)
        numbers = np.empty(self._cells.count, np.int32)
        numbers[near] = np.arange(len(near))
        rows = [np.flatnonzero(is_near[places]) for places in self._cells.places]
        places = [numbers[each[kept]] for each, kept in zip(self._cells.places, rows, strict=True)]
        gains = [each[kept] for each, kept in zip(self._gains, rows, strict=True)]
        return _with_context(len(near), places, gains, self._weight)[numbers[cells]]


@dataclass(frozen=True, slots=True)
class _Cells:
    """An array's cells for passages: those of neighbours are as far apart as their positions, up to REACH.

    The first and the last REACH cells belong to no passage, so that array operations need no special case.
    """

    count: int
    places: Sequence[NDArray[np.int64]]
    """For each word, the cells of its passages."""
    first: int
    """The position of the first cell, if the cells follow each other like the positions."""
    known: Positions | None = None
    """Otherwise, the positions of all passages, ascending; `of_known` has their cells."""
    of_known: NDArray[np.int64] | None = None

    def positions(self, cells: NDArray[np.int64]) -> Positions:
        """The positions of cells that belong to passages."""
        if self.known is None or self.of_known is None:
            return cells + self.first
        return self.known[np.searchsorted(self.of_known, cells)]

    def of(self, positions: Positions) -> NDArray[np.int64]:
        """The cells of these positions, as far as they have one."""
        if self.known is None or self.of_known is None:
            cells = positions - self.first
            return cells[(cells >= 0) & (cells < self.count)]
        return self.of_known[np.isin(self.known, positions, assume_unique=True)]


def _cells(positions: Sequence[Positions]) -> _Cells:
    held = [each for each in positions if len(each)]
    if not held:
        return _Cells(0, positions, 0)
    first = int(min(each[0] for each in held)) - REACH
    count = int(max(each[-1] for each in held)) - first + REACH + 1
    if count <= _DENSE * sum(map(len, held)):
        return _Cells(count, [each - first for each in positions], first)
    known = np.unique(np.concatenate(held))
    # Wider gaps are cut, so that a few passages with very different ids need no large array.
    cells = REACH + np.cumsum(np.minimum(np.diff(known, prepend=known[0]), REACH + 1))
    places = [cells[np.searchsorted(known, each)] for each in positions]
    return _Cells(int(cells[-1]) + REACH + 1, places, 0, known, cells)


def _with_context(
    count: int, of_cells: Sequence[NDArray[np.integer]], of_words: Sequence[Floats], weight: float
) -> Floats:
    """The summed gains of all cells, with those of neighbours: for each word, the highest of its own and its shares.

    Range by range, because within the processor's cache this takes a quarter of the time.
    """
    shares = [weight * (REACH + 1 - distance) / REACH for distance in range(1, REACH + 1)]
    summed = np.zeros(count)
    for start in range(0, count, _RANGE):
        stop = min(start + _RANGE, count)
        within = summed[start:stop]
        best = np.empty(stop - start + 4 * REACH)
        for places, gains in zip(of_cells, of_words, strict=True):
            # Passages up to REACH outside of the range have neighbours in it.
            low, high = np.searchsorted(places, (start - REACH, stop + REACH)).tolist()
            own, gained = places[low:high] - (start - 2 * REACH), gains[low:high]
            best[:] = 0.0
            best[own] = gained
            for distance, share in enumerate(shares, start=1):
                shared = share * gained
                for towards in (own - distance, own + distance):
                    best[towards] = np.maximum(best[towards], shared)
            within += best[2 * REACH : -2 * REACH]
    return summed


def _evidence(matches: Matches) -> float:
    """The evidence, 0 to 1, that neighbours are about one subject: observed pairs that share a word, against chance."""
    total = matches.passage_count
    chances = sum(max(total - distance, 0) for distance in range(1, REACH + 1)) / total**2
    importance = np.square(matches.weights)
    seen, by_chance = 0.0, float(importance.max())
    for positions, weight in zip(matches.positions, importance.tolist(), strict=True):
        # A passage at this distance is at most as many items ahead, because positions ascend.
        near = (positions[ahead:] - positions[:-ahead] <= REACH for ahead in range(1, REACH + 1))
        seen += weight * sum(map(np.count_nonzero, near))
        by_chance += weight * len(positions) ** 2 * chances
    unexplained = 1 - by_chance / seen if seen else 0.0
    return min(max(unexplained / FULL_EVIDENCE, 0.0), 1.0)
