"""Picks the vectors that are probably nearest to a query, by comparing signs.

The more components of two vectors have equal signs, the smaller is the angle between them. So the vectors with the
fewest unequal signs contain nearly all of the nearest ones, if there are enough of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.quantized.block import WORD_BITS, Rows, SignWords, View, signs_of

FIRST_WORDS = 3
"""The words of signs that are compared for all vectors. Their distance, at most 192, fits a byte."""

FIRST_SHARE, FIRST_MIN, FIRST_OVERFETCH = 1 / 32, 16_384, 4
"""All signs are compared of this share of the vectors, at least of so many, and of so many for each one wanted."""

TIES_FACTOR = 4
"""If vectors that are equally far make the proposals this many times as many as wanted, they are cut."""

_REMOVED = np.uint8(255)
_CHUNK_ROWS = 65_536

Distances = NDArray[np.uint8] | NDArray[np.uint16]


def propose(views: Sequence[View], query: Vector, origin: Vector, wanted: int) -> list[Rows]:
    """The rows of each view that are probably nearest to the query: at least `wanted` in all, if there are as many."""
    signs = signs_of(query[None, :], origin)[:, 0]
    total = sum(len(view.ids) for view in views)
    distances = [_first_distances(view, signs) for view in views]
    compared = max(FIRST_MIN, int(FIRST_SHARE * total), FIRST_OVERFETCH * wanted)
    rows = _nearest(distances, compared, WORD_BITS * FIRST_WORDS)
    exact_distances = [_distances(*parts, signs) for parts in zip(views, distances, rows, strict=True)]
    nearest = _nearest(exact_distances, wanted, WORD_BITS * len(signs))
    return [part[chosen] for part, chosen in zip(rows, nearest, strict=True)]


def _first_distances(view: View, query: SignWords) -> NDArray[np.uint8]:
    """The number of unequal signs among those of the first words; `_REMOVED` for removed rows."""
    found = np.empty(len(view.ids), np.uint8)
    # In chunks, so that the intermediate results stay in a core's cache.
    for start in range(0, len(found), _CHUNK_ROWS):
        part = slice(start, start + _CHUNK_ROWS)
        np.bitwise_count(view.signs[0, part] ^ query[0], out=found[part])
        for word in range(1, min(FIRST_WORDS, len(query))):
            found[part] += np.bitwise_count(view.signs[word, part] ^ query[word])
    if not view.alive.all():
        found[~view.alive] = _REMOVED
    return found


def _distances(view: View, first: NDArray[np.uint8], rows: Rows, query: SignWords) -> NDArray[np.uint16]:
    """The number of unequal signs of these rows."""
    found = first[rows].astype(np.uint16)
    for word in range(FIRST_WORDS, len(query)):
        found += np.bitwise_count(view.signs[word][rows] ^ query[word])
    return found


def _nearest(distances: Sequence[Distances], count: int, farthest: int) -> list[Rows]:
    """The rows of each part that are no farther than the `count`-th nearest of all parts, and than `farthest`."""
    low, high = 0, farthest
    while low < high:
        middle = (low + high) // 2
        if sum(int(np.count_nonzero(part <= middle)) for part in distances) >= count:
            high = middle
        else:
            low = middle + 1
    rows = [np.flatnonzero(part <= high) for part in distances]
    if sum(map(len, rows)) <= TIES_FACTOR * count:
        return rows
    # Many are equally far: all that are nearer, and the oldest of those.
    left = count
    for number, part in enumerate(distances):
        is_tie = part[rows[number]] == high
        is_left = np.cumsum(is_tie) <= left
        rows[number] = rows[number][~is_tie | is_left]
        left -= min(left, int(np.count_nonzero(is_tie)))
    return rows
