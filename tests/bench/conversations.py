"""Conversations with questions and the turns that answer them: the data for measuring recall."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RENDERING = '"<speaker> (<date>): <text> <caption>"'
_DATE = re.compile(r"^.* on ")


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation."""

    id: str
    session: int
    time: str
    speaker: str
    text: str
    caption: str

    @property
    def document(self) -> str:
        """The turn as the text of a document: `RENDERING`."""
        return f"{self.speaker} ({_DATE.sub('', self.time)}): {self.text} {self.caption}".rstrip()


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A long conversation between two people."""

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def load_conversations(folder: Path) -> list[Conversation]:
    """The conversations of a folder, or of its subfolder `conversations`, by file name; may be empty."""
    inner = folder / "conversations"
    files = sorted((inner if inner.is_dir() else folder).glob("*.json"))
    return [_conversation(json.loads(file.read_text(encoding="utf-8"))) for file in files]


def _conversation(stored: dict[str, Any]) -> Conversation:
    turns = tuple(
        Turn(turn["id"], turn["session"], turn["time"], turn["speaker"], turn["text"], turn.get("caption") or "")
        for turn in stored["turns"]
    )
    known = {turn.id for turn in turns}
    questions = (
        Question(asked["question"], asked["category"], frozenset(asked["evidence"]) & known)
        for asked in stored["questions"]
    )
    return Conversation(stored["id"], turns, tuple(question for question in questions if question.evidence))
