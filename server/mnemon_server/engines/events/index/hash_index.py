"""Finds positions by 64-bit hash, in sorted arrays and in a growing index."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnemon_server.engines.events.index.rows import Codes, Hashes, Positions, ShortHashes

TAIL_MAX = 4096
"""Number of rows in dictionaries (about 150 bytes each) after which they move to arrays (12 bytes per row)."""
_TAIL_ROW_BYTES = 150


class Matches(NamedTuple):
    """Pairs of a query and a match: two arrays of equal length."""

    asked: Positions
    """The index of the query."""
    positions: Positions

    @classmethod
    def none(cls) -> "Matches":
        """No matches."""
        return cls(np.empty(0, np.intp), np.empty(0, np.intp))

    def where(self, keep: np.typing.NDArray[np.bool_]) -> "Matches":
        """Only the pairs for which `keep` is true."""
        return Matches(self.asked[keep], self.positions[keep])


def spread(first: Positions, end: Positions) -> Matches:
    """Every position in the ranges from `first[i]` up to but excluding `end[i]`, each paired with its i."""
    counts = end - first
    asked = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    return Matches(asked, positions)


def find_sorted(hashes: Hashes | ShortHashes, positions: Codes, wanted: Hashes | ShortHashes) -> Matches:
    """The positions of each wanted hash. `hashes` ascend, and `positions[i]` is the position of `hashes[i]`."""
    if not len(hashes):
        return Matches.none()
    first = hashes.searchsorted(wanted)
    hits = np.flatnonzero(hashes[np.minimum(first, len(hashes) - 1)] == wanted)
    if not len(hits):
        return Matches.none()
    found = spread(first[hits], hashes.searchsorted(wanted[hits], "right"))
    return Matches(hits[found.asked], positions[found.positions].astype(np.intp))


class HashIndex:
    """Positions of rows by hash. Rows are added in batches.

    Recent rows are in a dictionary, all others in sorted arrays. One thread adds, any number look up. Readers may find
    rows that are just being added, and must discard them by position.
    """

    def __init__(self) -> None:
        self._state = _State(np.empty(0, np.uint64), np.empty(0, np.uint32), {}, {})

    @property
    def nbytes(self) -> int:
        """The size of the arrays, and the approximate size of the dictionary, in bytes."""
        state = self._state
        return state.hashes.nbytes + state.positions.nbytes + _TAIL_ROW_BYTES * len(state.recent)

    def add(self, hashes: Sequence[int], start: int) -> None:
        """Adds rows at the positions `start`, `start` + 1, …"""
        state = self._state
        if len(set(hashes)) == len(hashes) and state.recent.keys().isdisjoint(hashes):
            state.recent.update(zip(hashes, range(start, start + len(hashes)), strict=True))
        else:
            state.add_repeating(hashes, start)
        if len(state.recent) + len(state.repeated) > TAIL_MAX:
            self._state = state.folded()

    def find(self, wanted: Hashes) -> Matches:
        """The positions of each wanted hash."""
        state = self._state
        found = find_sorted(state.hashes, state.positions, wanted)
        asked, positions = state.find_recent(wanted.tolist())
        if not asked:
            return found
        return Matches(
            np.concatenate([found.asked, np.array(asked, np.intp)]),
            np.concatenate([found.positions, np.array(positions, np.intp)]),
        )


class _State(NamedTuple):
    hashes: Hashes
    positions: Codes
    recent: dict[int, int]
    """The first position of each recent hash."""
    repeated: dict[int, list[int]]
    """The positions of further occurrences of recent hashes."""

    def add_repeating(self, hashes: Sequence[int], start: int) -> None:
        for position, value in enumerate(hashes, start):
            if value in self.recent:
                self.repeated.setdefault(value, []).append(position)
            else:
                self.recent[value] = position

    def find_recent(self, wanted: Sequence[int]) -> tuple[list[int], list[int]]:
        known = self.recent
        pairs = [(index, known[value]) for index, value in enumerate(wanted) if value in known]
        if self.repeated:
            pairs += [(index, at) for index, value in enumerate(wanted) for at in self.repeated.get(value, ())]
        return [asked for asked, _ in pairs], [position for _, position in pairs]

    def folded(self) -> "_State":
        further = [(value, at) for value, places in self.repeated.items() for at in places]
        hashes = np.array([*self.recent, *(value for value, _ in further)], np.uint64)
        positions = np.array([*self.recent.values(), *(at for _, at in further)], np.uint32)
        order = np.argsort(hashes, kind="stable")
        at = self.hashes.searchsorted(hashes[order])
        return _State(
            np.insert(self.hashes, at, hashes[order]), np.insert(self.positions, at, positions[order]), {}, {}
        )
