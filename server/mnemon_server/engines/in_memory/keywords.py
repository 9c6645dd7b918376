"""A plain implementation of BM25, with the contribution of neighbouring passages."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

import numpy as np

from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.ranking.keyword_context import Matches, SummedGains, weight_at

Variants: TypeAlias = tuple[str, ...]


def words(text: str) -> Counter[str]:
    """The stemmed words of a text with their frequencies."""
    return Counter(STEMMED_WORDS.terms(text))


def search(query: str, stored: Mapping[int, Counter[str]], among: Set[int] | None) -> dict[int, float]:
    """Scores of the passages that share a word with the query; see RecordEngine.search_keywords."""
    asked = STEMMED_WORDS.query(query)
    searched = {passage: counts for passage, counts in stored.items() if among is None or passage in among}
    weights = {
        group: _weight(sum(_count(counts, group) > 0 for counts in searched.values()), len(searched))
        for group in asked.groups
    }
    lengths = [counts.total() for counts in searched.values() for group in asked.groups if _count(counts, group)]
    mean = sum(lengths) / max(len(lengths), 1) or 1.0
    own = sum(_gains(asked.own, weights, mean).values())
    gains = [(i, _gains(searched[passage], weights, mean)) for i, passage in enumerate(sorted(searched))]
    if not any(gained for _, gained in gains):
        return {}
    matches = Matches(
        positions=[np.array([i for i, gained in gains if group in gained], np.int64) for group in asked.groups],
        gains=[np.array([gained[group] for _, gained in gains if group in gained]) for group in asked.groups],
        weights=np.array(list(weights.values())),
        passage_count=len(searched),
    )
    ids = sorted(searched)
    found, sums = SummedGains(matches, weight_at(mean / asked.terms_per_word)).all()
    return {ids[i]: min(1.0, total / own) for i, total in zip(found.tolist(), sums.tolist(), strict=True)}


def _weight(holding: int, total: int) -> float:
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def _count(counts: Counter[str], variants: Sequence[str]) -> int:
    return max(counts[term] for term in variants)


def _gains(counts: Counter[str], weights: Mapping[Variants, float], mean_length: float) -> dict[Variants, float]:
    norm = 1.2 * (0.25 + 0.75 * counts.total() / max(mean_length, 1e-9))
    held = {group: count for group in weights if (count := _count(counts, group))}
    return {group: weights[group] * count * 2.2 / (count + norm) for group, count in held.items()}
