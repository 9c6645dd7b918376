"""Normalises words for the keyword search of all engines: no case, no accents, reduced to their stems."""

import threading
from typing import cast

import apsw

from mnemon_server.ranking.keywords import analyze, query_terms


class Stemmer:
    """SQLite's tokenizer without a database. Thread-safe."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._tokenize = self._connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        self._lock = threading.Lock()

    def stems(self, text: str) -> list[str]:
        """The stems of a text's words, in order."""
        return self._stems(analyze(text))

    def query_stems(self, text: str) -> list[str]:
        """The distinct stems of a query's words, in order. Stop words are left out unless the query has no other
        words.
        """
        return list(dict.fromkeys(self._stems(" ".join(query_terms(text)))))

    def _stems(self, text: str) -> list[str]:
        with self._lock:
            words = self._tokenize(
                text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
            )
        return cast("list[str]", words)
