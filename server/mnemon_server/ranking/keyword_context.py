"""Adds keyword scores from neighbouring passages, because consecutive passages are often about the same subject.

An answer seldom repeats the words of its question, but the passage before it often has them. So a word also counts for
the passages around the one that contains it, with a share that falls with the distance, unless it scores higher there
already. Only passages that share a word with the query are raised.

If neighbouring passages are unrelated, this would only blur the order. So the effect is scaled by evidence: how much
more often than by chance the query's words occur close together. Evidence is the share of such pairs that chance does
not explain, where one pair is always attributed to chance. It is near 0 in a store of unrelated passages, and the
scores then stay unchanged.
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

_DENSE = 16
"""Up to this many positions per occurrence, scores are added up in an array with a cell for every position."""
_RANGE = 1 << 16
"""Number of cells that are added up together: half a MiB."""

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


def scores(matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> tuple[Positions, Floats]:
    """The passages that contain any of the words, by ascending position, and their summed gains. A weight of 0 ignores
    neighbours.
    """
    cells = _cells(matches.positions)
    held = np.zeros(cells.count, np.bool_)
    for places in cells.places:
        held[places] = True
    found = np.flatnonzero(held)
    if context_weight > 0 and (weight := context_weight * _evidence(matches)):
        summed = _with_context(cells, matches.gains, weight)
    else:
        summed = np.zeros(cells.count)
        for places, gains in zip(cells.places, matches.gains, strict=True):
            summed[places] += gains
    return cells.positions(found), summed[found]


@dataclass(frozen=True, slots=True)
class _Cells:
    """An array's cells for passages: those of neighbours are as far apart as their positions, up to REACH.

    The first and the last REACH cells belong to no passage, so that array operations need no special case.
    """

    count: int
    places: Sequence[NDArray[np.int64]]
    """For each word, the cells of its passages."""
    first: int
    known: Positions | None
    """The positions of all cells that belong to a passage; None if the cells follow each other like the positions."""

    def positions(self, found: NDArray[np.int64]) -> Positions:
        """The positions of the given cells, which are all that belong to a passage."""
        return found + self.first if self.known is None else self.known


def _cells(positions: Sequence[Positions]) -> _Cells:
    held = [each for each in positions if len(each)]
    if not held:
        return _Cells(0, positions, 0, None)
    first = int(min(each[0] for each in held)) - REACH
    count = int(max(each[-1] for each in held)) - first + REACH + 1
    if count <= _DENSE * sum(map(len, held)):
        return _Cells(count, [each - first for each in positions], first, None)
    known = np.unique(np.concatenate(held))
    # Wider gaps are cut, so that a few passages with very different ids need no large array.
    cells = REACH + np.cumsum(np.minimum(np.diff(known, prepend=known[0]), REACH + 1))
    places = [cells[np.searchsorted(known, each)] for each in positions]
    return _Cells(int(cells[-1]) + REACH + 1, places, 0, known)


def _with_context(cells: _Cells, of_words: Sequence[Floats], weight: float) -> Floats:
    """The summed gains of all cells, with those of neighbours: for each word, the highest of its own and its shares.

    Range by range, because within the processor's cache this takes a quarter of the time.
    """
    shares = [weight * (REACH + 1 - distance) / REACH for distance in range(1, REACH + 1)]
    summed = np.zeros(cells.count)
    for start in range(0, cells.count, _RANGE):
        stop = min(start + _RANGE, cells.count)
        within = summed[start:stop]
        best = np.empty(stop - start + 4 * REACH)
        for places, gains in zip(cells.places, of_words, strict=True):
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
