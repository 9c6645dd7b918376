"""Conversations with questions and the turns that answer them: the data for measuring what searches find."""

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
    """A long conversation between two people, or between a person and an assistant."""

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def load_conversations(folder: Path) -> list[Conversation]:
    """The conversations of a folder, or of its subfolder `conversations`, by file name; may be empty."""
    inner = folder / "conversations"
    files = sorted((inner if inner.is_dir() else folder).glob("*.json"))
    return [_conversation(json.loads(file.read_text(encoding="utf-8"))) for file in files]


def load_chats(folder: Path) -> list[Conversation]:
    """The chats with an assistant of a folder, by file name; the speaker of a message is its role."""
    files = (file for file in sorted(folder.glob("*.jsonl")) if not file.name.endswith(".questions.jsonl"))
    return [_chat(file.stem, _rows(file), _rows(file.with_suffix(".questions.jsonl"))) for file in files]


def _chat(name: str, messages: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Conversation:
    turns = tuple(Turn(each["id"], 0, each["time"], each["role"], each["text"], "") for each in messages)
    asked = (Question(each["question"], each["kind"], frozenset(each["evidence"])) for each in questions)
    return Conversation(name, turns, tuple(question for question in asked if question.evidence))


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


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
