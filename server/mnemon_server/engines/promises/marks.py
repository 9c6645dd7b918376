"""Marks of erased data: enough to find its bytes again, without holding them.

A mark is a run of 8 to 64 bytes, taken from a text or a vector. It consists of the run's first 8 bytes, multiplied by a
secret odd number modulo 2^64, its length, and its keyed hash. Marks are looked for at every byte of a file: all
positions are multiplied at once, and only where the product is known, the hash is compared.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

ANCHOR_BYTES, RUN_BYTES_MAX = 8, 64
RUNS_OF_LONG = 3
"""Runs taken from a long text or a vector: from its beginning, its middle and its end."""
_DISTINCT_MIN = 4
"""Different bytes that the first 8 must have, so that runs of zeros or spaces are not compared everywhere."""
_DIGEST_BYTES = 16
_TABLE_BITS = 22


@dataclass(frozen=True)
class Marks:
    """Marks, ordered by anchor. See the module."""

    key: bytes
    """16 secret bytes."""
    anchors: NDArray[np.uint64]
    lengths: NDArray[np.uint8]
    digests: bytes
    """16 bytes for each mark."""

    @classmethod
    def of(cls, runs: Iterable[bytes]) -> "Marks":
        """Marks of runs of 8 to 64 bytes, under a new key."""
        key = os.urandom(16)
        distinct = sorted(set(runs))
        firsts = np.frombuffer(b"".join(run[:ANCHOR_BYTES] for run in distinct), "<u8")
        anchors = firsts.astype(np.uint64) * _factor(key)
        order = np.argsort(anchors, kind="stable")
        digests = [_digest(key, distinct[i]) for i in order]
        lengths = np.array([len(distinct[i]) for i in order], np.uint8)
        return cls(key, anchors[order], lengths, b"".join(digests))

    @classmethod
    def from_text(cls, text: str) -> "Marks":
        """The marks that `to_text` wrote."""
        key, anchors, lengths, digests = (base64.b64decode(part) for part in json.loads(text))
        return cls(key, np.frombuffer(anchors, "<u8"), np.frombuffer(lengths, np.uint8), digests)

    def to_text(self) -> str:
        """The marks as text, in which none of their runs occurs."""
        parts = self.key, self.anchors.astype("<u8").tobytes(), self.lengths.tobytes(), self.digests
        return json.dumps([base64.b64encode(part).decode() for part in parts])

    def __len__(self) -> int:
        return len(self.anchors)

    def find(self, data: bytes) -> set[int]:
        """The numbers of the marks whose runs are somewhere in `data`."""
        found: set[int] = set()
        if not len(self) or len(data) < ANCHOR_BYTES:
            return found
        factor, shift = _factor(self.key), np.uint64(64 - _TABLE_BITS)
        for offset in range(ANCHOR_BYTES):
            words = np.frombuffer(data, "<u8", (len(data) - offset) // ANCHOR_BYTES, offset)
            products = words * factor
            likely = np.flatnonzero(self._table[products >> shift])
            for place in likely[np.isin(products[likely], self.anchors)].tolist():
                found |= self._at(data, offset + place * ANCHOR_BYTES, products[place])
        return found

    def _at(self, data: bytes, start: int, anchor: np.uint64) -> set[int]:
        first = int(np.searchsorted(self.anchors, anchor))
        last = int(np.searchsorted(self.anchors, anchor, side="right"))
        return {
            number
            for number in range(first, last)
            if _digest(self.key, data[start : start + int(self.lengths[number])])
            == self.digests[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES]
        }

    @cached_property
    def _table(self) -> NDArray[np.bool_]:
        table = np.zeros(1 << _TABLE_BITS, np.bool_)
        table[self.anchors >> np.uint64(64 - _TABLE_BITS)] = True
        return table


def runs_of(data: bytes) -> list[bytes]:
    """The runs to mark of a text or a vector; none if it is too short or too uniform to be told from other bytes."""
    width = min(len(data), RUN_BYTES_MAX)
    places = [0] if len(data) < RUNS_OF_LONG * RUN_BYTES_MAX else [0, len(data) // 2, len(data) - width]
    runs = (_run_from(data, place) for place in places)
    return [run for run in runs if run]


def _run_from(data: bytes, start: int) -> bytes:
    """The first run from there on whose anchor is worth looking for; empty if there is none."""
    for place in range(start, len(data) - ANCHOR_BYTES + 1):
        if len(set(data[place : place + ANCHOR_BYTES])) >= _DISTINCT_MIN:
            return data[place : place + RUN_BYTES_MAX]
    return b""


def _factor(key: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(key[:8], "little") | 1)


def _digest(key: bytes, run: bytes) -> bytes:
    return hashlib.blake2b(run, key=key, digest_size=_DIGEST_BYTES).digest()
