"""The texts and questions on which searches are compared: conversations, paragraphs in five languages, and chats."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.conversations import Conversation, Question, load_chats, load_conversations
from tests.bench.languages import load_languages
from tests.support.repository import ROOT

CHATS = ROOT / "tests" / "data" / "assistant"
REPORTED_ON = frozenset({"data", "farm", "freelance", "kitchen"})
"""The chats on which nothing is chosen."""
WRITTEN = ("usual", "text", "author")
"""How messages are written: their text alone, or with the author in front; usually, chats alone, and conversations with
the author and the date in front. The metadata always has both."""
SETS = ("conversations", "languages", "chats")


@dataclass(frozen=True, slots=True)
class Text:
    """A text as a user stores it; `writer` is its role in a chat."""

    id: str
    content: str
    metadata: dict[str, str | int]
    writer: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """Texts that are searched alone, and the questions about them."""

    set: str
    name: str
    texts: tuple[Text, ...]
    questions: tuple[Question, ...]


def load(names: Iterable[str], data: Path | None, *, written: str, questions_max: int) -> list[Collection]:
    """The collections of the named sets; sets of `data` are left out if the folder lacks them."""
    found: list[Collection] = []
    for name in names:
        if name == "chats":
            found += [_chat(each, written) for each in load_chats(CHATS)]
        elif data is not None and name == "conversations":
            found += [_conversation(each, written) for each in load_conversations(data)]
        elif data is not None:
            found += _languages(data / "xquad", questions_max)
    return found


def _conversation(stored: Conversation, written: str) -> Collection:
    texts = (
        Text(
            turn.id,
            f"{turn.text} {turn.caption}".rstrip() if written == "text" else turn.document,
            {"session": turn.session, "speaker": turn.speaker, "time": turn.time},
        )
        for turn in stored.turns
    )
    return Collection("conversations", stored.id, tuple(texts), stored.questions)


def _chat(stored: Conversation, written: str) -> Collection:
    texts = (
        Text(
            turn.id,
            f"{turn.speaker}: {turn.text}" if written == "author" else turn.text,
            {"role": turn.speaker, "time": turn.time},
            writer=turn.speaker,
        )
        for turn in stored.turns
    )
    kind = "reporting" if stored.id in REPORTED_ON else "choosing"
    return Collection(f"chats, {kind}", stored.id, tuple(texts), stored.questions)


def _languages(folder: Path, questions_max: int) -> Iterable[Collection]:
    for language in load_languages(folder, (), questions_max):
        texts = tuple(Text(str(number), paragraph, {}) for number, paragraph in enumerate(language.paragraphs))
        questions = tuple(Question(each.text, "", frozenset({str(each.paragraph)})) for each in language.questions)
        yield Collection("languages", language.name, texts, questions)
