"""Tells whether results are turns of conversations, who speaks, and which question a turn answers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.search.rankings import Ranking

AUTHOR_KEYS = ("speaker", "author", "from", "role")
"""The metadata keys that name the author of a text; the first one that is present counts."""

JUDGED = 10
"""How many of the best results tell whether a search finds turns of conversations."""
TURNS_SHARE = 0.75
"""The share of these, and of the texts just before them, that must have an author. Texts of other kinds sometimes begin
like a turn ("Note: …"), but seldom so many of them and of their neighbours."""
REACH = 3
"""A question is at most so many turns before its answer; those in between are by the author of the answer."""

_BRACKETS = r"(?:\([^)\n]{0,80}\)|\[[^]\n]{0,80}\])"
_AUTHOR = re.compile(rf"\s*(?:{_BRACKETS}\s*)?([^\W\d_][\w .'’-]{{0,39}}?)\s*{_BRACKETS}?\s*[:：][^\S\n]+\S")


@dataclass(frozen=True, slots=True)
class Turn:
    """A text in a conversation."""

    author: str = ""
    """In lower case; empty if unknown."""
    asks: bool = False
    """Whether it ends with a question."""
    question_score: float = 0.0
    """The score of the question that it answers; 0 if it answers none."""

    @classmethod
    def of(cls, text: str, opening: str, metadata: Mapping[str, Any]) -> "Turn":
        """The turn with this text, in a document with this beginning and metadata."""
        return cls(author_of(opening, metadata), text.rstrip().endswith(("?", "？")))


def author_of(text: str, metadata: Mapping[str, Any]) -> str:
    """The author of a text: from its metadata, or from its beginning, as in "Ann (8 May): …"; empty if unknown."""
    for key in AUTHOR_KEYS:
        if isinstance(value := metadata.get(key), str):
            return value.strip().lower()
    found = _AUTHOR.match(text)
    return found[1].lower() if found else ""


def question_before(turn: Turn, earlier: Sequence[Turn]) -> int | None:
    """The index of the question that a turn answers, among those before it, the nearest first; None if it answers none.

    It is the last turn of another author, if that ends with a question.
    """
    for i, each in enumerate(earlier[:REACH]):
        if each.author != turn.author:
            return i if each.author and each.asks else None
    return None


class Turns:
    """The passages of a ranking as turns of conversations. What is stored first comes first in a conversation."""

    def __init__(self, records: RecordEngine, ranking: Ranking) -> None:
        self._records = records
        self._exact = ranking.exact
        self._ids, self._scores = ranking.passage_ids, ranking.scores
        if not np.all(self._ids[:-1] < self._ids[1:]):
            order = np.argsort(self._ids)
            self._ids, self._scores = self._ids[order], self._scores[order]
        self._read: dict[int, Turn] = {}

    def are_turns(self, passage_ids: Sequence[int]) -> bool:
        """Whether these are turns of conversations, as far as they and the texts before them tell."""
        self._load(passage_ids)
        if not passage_ids or not self._have_authors(passage_ids):
            return False
        before = [row for row in (self._row_before(each, 1) for each in passage_ids) if row is not None]
        before_ids = [int(self._ids[row]) for row in before]
        self._load(before_ids)
        return self._have_authors(before_ids)

    def turns(self, passage_ids: Sequence[int]) -> list[Turn]:
        """These passages, each with the score of the question that it answers."""
        self._load(passage_ids)
        rows: dict[int, list[int]] = {each: [] for each in passage_ids}
        pending = list(passage_ids)
        for steps in range(1, REACH + 1):
            found = {each: row for each in pending if (row := self._row_before(each, steps)) is not None}
            self._load(int(self._ids[row]) for row in found.values())
            for each, row in found.items():
                rows[each].append(row)
            # Few turns follow another one of their own author, so most need no further step.
            pending = [each for each, row in found.items() if self._at(row).author == self._read[each].author]
        return [self._with_question(self._read[each], rows[each]) for each in passage_ids]

    def _with_question(self, turn: Turn, rows: Sequence[int]) -> Turn:
        question = question_before(turn, [self._at(row) for row in rows])
        if question is None:
            return turn
        return replace(turn, question_score=min(max(float(self._scores[rows[question]]), 0.0), 1.0))

    def _row_before(self, passage_id: int, steps: int) -> int | None:
        """The row of the passage so many before this one among the searched ones; None if that is unknown."""
        row = int(np.searchsorted(self._ids, passage_id)) - steps
        # If only some passages were compared, others may be in between.
        if row < 0 or not (self._exact or passage_id - self._ids[row] == steps):
            return None
        return row

    def _at(self, row: int) -> Turn:
        return self._read[int(self._ids[row])]

    def _have_authors(self, passage_ids: Sequence[int]) -> bool:
        return sum(bool(self._read[each].author) for each in passage_ids) >= TURNS_SHARE * len(passage_ids)

    def _load(self, passage_ids: Iterable[int]) -> None:
        missing = [each for each in dict.fromkeys(passage_ids) if each not in self._read]
        if missing:
            found = self._records.read_excerpts(missing, metadata_keys=AUTHOR_KEYS)
            for each in missing:
                # A passage may have been deleted since it was found.
                excerpt = found.get(each)
                self._read[each] = Turn.of(excerpt.text, excerpt.opening, excerpt.metadata) if excerpt else Turn()
