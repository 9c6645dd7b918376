"""Reranks the best results of a hybrid search if they are turns of conversations; all others keep their scores.

Between people, a linear model with three weights adds to the log-odds of each score. So the result is a score again: 1
and 0 stay as they are, and scores in between move by a bounded amount. What counts is who speaks, whether a turn is a
question itself, and whether it answers one: an answer seldom repeats the words of the question before it.

With an assistant, none of that holds: half of the messages that are looked for end with a question. There, meaning
counts more than words, since people seldom remember how it was said, and the beginning of a message counts as much as
its best passage: otherwise a long answer would have many chances, and a short question one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import PassageIds, Vector
from mnemon_server.ranking.analysis import STOP_WORDS
from mnemon_server.ranking.fusion import MEANING, Fusion
from mnemon_server.services.search.passage_queries import Choice, PassageQuery, ScoredPlace
from mnemon_server.services.search.rankings import Ranking

AUTHOR_KEYS = ("speaker", "author", "from", "role")
"""The metadata keys that name the author of a text; the first one that is present counts."""

ASSISTANTS = frozenset(
    ("user", "human", "assistant", "ai", "bot", "chatbot", "agent", "model", "system", "tool", "llm", "gpt", "chatgpt")
)
"""Words in the names of assistants. An assistant with a person's name is recognised by the user beside it."""

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


Floats = NDArray[np.float64]

FEATURES = ("by_other", "asks", "answers")
"""By somebody else than the query names; ends with a question; the score of the question that it answers, or 0."""

DEPTH = 50
"""How many documents are reranked. No document falls below the last of these, so any limit gives the same order."""

WEIGHTS_FILE = Path(__file__).with_name("ranker_weights.json")

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Ranker:
    """Gives new scores to turns of conversations."""

    weights: Floats
    """One for each of FEATURES."""

    def scores(self, query: str, turns: Sequence[Turn], scores: Floats) -> Floats:
        """The new scores, 0 to 1."""
        return shifted(scores, features(query, turns) @ self.weights)


@dataclass(frozen=True, slots=True)
class Reranking:
    """Reranks what a hybrid search chose."""

    records: RecordEngine
    ranker: Ranker
    fusion: Fusion

    def applied(self, query: PassageQuery, vector: Vector, choice: Choice) -> tuple[Ranking, list[ScoredPlace]]:
        """The best places in their new order, and the ranking that has their rows."""
        judged = choice if len(choice.places) >= JUDGED else choice.widened(JUDGED)
        ids = [place.passage_id for _, place in judged.places.values()][:JUDGED]
        places = choice.scored()
        if Turns(self.records, judged.compared).have_authors(ids):
            is_deep = choice.ranking.exact and len(places) >= DEPTH
            deep = choice if is_deep else choice.widened(max(query.limit, DEPTH))
            turns = Turns(self.records, deep.compared)
            if turns.are_turns(ids):
                choice, places = deep, deep.scored()
                first, rest = places[:DEPTH], places[DEPTH:]
                scores = np.array([scored.score for scored in first], np.float64)
                if turns.are_with_assistant(ids):
                    new = self._message_scores(query, vector, choice.ranking, first)
                else:
                    of_first = turns.turns([scored.place.passage_id for scored in first])
                    new = self.ranker.scores(query.text, of_first, scores)
                places = [*(first[row]._replace(score=score) for row, score in reordered(scores, new)), *rest]
        return choice.ranking, places[: query.limit]

    def _message_scores(
        self, query: PassageQuery, vector: Vector, ranking: Ranking, places: Sequence[ScoredPlace]
    ) -> Floats:
        """The scores of messages to and from an assistant, given the best passage of each."""
        rows = [scored.row for scored in places]
        if not self.fusion.is_absolute or ranking.vector_parts is None or ranking.keyword_parts is None:
            return ranking.scores[rows]
        openings = [scored.place.passage_id - scored.place.index for scored in places]
        near = self.records.scan_vectors(vector, np.array(sorted(openings), np.int64), exact=len(openings))
        cosine_of = dict(zip(near.passage_ids.tolist(), near.scores.tolist(), strict=True))
        # An opening may have been deleted since its message was found.
        cosines = np.array([cosine_of.get(each, 0.0) for each in openings], np.float64)
        opening_parts = self.fusion.fuse(query.text, cosines, np.zeros(len(openings))).vector_parts
        weight = self.fusion.weight(query.text)
        return message_scores(weight, ranking.vector_parts[rows], opening_parts, ranking.keyword_parts[rows])


def message_scores(weight: float, vector_parts: Floats, opening_parts: Floats, keyword_parts: Floats) -> Floats:
    """The scores, 0 to 1, of messages to and from an assistant.

    Args:
        weight: the weight of meaning in the scores of other texts.
        vector_parts: how near the best passage of each message is to the query, 0 to 1.
        opening_parts: how near its first passage is.
        keyword_parts: how many of the query's words its best passage has, 0 to 1.
    """
    weight = min(MEANING * weight, 1.0)
    return weight * (vector_parts + opening_parts) / 2 + (1.0 - weight) * keyword_parts


def reordered(scores: Floats, new: Floats) -> list[tuple[int, float]]:
    """The indexes of descending scores with the new ones, best first."""
    order = np.argsort(-new, kind="stable").tolist()
    least = float(scores[-1]) if len(scores) == DEPTH else 0.0
    return [(row, max(float(new[row]), least)) for row in order]


def features(query: str, turns: Sequence[Turn]) -> Floats:
    """The FEATURES of each turn, in the shape (turns, features)."""
    words = {word.lower() for word in _WORD.findall(query) if word[0].isupper() or word not in STOP_WORDS}
    named = np.array([bool(words.intersection(_WORD.findall(each.author))) for each in turns], np.bool_)
    by_other = named.any() & ~named & np.array([bool(each.author) for each in turns], np.bool_)
    return np.column_stack(
        [
            by_other,
            np.array([each.asks for each in turns], np.float64),
            np.array([each.question_score for each in turns], np.float64),
        ]
    )


def log_odds(scores: Floats) -> Floats:
    """The logarithm of a score's odds; infinite for 0 and 1."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(scores) - np.log1p(-scores)
    return odds


def shifted(scores: Floats, shift: Floats) -> Floats:
    """The scores after their log-odds moved by `shift`; exactly the same if that is 0."""
    with np.errstate(over="ignore"):
        moved: Floats = 1 / (1 + np.exp(-log_odds(scores) - shift))
    return np.where(shift == 0.0, scores, moved)


@cache
def default_ranker() -> Ranker:
    """The ranker with the weights in the file beside this module."""
    stored = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    return Ranker(np.array([float(stored[name]) for name in FEATURES]))
