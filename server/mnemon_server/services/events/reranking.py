"""Scores of messages: as the beginnings of their texts say, or as the turns before them do.

What holds for documents holds for events; see `services/search/reranking.py`. Turns are events of one conversation, in
the order in which they were stored.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.events import Event
from mnemon_server.engines.promises.events import EventEngine, TextScores
from mnemon_server.services.search.reranking import (
    JUDGED,
    REACH,
    TURNS_SHARE,
    Ranker,
    Turn,
    answering,
    are_with_assistant,
    reordered,
)
from mnemon_server.wire.events import decode

READ_BYTES = 1 << 20


class MessageScores:
    """Gives new scores to the best events of a search. Blocks."""

    def __init__(self, events: EventEngine, scores: TextScores) -> None:
        """Reads nothing yet."""
        self._events, self._scores = events, scores
        self._read: dict[int, tuple[Event, Turn]] = {}

    def of(self, text: str, ranker: Ranker | None, best: NDArray[np.intp]) -> NDArray[np.float64]:
        """The relevance of all events. `best` are the rows to rerank, best first; without a ranker, none is."""
        scores, first = self._scores, best[:JUDGED].tolist()
        if scores.of_messages is None and ranker is None:
            return scores.relevance
        self._load(first)
        authors = [self._turn(row).author for row in first]
        if are_with_assistant(authors):
            return scores.relevance if scores.of_messages is None else scores.of_messages
        if ranker is None or not _mostly(authors):
            return scores.relevance
        self._load([row - 1 for row in first])
        if not _mostly([turn.author for row in first for turn in self._before(row, 1)]):
            return scores.relevance
        rows = best.tolist()
        self._load([row - step for row in rows for step in range(REACH + 1)])
        turns = [answering(self._turn(row), self._before(row, REACH)) for row in rows]
        relevance = scores.relevance.copy()
        for place, score in reordered(scores.relevance[best], ranker.scores(text, turns, scores.relevance[best])):
            relevance[rows[place]] = score
        return relevance

    def _turn(self, row: int) -> Turn:
        known = self._read.get(row)
        return known[1] if known else Turn()

    def _before(self, row: int, most: int) -> list[Turn]:
        """The turns before one in its conversation, the nearest first, with their scores."""
        if row not in self._read:
            return []
        event, found = self._read[row][0], list[Turn]()
        for each in range(row - 1, row - 1 - most, -1):
            if each not in self._read or not self._is_next(each, row) or not _is_same(self._read[each][0], event):
                break
            found.append(replace(self._read[each][1], score=float(np.clip(self._scores.relevance[each], 0.0, 1.0))))
        return found

    def _is_next(self, row: int, later: int) -> bool:
        """Whether no event can be between two rows: if only some were compared, their positions tell."""
        sequences = self._scores.sequences
        return self._scores.exact or int(sequences[later] - sequences[row]) == later - row

    def _load(self, rows: Sequence[int]) -> None:
        missing = sorted({row for row in rows if row >= 0 and row not in self._read})
        row_of = {int(self._scores.sequences[row]): row for row in missing}
        for stored in self._events.read([*row_of], bytes_max=READ_BYTES) if row_of else ():
            event = decode(stored.body)
            self._read[row_of[stored.sequence]] = event, Turn.of(event.content, event.content, event.metadata)


def _mostly(authors: Sequence[str]) -> bool:
    """Whether nearly all of them are known, and there are some."""
    return bool(authors) and sum(map(bool, authors)) >= TURNS_SHARE * len(authors)


def _is_same(one: Event, other: Event) -> bool:
    return one.conversation == other.conversation and one.scope.user == other.scope.user
