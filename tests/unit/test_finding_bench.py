"""The comparison of searches counts by set and by writer, beside the plain searches."""

import pytest

from tests.bench.conversations import Question
from tests.bench.finding.__main__ import PLAIN_VECTORS, PLAIN_WORDS, below, figures, table
from tests.bench.finding.searches import Words
from tests.bench.finding.sets import Collection, Text, load

CHAT = Collection(
    "chats, reporting",
    "x",
    (
        Text("1", "Where did I leave my bikes?", {}, "user"),
        Text("2", "In the cellar.", {}, "assistant"),
        Text("3", "It is raining.", {}, "assistant"),
    ),
    (
        Question("the bike", "", frozenset({"1", "2"})),
        Question("what is it?", "", frozenset({"3"})),
    ),
)


def test_the_evidence_is_also_counted_by_who_wrote_it() -> None:
    measured = figures({"facts": {"x": [["1"], ["3", "2"]]}}, [CHAT])

    found = {part: row["recall@10"].mean for part, row in measured["facts"].items()}
    assert found == {
        "chats, reporting": 0.75,
        "chats, reporting: user's": 1.0,
        "chats, reporting: assistant's": 0.5,
    }
    assert "| chats, reporting: assistant's | recall@10 | 0.500 [0.000, 1.000] |" in table(measured)


def test_a_search_that_finds_less_than_a_plain_one_is_named() -> None:
    nothing, everything = [["3"], ["1"]], [["1", "2"], ["3"]]
    found = {
        "facts": {"x": nothing},
        "tool": {"x": everything},
        PLAIN_VECTORS: {"x": everything},
        PLAIN_WORDS: {"x": nothing},
    }

    assert below(figures(found, [CHAT]))[0] == f"chats, reporting: facts 0.000, {PLAIN_VECTORS} 1.000"
    assert len(below(figures(found, [CHAT]))) == 3


def test_plain_words_are_stems_without_stop_words() -> None:
    words = Words()
    words.store(CHAT)
    assert words.find(CHAT) == [["1"], []]


@pytest.mark.parametrize(("written", "start"), [("text", "hi. I am a nurse"), ("author", "user: hi. I am a nurse")])
def test_messages_are_stored_alone_or_with_the_author_in_front(written: str, start: str) -> None:
    collections = load(["chats", "languages"], None, written=written, questions_max=1)

    assert [each.set for each in collections].count("chats, reporting") == 4
    assert len(collections) == 12
    move = next(each for each in collections if each.name == "move")
    assert move.texts[0].content.startswith(start)
    assert move.texts[0].metadata["role"] == move.texts[0].writer == "user"
    assert all(question.evidence for question in move.questions)
