"""Sentences: where they end, which of them repeat others, and that nothing else is lost."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.services.conflicts.sentences import SENTENCES_MAX, deduplicate, split_sentences

from tests.support.statements import CONTENTS, SHARES


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Anna drinks tea. Ben eats rice.", ["Anna drinks tea. ", "Ben eats rice."]),
        ("Anna drinks tea! Really? Yes", ["Anna drinks tea! ", "Really? ", "Yes"]),
        ("i like tea. i like rice", ["i like tea. ", "i like rice"]),
        ("Anna drinks tea\nBen eats rice\r\n", ["Anna drinks tea\n", "Ben eats rice\r\n"]),
        ("东京很大。京都很小！对吗？对", ["东京很大。", "京都很小！", "对吗？", "对"]),
        ('She said "yes." Then she left.', ['She said "yes." ', "Then she left."]),
        ("「はい。」次", ["「はい。」", "次"]),
        ("Wait... what?! Well.", ["Wait... ", "what?! ", "Well."]),
        (
            "It costs 3.5 euro at shop.example/a?b=1 today. Cheap.",
            ["It costs 3.5 euro at shop.example/a?b=1 today. ", "Cheap."],
        ),
        (
            "She met Dr. Miller, e.g. on Monday. J. R. R. Tolkien too.",
            ["She met Dr. Miller, e.g. on Monday. ", "J. R. R. Tolkien too."],
        ),
        ("1. Wash. 2. Cook rice.", ["1. Wash. ", "2. Cook rice."]),
        ("10. Wash.\n11. Cook rice.", ["10. Wash.\n", "11. Cook rice."]),
        ("She shops at Yahoo! stores.", ["She shops at Yahoo! stores."]),
        ("Tea.\n\nRice.", ["Tea.\n", "\n", "Rice."]),
        ("...", ["..."]),
        ("", []),
    ],
)
def test_sentences_end_at_their_marks_and_at_line_ends(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(CONTENTS | st.text(st.sampled_from(" .!?。？\n\r\u2028\"')」aA1茶")))
def test_sentences_put_together_are_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Anna drinks tea. Anna drinks tea.", "Anna drinks tea."),
        ("Anna drinks tea.\nANNA  drinks “tea”!", "Anna drinks tea."),
        ("Ａｎｎａ drinks tea.\nAnna drinks tea.", "Ａｎｎａ drinks tea."),
        ("The user drinks tea.\nUser drinks tea", "The user drinks tea."),
        ("User drinks tea.\nThe user really drinks tea.", "The user really drinks tea."),
        ("- Buy milk\n* Buy milk\nBuy rice", "- Buy milk\nBuy rice"),
        ("東京が好き。茶が好き。東京が好き。", "東京が好き。茶が好き。"),
        # The longer one stays, wherever it stands.
        ("Anna drinks tea. Anna drinks tea and coffee.", "Anna drinks tea and coffee."),
        ("Anna drinks tea and coffee. Anna drinks tea.", "Anna drinks tea and coffee."),
        ("Anna drinks tea.\nAnna drinks tea daily.\nAnna drinks tea daily at work.", "Anna drinks tea daily at work."),
        ("Anna doesn't drink tea. Anna doesn’t drink tea.", "Anna doesn't drink tea."),
    ],
)
def test_a_sentence_that_another_one_says_as_well_is_left_out(text: str, left: str) -> None:
    deduplicated = deduplicate(text, 0.8)
    assert deduplicated.text == left
    assert deduplicated.dropped_count == len(split_sentences(text)) - len(split_sentences(left))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Negations, in several languages.
        ("Anna likes tea.", "Anna does not like tea."),
        ("Anna likes tea.", "Anna likes tea no longer."),
        ("Anna can drink milk.", "Anna can't drink milk."),
        ("Anna drinks tea.", "Anna drinks tea never."),
        ("Anna trinkt Tee.", "Anna trinkt Tee nicht."),
        ("Anna bebe té.", "Anna bebe té nunca."),
        ("Anna boit du thé.", "Anna boit du thé jamais."),
        ("Анна пьёт чай.", "Анна пьёт чай не часто."),
        ("東京が好き。", "東京が好きではない。"),
        ("안나는 차를 마신다.", "안나는 차를 안 마신다."),
        # With a negation, the shorter one says more.
        ("Anna does not drink tea.", "Anna does not drink tea at night."),
        ("Anna doesn't drink tea.", "Anna doesn't drink tea at night."),
        ("Anna n'aime le thé.", "Anna n'aime le thé vert."),
        # Conditions, doubts and questions.
        ("Anna drinks tea.", "Anna drinks tea if it rains."),
        ("Anna takes the bus.", "If it rains, Anna takes the bus."),
        ("Anna lives in Rome.", "Anna lives in Rome, maybe."),
        ("Anna lives in Rome.", "Anna lives in Rome?"),
        ("Anna drinks tea.", "Ben thinks Anna drinks tea."),
        # The same words, another sense.
        ("Anna loves Ben.", "Ben loves Anna."),
        ("She moved from Rome to Oslo.", "She moved from Oslo to Rome."),
        # A word's difference, with a ratio far above the threshold.
        ("Anna lives in Berlin with her son and her dog.", "Anna lives in Dublin with her son and her dog."),
        ("The meeting is on Monday at 10 in the large room.", "The meeting is on Monday at 11 in the large room."),
        ("Her favourite colour is blue.", "Her favourite colour is green."),
        ("Anna lives in Rome.", "Anna lived in Rome."),
        ("The code is 3.5.", "The code is 35."),
        ("It is 5 degrees.", "It is -5 degrees."),
        ("She writes C.", "She writes C++."),
        ("She feels 😀.", "She feels 😢."),
        ("---", "***"),
    ],
)
@pytest.mark.parametrize("threshold", [0.0, 0.8])
def test_a_sentence_that_says_something_else_stays(one: str, other: str, threshold: float) -> None:
    for text in (f"{one}\n{other}", f"{other}\n{one}"):
        assert deduplicate(text, threshold) == deduplicate(text, 1.0)
        assert deduplicate(text, threshold).text == text
        assert deduplicate(text, threshold).dropped_count == 0


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 1), (0.8, 1), (28 / 30, 1), (0.94, 0), (1.0, 0)])
def test_the_token_set_ratio_must_reach_the_threshold(threshold: float, count: int) -> None:
    # In common: "likes tea user", 14 characters; with "a" they are 16. 14 twice, of 14 + 16: 28 / 30.
    assert deduplicate("The user likes tea.\nA user likes tea.", threshold).dropped_count == count


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Tea is hot. Rice is white. Tea is hot.\n\nMilk is cold.", "Tea is hot. Rice is white.\n\nMilk is cold."),
        ("Tea is hot.\r\nTea is hot.\r\nMilk is cold.", "Tea is hot.\r\nMilk is cold."),
        ("  Tea is hot!  Milk is cold?\n\tTea is hot. Go now", "  Tea is hot!  Milk is cold?\nGo now"),
        ("Tea is hot.\nRice is white.\nTea is hot.\n", "Tea is hot.\nRice is white."),
        ("茶は熱い。米は白い。茶は熱い。水は冷たい。", "茶は熱い。米は白い。水は冷たい。"),
    ],
)
def test_what_is_between_the_sentences_that_stay_survives(text: str, left: str) -> None:
    assert deduplicate(text, 0.8).text == left


def test_a_text_without_repetitions_stays_as_it_is_to_the_last_space() -> None:
    text = "  Tea is hot.  Milk is cold. \n\n Rice is white \n"
    assert deduplicate(text, 0.8).text == text


def test_a_text_of_very_many_sentences_stays_as_it_is() -> None:
    lines = [f"Room {number} is number {number % 100} of its floor.\n" for number in range(SENTENCES_MAX // 2)]
    deduplicated = deduplicate("".join(lines * 2), 0.8)
    assert deduplicated.text == "".join(lines).rstrip()
    assert deduplicated.dropped_count == SENTENCES_MAX // 2
    more = "".join(lines * 2) + lines[0]
    assert deduplicate(more, 0.8).text == more


def plain(text: str) -> list[str]:
    """The words of a text without articles and punctuation, found in another way than the program does."""
    words = re.split(r"\s+", unicodedata.normalize("NFKC", text).replace("’", "'").lower())
    bare = [re.sub(r"^[^\w+#]+|[^\w+#]+$", "", word) for word in words]
    return [
        word for word in bare if word and word not in {"a", "also", "an", "indeed", "quite", "really", "the", "very"}
    ]


@given(CONTENTS, SHARES)
def test_what_is_left_out_is_said_by_a_sentence_that_stays(text: str, threshold: float) -> None:
    deduplicated = deduplicate(text, threshold)
    sentences = split_sentences(text)
    kept = [sentence for sentence in sentences if sentence.strip() in deduplicated.text]
    gone = [sentence for sentence in sentences if sentence not in kept]
    assert len(gone) <= deduplicated.dropped_count
    assert (deduplicated.dropped_count == 0) == (deduplicated.text == text)
    for sentence in gone:
        said = plain(sentence)
        assert any(plain(other)[: len(said)] == said for other in kept), sentence
