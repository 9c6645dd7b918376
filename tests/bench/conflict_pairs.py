"""Pairs of statements with labels: paraphrases, contradictions and unrelated ones; see `tests/data/README.md`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from mnemon_server.domain.conflicts import RelationType
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory

from tests.bench.conversations import load_conversations
from tests.support.repository import ROOT

WRITTEN = ROOT / "tests/data/conflict_pairs.jsonl"
FRESH = ROOT / "tests/data/conflict_pairs_fresh.jsonl"
"""Written after the others, and before any measurement on them: nothing was chosen on them."""
EVERYDAY = ROOT / "tests/data/conflict_pairs_everyday.jsonl"
"""Everyday statements about oneself and others; half of the pairs were kept aside, too."""
REFERENCES = ROOT / "tests/data/conflict_references.jsonl"
SESSION_TIME = "%I:%M %p on %d %B, %Y"
_USER = Scope(user="somebody")


class Label(StrEnum):
    """How two statements relate to each other."""

    PARAPHRASE = "paraphrase"
    CONTRADICTION = "contradiction"
    UNRELATED = "unrelated"


UPDATING = frozenset({"number", "date", "place", "status", "older-record"})
"""The kinds of contradiction that give another value or a later state. The others deny."""


class Half(StrEnum):
    """What a pair is for: thresholds may be chosen on one half and are reported on the other."""

    CHOOSING = "choosing"
    REPORTING = "reporting"


class Outcome(StrEnum):
    """What is kept of two statements, if the left one was known when the right one came."""

    LEFT = "left"
    RIGHT = "right"
    MERGED = "merged"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements of one user. `expected` holds the right outcomes. It is empty if they are unknown."""

    id: str
    label: Label
    kind: str
    language: str
    left: SemanticMemory
    right: SemanticMemory
    expected: frozenset[Outcome]

    @property
    def half(self) -> Half:
        """The half that the id belongs to permanently."""
        return half_of(self.id)

    @property
    def agree_or_clash(self) -> bool:
        """Whether both are about the same thing, so that a conflict should be found."""
        return self.label is not Label.UNRELATED

    @property
    def relation(self) -> RelationType:
        """How the two relate."""
        if self.label is Label.CONTRADICTION:
            return RelationType.UPDATES if self.kind in UPDATING else RelationType.CONTRADICTS
        return RelationType.SAME if self.agree_or_clash else RelationType.UNRELATED


def half_of(pair_id: str) -> Half:
    """By the first byte of the id's SHA-256: even chooses, odd reports."""
    return (Half.CHOOSING, Half.REPORTING)[sha256(pair_id.encode()).digest()[0] % 2]


def load_written(file: Path = WRITTEN) -> list[Pair]:
    """The pairs whose sentences were written for this project."""
    return [_pair(row, _statements(row)) for row in read_rows(file)]


def load_references(data: Path, file: Path = REFERENCES) -> list[Pair]:
    """The pairs that name turns of the conversations in a folder. Empty if it has no conversations.

    Raises:
        KeyError: a conversation or a turn is missing.
    """
    turns = {
        f"{conversation.id}/{turn.id}": SemanticMemory(
            memory_id="", content=turn.text, scope=_USER, create_time=_session_time(turn.time)
        )
        for conversation in load_conversations(data)
        for turn in conversation.turns
    }
    return [_pair(row, [turns[row["left"]], turns[row["right"]]]) for row in read_rows(file)] if turns else []


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of pairs."""
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _pair(row: dict[str, Any], statements: Sequence[SemanticMemory]) -> Pair:
    left, right = statements
    expected = frozenset(Outcome(outcome) for outcome in row.get("expected", ()))
    return Pair(row["id"], Label(row["label"]), row["kind"], row["language"], left, right, expected)


def _statements(row: dict[str, Any]) -> list[SemanticMemory]:
    times, importances, sources = (row.get(name, (None, None)) for name in ("times", "importances", "sources"))
    return [
        SemanticMemory(
            memory_id="",
            content=row[side],
            scope=_USER,
            importance=importances[place],
            source=sources[place] or "",
            create_time=datetime.fromisoformat(times[place]) if times[place] else None,
        )
        for place, side in enumerate(("left", "right"))
    ]


def _session_time(said: str) -> datetime:
    return datetime.strptime(said, SESSION_TIME).replace(tzinfo=UTC)
