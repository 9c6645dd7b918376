"""BM25 in its plainest form."""

import math
from collections import Counter
from collections.abc import Mapping, Set
from typing import cast

import apsw

from mnemon_server.engines.keywords import analyze, query_terms

_stem = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])


def words(text: str) -> Counter[str]:
    """The stemmed words of a text, and how often each occurs."""
    encoded = analyze(text).encode()
    found = _stem(encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
    return Counter(cast("list[str]", found))


def search(query: str, stored: Mapping[int, Counter[str]], among: Set[int] | None) -> dict[int, float]:
    """Scores of the passages that share a word with the query; see RecordEngine.search_keywords."""
    terms = list(words(" ".join(query_terms(query))))
    mean = sum(counts.total() for counts in stored.values()) / max(len(stored), 1)
    searched = {passage: counts for passage, counts in stored.items() if among is None or passage in among}
    weights = {term: _weight(sum(term in counts for counts in searched.values()), len(searched)) for term in terms}
    own = _bm25(words(query), weights, mean)
    return {
        passage: min(1.0, _bm25(counts, weights, mean) / own)
        for passage, counts in searched.items()
        if any(term in counts for term in terms)
    }


def _weight(holding: int, total: int) -> float:
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def _bm25(counts: Counter[str], weights: Mapping[str, float], mean_length: float) -> float:
    norm = 1.2 * (0.25 + 0.75 * counts.total() / max(mean_length, 1e-9))
    return max(sum(w * counts[term] * 2.2 / (counts[term] + norm) for term, w in weights.items() if counts[term]), 1e-9)
