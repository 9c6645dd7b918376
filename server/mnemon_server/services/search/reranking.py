"""Reranks the best results of a hybrid search by a few signs that a text answers the question.

A linear model adds to the log-odds of each score. So the result is a score again: 1 and 0 stay as they are, and scores
in between move by a bounded amount. The features are taken from the texts that were found: who speaks, whether the text
is a question itself, how long it is, and whether it has a time or a number if the query asks for one. Words for times
and numbers are recognised in English only.
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
"""The names of the features, in the order of the weights."""

DEPTH = 100
"""How many documents are reranked."""
AUTHOR_KEYS = ("speaker", "author", "from", "role")
"""The metadata keys that name the author of a text; the first one that is present counts."""
SHIFT_MAX = 2.0
"""The most that a score may move, in log-odds: 0.5 becomes at most 0.88 and at least 0.12."""

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
    """A text that was found, and its author in lower case; empty if the author is unknown."""

    text: str
    author: str


@dataclass(frozen=True, slots=True)
class Ranker:
    """Gives new scores to the texts that were found."""

    weights: Floats
    """One for each of FEATURES."""
    means: Floats
    """The means of the features over the training data; features at their means do not change a score."""

    def scores(self, query: str, candidates: Sequence[Candidate], scores: Floats) -> Floats:
        """The new scores of the candidates, 0 to 1."""
        shift = (features(query, candidates) - self.means) @ self.weights
        return shifted(scores, shift)

    def rerank(self, query: PassageQuery, excerpts: Sequence[Excerpt], scores: Floats) -> list[tuple[int, float]]:
        """The indexes of the best excerpts, each with its new score, best first.

        `excerpts`, with AUTHOR_KEYS of their metadata, and their `scores` must be the answer to `widened(query)`.
        """
        new = self.scores(query.text, [_candidate(excerpt) for excerpt in excerpts], scores)
        order = [row for row in np.argsort(-new, kind="stable").tolist() if new[row] >= query.min_score]
        return [(row, float(new[row])) for row in order[: query.limit]]


def widened(query: PassageQuery) -> PassageQuery:
    """The query that finds enough documents to rerank."""
    return replace(query, limit=max(query.limit, DEPTH), min_score=0.0)


def author_of(text: str, metadata: Mapping[str, Any]) -> str:
    """The author of a text: from its metadata, or from its beginning, as in "Ann (8 May): …"; empty if unknown."""
    for key in AUTHOR_KEYS:
        if isinstance(value := metadata.get(key), str):
            return value.strip().lower()
    found = _AUTHOR.match(text)
    return found[1].lower() if found else ""


def features(query: str, candidates: Sequence[Candidate]) -> Floats:
    """The FEATURES of each candidate, in the shape (candidates, features)."""
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
    """The logarithm of a score's odds; infinite for 0 and 1."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(scores) - np.log1p(-scores)
    return odds


def shifted(scores: Floats, shift: Floats) -> Floats:
    """The scores after their log-odds moved by `shift`, which is limited to SHIFT_MAX."""
    with np.errstate(over="ignore"):
        moved: Floats = 1 / (1 + np.exp(-log_odds(scores) - np.clip(shift, -SHIFT_MAX, SHIFT_MAX)))
    return moved


@cache
def default_ranker() -> Ranker:
    """The ranker with the weights in the file beside this module."""
    stored = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    weights, means = ([float(stored[kind][name]) for name in FEATURES] for kind in ("weights", "means"))
    return Ranker(np.array(weights), np.array(means))


def _candidate(excerpt: Excerpt) -> Candidate:
    return Candidate(excerpt.text, author_of(excerpt.opening, excerpt.metadata))


def _count(pattern: re.Pattern[str], text: str) -> int:
    return min(len(pattern.findall(text)), _COUNT_MAX)
