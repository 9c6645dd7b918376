"""Vectors of texts seen before, found by the text's digest."""

import hashlib
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

_KEY_BYTES = 16


def text_key(text: str) -> bytes:
    """What stands for a text: a digest, so that a cache holds no text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class VectorCache:
    """A bounded mapping from digests to vectors that drops what was not used for longest. Not thread-safe."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """The vector kept under a digest, or None."""
        vector = self._entries.get(key)
        if vector is not None:
            self._entries.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: NDArray[np.float32]) -> None:
        """Keeps a copy of a vector: a row of a batch would keep the whole batch in memory."""
        if self._entries_max < 1:
            return
        self._entries[key] = vector.copy()
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)
