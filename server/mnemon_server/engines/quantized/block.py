"""Vectors with one byte and one bit per component, in blocks of bounded size that never move."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds, Vector
from mnemon_server.engines.quantized.signs import SignWords, signs_of, words_per_vector

_LEVELS = 127
_CHUNK_ROWS = 2_048
_QUANTIZED_AT_ONCE = 256
_TINY = np.float32(1e-12)

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RoundedVectors:
    """The forms of n vectors in memory."""

    signs: SignWords
    """The signs of the components relative to an origin, of shape (words, n)."""
    codes: NDArray[np.int8]
    """The components as multiples of the row's scale, of shape (n, dimension)."""
    scales: NDArray[np.float32]
    """Of shape (n)."""

    def part(self, start: int, stop: int) -> "RoundedVectors":
        """The forms of some of the vectors."""
        rows = slice(start, stop)
        return RoundedVectors(self.signs[:, rows], self.codes[rows], self.scales[rows])


def round_vectors(vectors: NDArray[np.float32], origin: Vector) -> RoundedVectors:
    """Rounds vectors of shape (n, dimension)."""
    codes = np.empty(vectors.shape, np.int8)
    scales = np.empty(len(codes), np.float32)
    # A few at a time, so that the intermediate results stay in a core's cache.
    for start in range(0, len(codes), _QUANTIZED_AT_ONCE):
        rows = slice(start, start + _QUANTIZED_AT_ONCE)
        scales[rows] = np.maximum(np.abs(vectors[rows]).max(axis=1), _TINY) / np.float32(_LEVELS)
        codes[rows] = np.rint(vectors[rows] / scales[rows, None])
    return RoundedVectors(signs_of(vectors, origin), codes, scales)


@dataclass(frozen=True, slots=True)
class View:
    """A reader's view of a block of n rows. A writer only appends behind it."""

    ids: PassageIds
    """Passage ids, ascending, of shape (n)."""
    signs: SignWords
    """The signs of the components, of shape (words, n); (words, 0) once the inverted lists have them."""
    codes: NDArray[np.int8]
    """The components as multiples of the row's scale, of shape (n, dimension); (0, dimension) if that is too much."""
    scales: NDArray[np.float32]
    """Of shape (n), or (0)."""
    alive: NDArray[np.bool_]
    """Which rows were not removed, of shape (n)."""

    @property
    def has_codes(self) -> bool:
        """Whether the rounded components are held."""
        return len(self.codes) == len(self.ids)

    @property
    def has_signs(self) -> bool:
        """Whether the signs are held."""
        return len(self.signs[0]) == len(self.ids)

    def rows_of(self, passage_ids: PassageIds) -> Rows:
        """The rows of those ids that exist and are alive. The ids ascend."""
        if not len(self.ids):
            return np.empty(0, np.intp)
        inside = passage_ids[slice(*np.searchsorted(passage_ids, (self.ids[0], self.ids[-1] + 1)))]
        if self.ids[-1] - self.ids[0] == len(self.ids) - 1:
            # The ids have no gaps, as in a store without deletions: then the row follows from the id.
            rows = inside - self.ids[0]
        else:
            rows = np.searchsorted(self.ids, inside)
            rows = rows[self.ids[rows] == inside]
        found: Rows = rows[self.alive[rows]]
        return found

    def first_after(self, passage_id: int) -> int:
        """The first row whose id is larger."""
        return int(np.searchsorted(self.ids, passage_id, side="right"))

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
        self._scales = np.empty(len(self._codes), np.float32)
        self._alive = np.empty(rows_max, np.bool_)
        self.live_count = 0
        """The number of rows that were not removed."""
        self._publish(0)

    @property
    def room(self) -> int:
        """The number of rows that can be added."""
        return len(self._ids) - len(self.view.ids)

    @property
    def has_codes(self) -> bool:
        """Whether rounded components are held, both of its rows and of rows added later."""
        return bool(len(self._codes))

    def add(self, passage_ids: PassageIds, vectors: RoundedVectors) -> None:
        """Adds up to `room` vectors. The ids ascend, and are larger than those before."""
        new = self._new(len(passage_ids))
        self._signs[:, new] = vectors.signs
        if self.has_codes:
            self._codes[new], self._scales[new] = vectors.codes, vectors.scales
        self._append(new, passage_ids)

    def take(self, view: View, rows: Rows) -> None:
        """Adds up to `room` rows of another block."""
        new = self._new(len(rows))
        if view.has_signs:
            self._signs[:, new] = view.signs[:, rows]
        if not view.has_codes:
            self.drop_codes()
        if self.has_codes:
            self._codes[new], self._scales[new] = view.codes[rows], view.scales[rows]
        self._append(new, view.ids[rows])

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

    def drop_signs(self) -> None:
        """Releases the memory of the signs. The block must have no room."""
        self._signs = self._signs[:, :0].copy()
        self._publish(len(self.view.ids))

    def drop_codes(self) -> None:
        """Releases the memory of the codes."""
        self._codes, self._scales = self._codes[:0].copy(), self._scales[:0].copy()
        self._publish(len(self.view.ids))

    def _new(self, count: int) -> slice:
        start = len(self.view.ids)
        return slice(start, start + count)

    def _append(self, new: slice, ids: PassageIds) -> None:
        self._ids[new], self._alive[new] = ids, True
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
        """The state that readers see."""
