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
from functools import cached_property, partial

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
_LOOK_UP = 64
"""Looking up what a word contributes around one passage takes as long as writing its gains of so many passages."""
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
    passages that are asked for, or that may be among the best.
    """

    def __init__(self, matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> None:
        """A weight of 0 ignores neighbours."""
        self._matches, self._cells = matches, _cells(matches.positions)
        self._weight = context_weight and context_weight * _evidence(matches)
        self._shares = self._weight * (REACH + 1 - np.arange(1, REACH + 1)) / REACH
        """How much words of a neighbour count, by its distance."""
        # One pass over all words takes half as long as adding word by word.
        places, gains = np.concatenate(self._cells.places), np.concatenate(matches.gains)
        self._alone = np.bincount(places, gains, self._cells.count).astype(np.float64, copy=False)
        """The summed gains of each cell without neighbours; 0 if it has none of the words."""
        self._held = self._alone > 0

    def all(self) -> tuple[Positions, Floats]:
        """Every such passage, by ascending position."""
        return self._those(np.flatnonzero(self._held))

    def best(self, count: int, sufficient: float, least: float = 0.0) -> tuple[Positions, Floats]:
        """The positions with the `count` highest sums, all that equal the last one, and some others, by ascending
        position; as far as they have sums of at least `least`. Sums from `sufficient` on count as equal.
        """
        cells = np.flatnonzero(self._held & (self._sums_max >= least * (1 - _TOLERANCE)))
        if count < len(cells):
            bound = min(np.partition(self._alone[cells], len(cells) - count)[len(cells) - count], sufficient)
            cells = cells[self._sums_max[cells] >= bound * (1 - _TOLERANCE)]
        return self._those(cells)

    def of(self, positions: Positions) -> tuple[Positions, Floats]:
        """The given ascending positions that contain any of the words."""
        cells = self._cells.of(positions)
        return self._those(cells[self._held[cells]])

    def _those(self, cells: NDArray[np.int64]) -> tuple[Positions, Floats]:
        return self._cells.positions(cells), self._sums_of(cells)

    @cached_property
    def _sums_max(self) -> Floats:
        """An upper bound of each cell's sum, as if each word of a neighbour counted separately."""
        if not self._weight:
            return self._alone
        return np.convolve(self._alone, np.concatenate((self._shares[::-1], [1.0], self._shares)), "same")

    def _sums_of(self, cells: NDArray[np.int64]) -> Floats:
        """The summed gains of cells. A word counts by the highest of its own gain and the shares of neighbours'."""
        if not self._weight:
            return self._alone[cells]
        summed, of_cells = np.zeros(len(cells)), np.zeros(self._cells.count)
        for places, gains in zip(self._cells.places, self._matches.gains, strict=True):
            are_few = _LOOK_UP * len(cells) < len(places)
            if not are_few:
                of_cells[places] = gains
            gains_at = partial(_looked_up, places, gains) if are_few else of_cells.take
            best = gains_at(cells)
            for distance, share in enumerate(self._shares, 1):
                np.maximum(best, share * gains_at(cells - distance), out=best)
                np.maximum(best, share * gains_at(cells + distance), out=best)
            summed += best
            if not are_few:
                of_cells[places] = 0.0
        return summed


def _looked_up(places: NDArray[np.int64], gains: Floats, cells: NDArray[np.int64]) -> Floats:
    """The gains of cells, 0 where the word is not in them. `places` ascend."""
    rows = np.minimum(np.searchsorted(places, cells), len(places) - 1)
    return np.where(places[rows] == cells, gains[rows], 0.0)


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
        return self.of_known[common(self.known, positions)[0]]


def _cells(positions: Sequence[Positions]) -> _Cells:
    held = [each for each in positions if len(each)]
    if not held:
        return _Cells(2 * REACH + 1, positions, 0)
    first = int(min(each[0] for each in held)) - REACH
    count = int(max(each[-1] for each in held)) - first + REACH + 1
    if count <= _DENSE * sum(map(len, held)):
        return _Cells(count, [each - first for each in positions], first)
    known = distinct(np.concatenate(held))
    # Wider gaps are cut, so that a few passages with very different ids need no large array.
    cells = REACH + np.cumsum(np.minimum(np.diff(known, prepend=known[0]), REACH + 1))
    places = [cells[np.searchsorted(known, each)] for each in positions]
    return _Cells(int(cells[-1]) + REACH + 1, places, 0, known, cells)


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


Ids = NDArray[np.int64]


def distinct(ids: Ids) -> Ids:
    """The ids in ascending order, each once. `np.unique` fills a hash table first, which takes ten times as long."""
    ordered = np.sort(ids)
    kept: Ids = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return kept


def common(one: Ids, other: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of both arrays, which ascend, where they have the same id. Costs what the shorter one costs."""
    if len(other) > len(one):
        rows, places = common(other, one)
        return places, rows
    rows = np.searchsorted(one, other)
    places = np.flatnonzero(one[np.minimum(rows, len(one) - 1)] == other) if len(one) else rows
    return rows[places], places
