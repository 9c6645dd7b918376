"""Arrays of ids in ascending order, each id once."""

import numpy as np
from numpy.typing import NDArray

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
