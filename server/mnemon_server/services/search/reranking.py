"""A second look at the best of a hybrid search: a few signs of whether a text answers what was asked.

A linear model adds to the log-odds of the score. So what it makes of a score is a score again: the query's own text
stays at 1, what has nothing in common with it at 0, and everything between moves by a bounded amount. The signs are
read off the texts that were found: who speaks, whether they ask instead of telling, how long they are, and whether they
hold a time or a number where one is asked for. Times, and numbers in words, are known in English only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import Excerpt
from mnemon_server.services.search.passage_queries import PassageQuery

Floats = NDArray[np.float64]

FEATURES = ("by_named", "by_other", "ends_asking", "asks", "length", "times_if_when", "numbers_if_how_many")
"""What the model weighs beside the score."""

DEPTH = 100
"""Documents that are looked at again."""
AUTHOR_KEYS = ("speaker", "author", "from", "role")
"""Keys of metadata that say who a text is from; the first that is there counts."""
SHIFT_MAX = 2.0
"""Log-odds by which a score moves at most: 0.5 becomes 0.88 or 0.12."""

WEIGHTS_FILE = Path(__file__).with_name("ranker_weights.json")

_COUNT_MAX = 3
_WORD = re.compile(r"[^\W_]+")
_AUTHOR = re.compile(r"\s*([^\W_][\w .'’-]{0,39}?)\s*(?:\([^)\n]{0,80}\)|\[[^]\n]{0,80}\])?\s*:\s")
_WHEN = re.compile(r"\s*(when|how long|what (date|day|month|year|time))\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\s*how (many|much|often|old)\b", re.IGNORECASE)
_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|last|next|ago|recently|since|(?:week|weekend|month|year|day)s?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july|august|september|october"
    r"|november|december)\b|\d",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\b(\d+|one|two|three|four|five|six|seven|eight|nine|ten|once|twice|several|couple)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that was found, and who it is from, in lower case; empty where that is not known."""

    text: str
    author: str


@dataclass(frozen=True, slots=True)
class Ranker:
    """Gives what was found new scores."""

    weights: Floats
    """One for each of FEATURES."""
    means: Floats
    """The features that leave a score as it is: their means over what was trained on."""

    def scores(self, query: str, candidates: Sequence[Candidate], scores: Floats) -> Floats:
        """The new scores of the candidates, 0 to 1."""
        shift = (features(query, candidates) - self.means) @ self.weights
        return shifted(scores, shift)

    def rerank(self, query: PassageQuery, excerpts: Sequence[Excerpt], scores: Floats) -> list[tuple[int, float]]:
        """The places among `excerpts` that are wanted, each with its new score, best first.

        `excerpts`, with AUTHOR_KEYS of their metadata, and their `scores` are what answers `widened(query)`.
        """
        new = self.scores(query.text, [_candidate(excerpt) for excerpt in excerpts], scores)
        order = [row for row in np.argsort(-new, kind="stable").tolist() if new[row] >= query.min_score]
        return [(row, float(new[row])) for row in order[: query.limit]]


def widened(query: PassageQuery) -> PassageQuery:
    """What to ask so that there is a choice."""
    return replace(query, limit=max(query.limit, DEPTH), min_score=0.0)


def author_of(text: str, metadata: Mapping[str, Any]) -> str:
    """Who a text is from: the metadata say so, or it begins with a name and a colon, as "Ann (8 May): …"."""
    for key in AUTHOR_KEYS:
        if isinstance(value := metadata.get(key), str):
            return value.strip().lower()
    found = _AUTHOR.match(text)
    return found[1].lower() if found else ""


def features(query: str, candidates: Sequence[Candidate]) -> Floats:
    """FEATURES of each candidate, of shape (candidates, features)."""
    words = {word.lower() for word in _WORD.findall(query)}
    named = [bool(words.intersection(_WORD.findall(candidate.author))) for candidate in candidates]
    when, how_many = bool(_WHEN.match(query)), bool(_HOW_MANY.match(query))
    rows = [
        (
            is_named,
            any(named) and not is_named,
            candidate.text.rstrip().endswith(("?", "？")),
            "?" in candidate.text or "？" in candidate.text,
            np.log1p(len(_WORD.findall(candidate.text))),
            _count(_TIME, candidate.text) if when else 0,
            _count(_NUMBER, candidate.text) if how_many else 0,
        )
        for candidate, is_named in zip(candidates, named, strict=True)
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(FEATURES))


def log_odds(scores: Floats) -> Floats:
    """The logarithm of a score's odds; without bound at 0 and at 1."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(scores) - np.log1p(-scores)
    return odds


def shifted(scores: Floats, shift: Floats) -> Floats:
    """The scores, their log-odds moved by at most SHIFT_MAX."""
    with np.errstate(over="ignore"):
        moved: Floats = 1 / (1 + np.exp(-log_odds(scores) - np.clip(shift, -SHIFT_MAX, SHIFT_MAX)))
    return moved


@cache
def default_ranker() -> Ranker:
    """The one that the weights beside this module describe."""
    stored = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    weights, means = ([float(stored[kind][name]) for name in FEATURES] for kind in ("weights", "means"))
    return Ranker(np.array(weights), np.array(means))


def _candidate(excerpt: Excerpt) -> Candidate:
    return Candidate(excerpt.text, author_of(excerpt.opening, excerpt.metadata))


def _count(pattern: re.Pattern[str], text: str) -> int:
    return min(len(pattern.findall(text)), _COUNT_MAX)
