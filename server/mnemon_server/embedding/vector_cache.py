"""Caches the vectors of earlier texts by the text's digest."""

import hashlib
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

_KEY_BYTES = 16


def text_key(text: str) -> bytes:
    """The cache key of a text: its digest, so that the cache does not hold the text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class VectorCache:
    """A bounded map from digests to vectors. It evicts the least recently used entries. Not thread-safe."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """The vector stored under a digest, or None."""
        vector = self._entries.get(key)
        if vector is not None:
            self._entries.move_to_end(key)
        return vector

    def clear(self) -> None:
        """Drops all vectors."""
        self._entries.clear()

    def put(self, key: bytes, vector: NDArray[np.float32]) -> None:
        """Stores a copy of a vector, because a row view would keep its whole batch in memory."""
        if self._entries_max < 1:
            return
        self._entries[key] = vector.copy()
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)
