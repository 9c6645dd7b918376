"""What the words of neighbours tell: passages that were stored one after the other are often about one thing.

An answer seldom repeats the words of its question, but what was said just before has them. So a word counts for the
passages around the one that holds it, too, at a share that falls with the distance, unless it counts for more there
already. Only passages that share a word with the query themselves are lifted.

Where neighbours have nothing to do with each other, that would only blur the order. So it is done as far as the query's
words stand together more often than chance has it: the share of such pairs that chance does not explain, of which one
pair may always be, decides. It is near 0 in a store of unrelated passages, and there the scores stay as they were.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONTEXT_WEIGHT = 0.75
"""Of a word in the next passage; two further on two thirds of that, three further on one third."""

REACH = 3
FULL_EVIDENCE = 0.25
"""So much of the pairs must be left unexplained for neighbours to count in full."""

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Which passages hold which words of a query. `terms`, `places` and `gains` are of one length, terms ascending."""

    positions: Positions
    """Of each passage that holds a word, ascending: neighbours are those whose positions differ by 1."""
    passage_count: int
    """Of all that are searched, with and without such words."""
    terms: NDArray[np.int64]
    """The word of each occurrence, by number."""
    places: NDArray[np.int64]
    """The passage of each occurrence, as a row of `positions`."""
    gains: Floats
    """What each occurrence adds to its passage's score."""
    weights: Floats
    """How telling each word is."""


def scores(matches: Matches, context_weight: float = CONTEXT_WEIGHT) -> Floats:
    """The summed gains of each passage, in the order of `positions`; weight 0 leaves neighbours out."""
    count = len(matches.positions)
    if context_weight > 0 and count > 1:
        neighbours = [_next(matches.positions, distance) for distance in range(1, REACH + 1)]
        by_term = _split(matches)
        if weight := context_weight * _evidence(matches, by_term, neighbours):
            return _with_context(by_term, neighbours, count, weight)
    return np.bincount(matches.places, matches.gains, minlength=count).astype(np.float64, copy=False)


def _next(positions: Positions, distance: int) -> NDArray[np.intp]:
    """The row of the passage so many positions further on, for each row; where it holds no word, one beyond the last.

    That extra row takes what belongs nowhere.
    """
    rows = np.searchsorted(positions, positions + distance)
    found = np.append(positions, -1)[rows] == positions + distance
    return np.where(found, rows, len(positions))


def _split(matches: Matches) -> list[tuple[NDArray[np.int64], Floats]]:
    """The places and gains of each word."""
    bounds = np.searchsorted(matches.terms, np.arange(1, len(matches.weights)))
    return list(zip(np.split(matches.places, bounds), np.split(matches.gains, bounds), strict=True))


def _evidence(
    matches: Matches, by_term: list[tuple[NDArray[np.int64], Floats]], neighbours: list[NDArray[np.intp]]
) -> float:
    """How far neighbours are about one thing, 0 to 1: pairs that share a word, and those that chance would make."""
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
    """For each row the one that leads to it, as in `_next`."""
    inverse = np.full(len(rows) + 1, len(rows))
    inverse[rows] = np.arange(len(rows))
    return inverse[:-1]
