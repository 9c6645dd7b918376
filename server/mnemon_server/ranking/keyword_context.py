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
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.ranking.ascending import common, distinct

CONTEXT_WEIGHT = 0.75
"""Weight of a word from the adjacent passage. At distance two it is two thirds of that, at distance three one third."""

REACH = 3
FULL_EVIDENCE = 0.25
"""The share of unexplained pairs from which neighbours count in full."""
FULL_LENGTH = 64
"""The mean length in words up to which they do. Turns of a conversation are shorter, paragraphs longer."""

_DENSE = 16
"""Up to this many positions per occurrence, scores are added up in an array with a cell for every position."""
_TOLERANCE = 1e-9
"""Sums that differ by this share may have equal scores."""

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Rows = NDArray[np.intp]


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


class _Pairs(NamedTuple):
    """Passages that are neighbours, by their rows: the words of each `giver` count for its `taker` with this share."""

    givers: Rows
    takers: Rows
    shares: Floats


class SummedGains:
    """The passages that contain any of the words, with their summed gains. What neighbours add is computed only for
    passages that are asked for, or that may be among the best.
    """

    def __init__(self, matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> None:
        """A weight of 0 ignores neighbours."""
        self._matches = matches
        self._cells = _cells(matches.positions)
        self._weight = context_weight and context_weight * _evidence(matches)
        # One pass over all words takes half as long as adding word by word.
        places, gains = np.concatenate(self._cells.places), np.concatenate(matches.gains)
        alone = np.bincount(places, gains, self._cells.count).astype(np.float64, copy=False)
        self._held = np.flatnonzero(alone > 0)
        """The cells of the passages, ascending. A passage's row is its place in this array."""
        self._alone = alone[self._held]
        """The summed gains without neighbours."""

    def all(self) -> tuple[Positions, Floats]:
        """Every such passage, by ascending position."""
        return self._those(np.arange(len(self._held)))

    def best(self, count: int, sufficient: float) -> tuple[Positions, Floats]:
        """Those with the `count` highest sums, with all that equal the last one, and some others, by ascending
        position. Sums from `sufficient` on count as equal.
        """
        alone = self._alone
        if count >= len(alone):
            return self.all()
        bound = min(np.partition(alone, len(alone) - count)[len(alone) - count], sufficient)
        return self._those(np.flatnonzero(self._sums_max() >= bound * (1 - _TOLERANCE)))

    def of(self, positions: Positions) -> tuple[Positions, Floats]:
        """Those of the given ascending positions that contain any of the words."""
        return self._those(common(self._held, self._cells.of(positions))[0])

    def _those(self, rows: Rows) -> tuple[Positions, Floats]:
        return self._cells.positions(self._held[rows]), self._sums_of(rows)

    def _sums_max(self) -> Floats:
        """An upper bound of each passage's sum, as if each word of a neighbour counted separately."""
        givers, takers, shares = self._pairs
        added = np.bincount(takers, shares * self._alone[givers], len(self._held))
        return self._alone + added.astype(np.float64, copy=False)

    def _sums_of(self, rows: Rows) -> Floats:
        """The summed gains of passages. A word counts by the highest of its own gain and the shares of neighbours'."""
        if not self._weight:
            return self._alone[rows]
        places = np.full(len(self._held), -1)
        places[rows] = np.arange(len(rows))
        takers = places[self._pairs.takers]
        kept = np.flatnonzero(takers >= 0)
        takers, givers, shares = takers[kept], self._pairs.givers[kept], self._pairs.shares[kept]
        summed = np.zeros(len(rows))
        for of_word, gains in zip(self._rows_of_words, self._matches.gains, strict=True):
            gains_of_rows = np.zeros(len(self._held))
            gains_of_rows[of_word] = gains
            best = gains_of_rows[rows]
            np.maximum.at(best, takers, shares * gains_of_rows[givers])
            summed += best
        return summed

    @cached_property
    def _rows_of_words(self) -> list[Rows]:
        """The rows of each word's passages."""
        rows = np.empty(self._cells.count, np.intp)
        rows[self._held] = np.arange(len(self._held))
        return [rows[cells] for cells in self._cells.places]

    @cached_property
    def _pairs(self) -> _Pairs:
        """All neighbours. They are at most REACH rows apart."""
        pairs = [_Pairs(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))]
        for apart in range(1, REACH + 1) if self._weight else ():
            distances = self._held[apart:] - self._held[:-apart]
            first = np.flatnonzero(distances <= REACH)
            shares = self._weight * (REACH + 1 - distances[first]) / REACH
            pairs += [_Pairs(first, first + apart, shares), _Pairs(first + apart, first, shares)]
        return _Pairs(*map(np.concatenate, zip(*pairs, strict=True)))


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
        return _Cells(0, positions, 0)
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
