"""Vectors with one byte and one bit per component, in blocks of bounded size that never move."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Vector

WORD_BITS = 64
"""The number of signs in a word."""
_LEVELS = 127
_CHUNK_ROWS = 2_048
_TINY = np.float32(1e-12)
_ID_BYTES, _SCALE_BYTES, _ALIVE_BYTES = 8, 4, 1

Rows = NDArray[np.intp]
SignWords = NDArray[np.uint64]


def words_per_vector(dimension: int) -> int:
    """The number of words that hold the signs of a vector."""
    return -(-dimension // WORD_BITS)


def bytes_per_vector(dimension: int) -> int:
    """The memory that a vector of `dimension` components takes."""
    return dimension + 8 * words_per_vector(dimension) + _ID_BYTES + _SCALE_BYTES + _ALIVE_BYTES


def signs_of(vectors: NDArray[np.float32], origin: Vector) -> SignWords:
    """On which side of the origin each component lies, as bits: from shape (n, dimension) to (words, n)."""
    bits = np.packbits(vectors > origin, axis=1)
    words = np.zeros((len(vectors), 8 * words_per_vector(vectors.shape[1])), np.uint8)
    words[:, : bits.shape[1]] = bits
    return words.view(np.uint64).T


@dataclass(frozen=True, slots=True)
class View:
    """A reader's view of a block of n rows. A writer only appends behind it."""

    ids: PassageIds
    """Passage ids, ascending, of shape (n)."""
    signs: SignWords
    """The signs of the components, of shape (words, n)."""
    codes: NDArray[np.int8]
    """The components as multiples of the row's scale, of shape (n, dimension)."""
    scales: NDArray[np.float32]
    """Of shape (n)."""
    alive: NDArray[np.bool_]
    """Which rows were not removed, of shape (n)."""

    def rows_of(self, passage_ids: PassageIds) -> Rows:
        """The rows of those ids that exist and are alive. The ids ascend."""
        inside = passage_ids[np.searchsorted(passage_ids, self.ids[0]) :] if len(self.ids) else passage_ids[:0]
        rows = np.searchsorted(self.ids, inside)
        rows, inside = rows[rows < len(self.ids)], inside[rows < len(self.ids)]
        found: Rows = rows[(self.ids[rows] == inside) & self.alive[rows]]
        return found

    def similarities(self, query: Vector, rows: Rows) -> NDArray[np.float64]:
        """The approximate cosine of these rows."""
        found = np.empty(len(rows), np.float64)
        # In chunks that fit a core's cache.
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = rows[start : start + _CHUNK_ROWS]
            found[start : start + len(part)] = np.vecdot(self.codes[part].astype(np.float32), query) * self.scales[part]
        return np.clip(found, -1.0, 1.0)


class Block:
    """Up to `rows_max` vectors. One thread changes it; any number of threads read its view."""

    def __init__(self, dimension: int, rows_max: int) -> None:
        # The system provides the memory of large arrays as they fill.
        self._ids = np.empty(rows_max, np.int64)
        self._signs = np.empty((words_per_vector(dimension), rows_max), np.uint64)
        self._codes = np.empty((rows_max, dimension), np.int8)
        self._scales = np.empty(rows_max, np.float32)
        self._alive = np.empty(rows_max, np.bool_)
        self.live_count = 0
        """The number of rows that were not removed."""
        self._publish(0)

    @property
    def room(self) -> int:
        """The number of rows that can be added."""
        return len(self._ids) - len(self.view.ids)

    def add(self, passage_ids: PassageIds, vectors: NDArray[np.float32], origin: Vector) -> None:
        """Adds up to `room` vectors of shape (n, dimension). The ids ascend, and are larger than those before."""
        scales = np.maximum(np.abs(vectors).max(axis=1), _TINY) / np.float32(_LEVELS)
        codes = np.rint(vectors / scales[:, None]).astype(np.int8)
        self._append(passage_ids, signs_of(vectors, origin), codes, scales)

    def take(self, view: View, rows: Rows) -> None:
        """Adds up to `room` rows of another block."""
        self._append(view.ids[rows], view.signs[:, rows], view.codes[rows], view.scales[rows])

    def remove(self, passage_ids: PassageIds) -> int:
        """Removes vectors, given by ascending ids; unknown ids are ignored. Returns how many there were."""
        rows = self.view.rows_of(passage_ids)
        if len(rows):
            # A copy, because a reader's view must not change.
            self._alive = self._alive.copy()
            self._alive[rows] = False
            self.live_count -= len(rows)
            self._publish(len(self.view.ids))
        return len(rows)

    def _append(self, ids: PassageIds, signs: SignWords, codes: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        start = len(self.view.ids)
        new = slice(start, start + len(ids))
        self._ids[new], self._signs[:, new], self._codes[new], self._scales[new] = ids, signs, codes, scales
        self._alive[new] = True
        self.live_count += len(ids)
        self._publish(new.stop)

    def _publish(self, count: int) -> None:
        self.view = View(
            self._ids[:count],
            self._signs[:, :count],
            self._codes[:count],
            self._scales[:count],
            self._alive[:count],
        )
        """What readers see."""
