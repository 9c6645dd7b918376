"""Tells whether results are turns of conversations, who speaks, and which question a turn answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import PassageIds
from mnemon_server.services.search.rankings import Ranking

AUTHOR_KEYS = ("speaker", "author", "from", "role")
"""The metadata keys that name the author of a text; the first one that is present counts."""

ASSISTANTS = frozenset(
    ("user", "human", "assistant", "ai", "bot", "chatbot", "agent", "model", "system", "tool", "llm", "gpt", "chatgpt")
)
"""Words in the names of authors of which one is an assistant. Assistants with a person's name are told by the user."""

JUDGED = 10
"""How many of the best results tell whether a search finds turns of conversations."""
TURNS_SHARE = 0.75
"""The share of these, and of the texts just before them, that must have an author. Texts of other kinds sometimes begin
like a turn ("Note: …"), but seldom so many of them and of their neighbours."""
FEW = 3
"""How many are read first. Where these have no author, the others need not be read."""
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
    score: float = 0.0
    """How well it matches the query."""
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


def are_with_assistant(authors: Sequence[str]) -> bool:
    """Whether texts with these authors, "" where unknown, are mostly messages, and some of a user or an assistant."""
    known = [author for author in authors if author]
    return len(known) >= TURNS_SHARE * len(authors) and any(map(_is_of_assistant, known))


def _is_of_assistant(author: str) -> bool:
    return not ASSISTANTS.isdisjoint(author.split())


def answering(turn: Turn, earlier: Sequence[Turn]) -> Turn:
    """The turn with the score of the question that it answers, given the turns before it, the nearest first.

    That is the last turn of another author, if it ends with a question.
    """
    for each in earlier[:REACH]:
        if each.author != turn.author:
            return replace(turn, question_score=each.score) if each.author and each.asks else turn
    return turn


class Turns:
    """The passages of a ranking as turns of conversations. What is stored first comes first in a conversation."""

    def __init__(self, records: RecordEngine, ranking: Ranking) -> None:
        self._records = records
        self._ranking = ranking
        self._read: dict[int, Turn] = {}

    def have_authors(self, passage_ids: Sequence[int]) -> bool:
        """Whether there are such texts, and nearly all of them have an author."""
        return bool(passage_ids) and self._mostly_have_authors(passage_ids)

    def are_turns(self, passage_ids: Sequence[int]) -> bool:
        """Whether these are turns of conversations, as far as they and the texts before them tell."""
        if not self.have_authors(passage_ids):
            return False
        return self._mostly_have_authors(self._ids_before(passage_ids))

    def are_with_assistant(self, passage_ids: Sequence[int]) -> bool:
        """Whether these turns, or those just before them, are messages of a user or an assistant."""
        self._load(passage_ids)
        authors = {self._read[each].author for each in (*passage_ids, *self._ids_before(passage_ids))}
        return any(map(_is_of_assistant, authors))

    def turns(self, passage_ids: Sequence[int]) -> list[Turn]:
        """These passages, each with the score of the question that it answers."""
        self._load(passage_ids)
        earlier: dict[int, list[Turn]] = {each: [] for each in passage_ids}
        pending = passage_ids
        for steps in range(1, REACH + 1):
            before = self._before(pending, steps)
            self._load([each for each, _ in before.values()])
            for passage_id, (each, score) in before.items():
                earlier[passage_id].append(replace(self._read[each], score=score))
            # Few turns follow another one of their own author, so most need no further step.
            pending = [each for each in before if earlier[each][-1].author == self._read[each].author]
        return [answering(self._read[each], earlier[each]) for each in passage_ids]

    def _ids_before(self, passage_ids: Sequence[int]) -> list[int]:
        return [before for before, _ in self._before(passage_ids, 1).values()]

    def _before(self, passage_ids: Sequence[int], steps: int) -> dict[int, tuple[int, float]]:
        """For each passage, the one so many before it among the searched ones, as far as known, and its score."""
        ids, scores = self._in_order
        rows = np.searchsorted(ids, np.array(passage_ids, np.int64)) - steps
        before, of_before = ids[rows].tolist(), np.clip(scores[rows], 0.0, 1.0).tolist()
        return {
            passage_id: (each, score)
            for passage_id, row, each, score in zip(passage_ids, rows.tolist(), before, of_before, strict=True)
            # If only some passages were compared, others may be in between.
            if row >= 0 and (self._ranking.exact or passage_id - each == steps)
        }

    @cached_property
    def _in_order(self) -> tuple[PassageIds, NDArray[np.float64]]:
        """The ids of the searched passages, ascending, and their scores."""
        ids, scores = self._ranking.passage_ids, self._ranking.scores
        if np.all(ids[:-1] < ids[1:]):
            return ids, scores
        order = np.argsort(ids)
        return ids[order], scores[order]

    def _mostly_have_authors(self, passage_ids: Sequence[int]) -> bool:
        without = 0
        for part in (passage_ids[:FEW], passage_ids[FEW:]):
            self._load(part)
            without += sum(not self._read[each].author for each in part)
            if without > (1 - TURNS_SHARE) * len(passage_ids):
                return False
        return True

    def _load(self, passage_ids: Sequence[int]) -> None:
        missing = [each for each in dict.fromkeys(passage_ids) if each not in self._read]
        if missing:
            found = self._records.read_excerpts(missing, metadata_keys=AUTHOR_KEYS)
            for each in missing:
                # A passage may have been deleted since it was found.
                excerpt = found.get(each)
                self._read[each] = Turn.of(excerpt.text, excerpt.opening, excerpt.metadata) if excerpt else Turn()
