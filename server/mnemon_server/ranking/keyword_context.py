"""Adds keyword scores from neighbouring passages, because consecutive passages are often about the same subject.

An answer seldom repeats the words of its question, but the passage before it often has them. So a word also counts for
the passages around the one that contains it, with a share that falls with the distance, unless it scores higher there
already. Only passages that share a word with the query are raised.

If neighbouring passages are unrelated, this would only blur the order. So the effect is scaled by evidence: how much
more often than by chance the query's words occur close together. Evidence is the share of such pairs that chance does
not explain, where one pair is always attributed to chance. It is near 0 in a store of unrelated passages, and the
scores then stay unchanged.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONTEXT_WEIGHT = 0.75
"""Weight of a word from the adjacent passage. At distance two it is two thirds of that, at distance three one third."""

REACH = 3
FULL_EVIDENCE = 0.25
"""The share of unexplained pairs from which neighbours count in full."""

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Which passages contain which words of a query. `terms`, `places` and `gains` have equal length; terms ascend."""

    positions: Positions
    """Positions of the passages with at least one word, ascending. The positions of neighbours differ by 1."""
    passage_count: int
    """Number of searched passages, with or without such words."""
    terms: NDArray[np.int64]
    """For each occurrence: the number of the word."""
    places: NDArray[np.int64]
    """For each occurrence: the passage, as a row of `positions`."""
    gains: Floats
    """For each occurrence: its contribution to the passage's score."""
    weights: Floats
    """The weight of each word: rare words have more."""


def scores(matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> Floats:
    """The summed gains of each passage, in the order of `positions`. A weight of 0 ignores neighbours."""
    count = len(matches.positions)
    if context_weight > 0 and count > 1:
        neighbours = _neighbours(matches.positions)
        by_term = _split(matches)
        if weight := context_weight * _evidence(matches, by_term, neighbours):
            return _with_context(by_term, neighbours, count, weight)
    return np.bincount(matches.places, matches.gains, minlength=count).astype(np.float64, copy=False)


def _neighbours(positions: Positions) -> list[NDArray[np.intp]]:
    """For each distance up to REACH, and each row: the row of the passage that many positions later, or one beyond the
    last row if that passage contains no word.

    The additional row is a dummy target, so that array operations need no special case.
    """
    count = len(positions)
    neighbours = [np.full(count, count) for _ in range(REACH)]
    # A passage at this distance is at most as many rows ahead, because positions ascend.
    for ahead in range(1, min(REACH, count - 1) + 1):
        distances = positions[ahead:] - positions[:-ahead]
        for distance in range(ahead, REACH + 1):
            rows = np.flatnonzero(distances == distance)
            neighbours[distance - 1][rows] = rows + ahead
    return neighbours


def _split(matches: Matches) -> list[tuple[NDArray[np.int64], Floats]]:
    """The places and gains of each word."""
    bounds = np.searchsorted(matches.terms, np.arange(1, len(matches.weights)))
    return list(zip(np.split(matches.places, bounds), np.split(matches.gains, bounds), strict=True))


def _evidence(
    matches: Matches, by_term: list[tuple[NDArray[np.int64], Floats]], neighbours: list[NDArray[np.intp]]
) -> float:
    """The evidence, 0 to 1, that neighbours are about one subject: observed pairs that share a word, against chance."""
    total = matches.passage_count
    chances = sum(max(total - distance, 0) for distance in range(1, REACH + 1)) / total**2
    importance = np.square(matches.weights)
    seen, by_chance = 0.0, float(importance.max())
    holds = np.zeros(len(matches.positions) + 1, np.bool_)
    for (places, _), weight in zip(by_term, importance.tolist(), strict=True):
        holds[places] = True
        seen += weight * sum(np.count_nonzero(holds[rows[places]]) for rows in neighbours)
        by_chance += weight * len(places) ** 2 * chances
        holds[places] = False
    unexplained = 1 - by_chance / seen if seen else 0.0
    return min(max(unexplained / FULL_EVIDENCE, 0.0), 1.0)


def _with_context(
    by_term: list[tuple[NDArray[np.int64], Floats]], neighbours: list[NDArray[np.intp]], count: int, weight: float
) -> Floats:
    steps = [(rows, weight * (REACH - i) / REACH) for i, rows in enumerate(neighbours)]
    summed, best = np.zeros(count + 1), np.zeros(count + 1)
    backwards = [_inverse(rows) for rows in neighbours]
    for places, gains in by_term:
        best[:] = 0.0
        best[places] = gains
        for (rows, share), inverse in zip(steps, backwards, strict=True):
            for towards in (rows[places], inverse[places]):
                best[towards] = np.maximum(best[towards], share * gains)
        summed += best
    lifted: Floats = summed[:-1]
    return lifted


def _inverse(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The inverse of `_neighbours` at one distance: for each row the row that maps to it."""
    inverse = np.full(len(rows) + 1, len(rows))
    inverse[rows] = np.arange(len(rows))
    return inverse[:-1]
