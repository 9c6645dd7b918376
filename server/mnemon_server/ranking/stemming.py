"""How the keyword indexes of older programs split texts: all words in the way of English, and CJK pairs."""

import threading
from collections import Counter
from typing import cast

import apsw

from mnemon_server.ranking.analysis import QueryWords
from mnemon_server.ranking.keywords import analyze, query_terms


class PorterWords:
    """SQLite's tokenizer without a database; see Analysis."""

    tokenizer = "porter unicode61 remove_diacritics 2"

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._tokenize = self._connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        self._lock = threading.Lock()

    def prepare(self, text: str) -> str:
        """See Analysis."""
        return analyze(text)

    def terms(self, text: str) -> list[str]:
        """See Analysis."""
        return self.prepared_terms(analyze(text))

    def prepared_terms(self, prepared: str) -> list[str]:
        """See Analysis."""
        with self._lock:
            words = self._tokenize(
                prepared.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
            )
        return cast("list[str]", words)

    def query(self, text: str) -> QueryWords:
        """See Analysis."""
        terms = dict.fromkeys(self.prepared_terms(" ".join(query_terms(text))))
        return QueryWords(Counter(self.terms(text)), [(term,) for term in terms])


PORTER_WORDS = PorterWords()
