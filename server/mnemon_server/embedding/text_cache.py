"""Keeps arrays computed from recent texts: their tokens or their vectors."""

import hashlib
import threading
from collections import OrderedDict
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

Array = TypeVar("Array", bound=NDArray[Any])

_KEY_BYTES = 16


def text_key(text: str) -> bytes:
    """The key of a text: its digest, so that the cache does not hold the text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class TextCache(Generic[Array]):
    """A bounded map from the keys of texts to arrays. It drops the least recently used ones. Thread-safe."""

    def __init__(self, entries_max: int) -> None:
        """`entries_max` 0 keeps nothing."""
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, Array] = OrderedDict()

    def get(self, key: bytes) -> Array | None:
        """The array stored under a key. The entry stays."""
        with self._lock:
            array = self._entries.get(key)
            if array is not None:
                self._entries.move_to_end(key)
            return array

    def take(self, key: bytes) -> Array | None:
        """The array stored under a key, whose entry is removed."""
        with self._lock:
            return self._entries.pop(key, None)

    def put(self, key: bytes, array: Array) -> None:
        """Stores a copy, because a view of a row would keep its whole batch in memory."""
        with self._lock:
            self._entries[key] = array.copy()
            self._entries.move_to_end(key)
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._entries.clear()
