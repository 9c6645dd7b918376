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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Vector
from mnemon_server.ranking.fusion import MEANING, Fusion
from mnemon_server.ranking.languages import STOP_WORDS
from mnemon_server.services.search.passage_queries import Choice, PassageQuery, ScoredPlace
from mnemon_server.services.search.rankings import Ranking
from mnemon_server.services.search.turns import JUDGED, Turn, Turns

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

    def rerank(self, query: str, turns: Sequence[Turn], scores: Floats) -> list[tuple[int, float]]:
        """The indexes of the turns, each with its new score, best first. `scores` must descend."""
        return reordered(scores, self.scores(query, turns, scores))


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
