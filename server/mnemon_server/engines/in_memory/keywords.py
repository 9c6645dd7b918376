"""A plain implementation of BM25, with the contribution of neighbouring passages."""

import math
from collections import Counter
from collections.abc import Mapping, Set
from typing import cast

import apsw
import numpy as np

from mnemon_server.ranking.keyword_context import Matches, SummedGains
from mnemon_server.ranking.keywords import analyze, query_terms

_stem = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])


def words(text: str) -> Counter[str]:
    """The stemmed words of a text with their frequencies."""
    encoded = analyze(text).encode()
    found = _stem(encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
    return Counter(cast("list[str]", found))


def search(query: str, stored: Mapping[int, Counter[str]], among: Set[int] | None) -> dict[int, float]:
    """Scores of the passages that share a word with the query; see RecordEngine.search_keywords."""
    terms = list(words(" ".join(query_terms(query))))
    mean = sum(counts.total() for counts in stored.values()) / max(len(stored), 1)
    searched = {passage: counts for passage, counts in stored.items() if among is None or passage in among}
    weights = {term: _weight(sum(term in counts for counts in searched.values()), len(searched)) for term in terms}
    own = sum(_gains(words(query), weights, mean).values())
    gains = [(i, _gains(searched[passage], weights, mean)) for i, passage in enumerate(sorted(searched))]
    if not any(gained for _, gained in gains):
        return {}
    matches = Matches(
        positions=[np.array([i for i, gained in gains if term in gained], np.int64) for term in terms],
        gains=[np.array([gained[term] for _, gained in gains if term in gained]) for term in terms],
        weights=np.array(list(weights.values())),
        passage_count=len(searched),
    )
    ids = sorted(searched)
    found, sums = SummedGains(matches).all()
    return {ids[i]: min(1.0, total / own) for i, total in zip(found.tolist(), sums.tolist(), strict=True)}


def _weight(holding: int, total: int) -> float:
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def _gains(counts: Counter[str], weights: Mapping[str, float], mean_length: float) -> dict[str, float]:
    norm = 1.2 * (0.25 + 0.75 * counts.total() / max(mean_length, 1e-9))
    return {term: w * counts[term] * 2.2 / (counts[term] + norm) for term, w in weights.items() if counts[term]}
