"""The signs of vectors as bits, how far they are from each other, and clusters of them.

The more components of two vectors have equal signs, the smaller is the angle between them.
"""

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import Vector

_WORD_BITS = 64
_ROUNDS = 5
_COMPARED_AT_ONCE = 128
TIES_FACTOR = 4
"""If vectors that are equally far make those selected this many times as many as wanted, they are cut."""

SignWords = NDArray[np.uint64]
Distances = NDArray[np.uint16]
Rows = NDArray[np.intp]


def words_per_vector(dimension: int) -> int:
    """The number of words that hold the signs of a vector."""
    return -(-dimension // _WORD_BITS)


def signs_of(vectors: NDArray[np.float32], origin: Vector) -> SignWords:
    """On which side of the origin each component lies, as bits: from shape (n, dimension) to (words, n)."""
    bits = np.packbits(vectors > origin, axis=1)
    words = np.zeros((len(vectors), 8 * words_per_vector(vectors.shape[1])), np.uint8)
    words[:, : bits.shape[1]] = bits
    return words.view(np.uint64).T


def distances(signs: SignWords, query: SignWords) -> Distances:
    """The number of unequal signs: from shape (..., words, n) to (..., n). `query` has the shape (words)."""
    apart: Distances = np.bitwise_count(signs ^ query[:, None]).sum(axis=-2, dtype=np.uint16)
    return apart


def nearest(apart: Distances, count: int, farthest: int) -> Rows:
    """The rows with the `count` smallest distances, and those that equal the last of these; none above `farthest`."""
    # There are few different distances, and counting them takes a third of the time of a partition.
    within = np.cumsum(np.bincount(apart, minlength=farthest + 1)[: farthest + 1])
    bound = min(int(np.searchsorted(within, count + 1)), farthest)
    rows = np.flatnonzero(apart <= bound)
    if len(rows) <= TIES_FACTOR * count:
        return rows
    # Many are equally far: all that are nearer, and some of those.
    is_tie = apart[rows] == bound
    return np.concatenate([rows[~is_tie], rows[is_tie][:count]])


def cluster_centres(sample: SignWords, count: int) -> SignWords:
    """The signs of `count` centres, of shape (words, count), for a sample of shape (words, n): each sign is that of
    most of the vectors that are nearest to the centre.
    """
    chosen = np.random.default_rng(0).choice(sample.shape[1], count, replace=False)
    centres = np.ascontiguousarray(sample[:, chosen])
    bits = _bits(sample)
    for _ in range(_ROUNDS):
        members = nearest_centres(sample, centres)
        order = np.argsort(members, kind="stable")
        used, starts, sizes = np.unique(members[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(bits[order], starts, axis=0, dtype=np.int32)
        centres[:, used] = np.packbits(2 * sums > sizes[:, None], axis=1).view(np.uint64).T
    return centres


def nearest_centres(signs: SignWords, centres: SignWords) -> NDArray[np.intp]:
    """The number of the nearest centre for each of n vectors, of shape (words, n)."""
    found = np.empty(signs.shape[1], np.intp)
    # A few at a time, so that the intermediate results stay in a core's cache.
    for start in range(0, len(found), _COMPARED_AT_ONCE):
        part = signs[:, start : start + _COMPARED_AT_ONCE]
        apart = np.bitwise_count(part[0, :, None] ^ centres[0]).astype(np.uint16)
        for word in range(1, len(centres)):
            apart += np.bitwise_count(part[word, :, None] ^ centres[word])
        found[start : start + part.shape[1]] = apart.argmin(axis=1)
    return found


def sides(signs: SignWords, dimension: int) -> NDArray[np.float32]:
    """The signs as 1 and -1: from shape (words, n) to (n, dimension)."""
    return 2 * _bits(signs)[:, :dimension].astype(np.float32) - 1


def _bits(signs: SignWords) -> NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(signs.T).view(np.uint8), axis=1)
