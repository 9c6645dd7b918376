"""Caches the tokens of texts between counting or splitting and embedding."""

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from mnemon_server.embedding.vector_cache import text_key

Tokens = NDArray[np.int32]


class TokenCache:
    """A bounded map from texts (stored as digests) to token ids. It evicts the oldest entries. Thread-safe."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, Tokens] = OrderedDict()

    def get(self, text: str) -> Tokens | None:
        """The tokens of a text. The entry stays."""
        with self._lock:
            return self._entries.get(text_key(text))

    def take(self, text: str) -> Tokens | None:
        """The tokens of a text. Removes the entry, because a text is embedded once."""
        with self._lock:
            return self._entries.pop(text_key(text), None)

    def clear(self) -> None:
        """Drops all tokens."""
        with self._lock:
            self._entries.clear()

    def put(self, text: str, tokens: Tokens) -> None:
        """Stores the tokens of a text."""
        with self._lock:
            self._entries[text_key(text)] = tokens
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
