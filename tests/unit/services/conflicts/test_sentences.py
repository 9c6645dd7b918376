"""Sentences: where they end, which of them repeat others, and that nothing else is lost."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.services.conflicts.merging import SENTENCES_COMPARED_MAX, deduplicate, split_sentences
from rapidfuzz import fuzz

from tests.bench.conflict_pairs import Label, load_written
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
def test_joined_sentences_are_the_text(text: str) -> None:
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
        # The longer one stays, whatever its position.
        ("Anna drinks tea. Anna drinks tea and coffee.", "Anna drinks tea and coffee."),
        ("Anna drinks tea and coffee. Anna drinks tea.", "Anna drinks tea and coffee."),
        ("Anna drinks tea.\nAnna drinks tea daily.\nAnna drinks tea daily at work.", "Anna drinks tea daily at work."),
        ("Anna doesn't drink tea. Anna doesn’t drink tea.", "Anna doesn't drink tea."),
        # Another wording.
        ("Anna does not drink tea. Anna doesn't drink any tea.", "Anna doesn't drink any tea."),
        ("She enjoys tea at noon. At noon she enjoys drinking tea.", "At noon she enjoys drinking tea."),
        ("In Rome Anna met Ben. Anna met Ben in Rome.", "In Rome Anna met Ben."),
        ("Prefers window seats on trains. Prefers a window seat on the train.", "Prefers a window seat on the train."),
        ("I have seen the film. I've seen the film.", "I have seen the film."),
        ("No calls after 10 pm. No calls after 10 p.m.", "No calls after 10 p.m."),
        ("i like green tea. i like green tea a lot.", "i like green tea a lot."),
        ("Анна пьёт зелёный чай. Анна часто пьёт зелёный чай.", "Анна часто пьёт зелёный чай."),
        ("她喜欢喝绿茶。她很喜欢喝绿茶。", "她很喜欢喝绿茶。"),
        ("東京が好き。東京が好きです。", "東京が好きです。"),
        ("안나는 녹차를 마신다. 안나는 매일 녹차를 마신다.", "안나는 매일 녹차를 마신다."),
        ("آنا تشرب الشاي. آنا تشرب الشاي صباحا.", "آنا تشرب الشاي صباحا."),
    ],
)
def test_a_sentence_that_another_one_also_expresses_is_left_out(text: str, left: str) -> None:
    deduplicated = deduplicate(text, 0.8)
    assert deduplicated.text == left
    assert deduplicated.dropped_count == len(split_sentences(text)) - len(split_sentences(left))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Negations, in several languages.
        ("Anna likes tea.", "Anna does not like tea."),
        ("likes tea", "does not like tea"),
        ("Anna likes tea.", "Anna likes tea no longer."),
        ("Anna can drink milk.", "Anna can't drink milk."),
        ("Anna drinks tea.", "Anna drinks tea never."),
        ("Anna trinkt Tee.", "Anna trinkt Tee nicht."),
        ("Anna bebe té.", "Anna bebe té nunca."),
        ("Anna boit du thé.", "Anna boit du thé jamais."),
        ("Анна пьёт чай.", "Анна не пьёт чай."),
        ("她喜欢喝绿茶。", "她不喜欢喝绿茶。"),
        ("東京が好き。", "東京が好きではない。"),
        ("안나는 차를 마신다.", "안나는 차를 안 마신다."),
        # Conditions, doubts and questions.
        ("Anna drinks tea.", "Anna drinks tea if it rains."),
        ("Anna takes the bus.", "If it rains, Anna takes the bus."),
        ("Anna lives in Rome.", "Anna lives in Rome, maybe."),
        ("Anna lives in Rome.", "Anna lives in Rome?"),
        ("Anna drinks tea.", "Ben thinks Anna drinks tea."),
        # Tenses.
        ("Anna is a nurse.", "Anna was a nurse."),
        ("Anna lives in a flat.", "Anna lived in a flat."),
        # The order says who does what, and what comes first.
        ("The user prefers tea over coffee.", "The user prefers coffee over tea."),
        ("Dog bit man.", "Man bit dog."),
        ("dog bites man", "man bites dog"),
        ("The cat is afraid of the dog.", "The dog is afraid of the cat."),
        ("The manager thanked the clerk.", "The clerk thanked the manager."),
        ("Milk chocolate.", "Chocolate milk."),
        ("She works to live, every day.", "She lives to work, every day."),
        ("He gave his sister a book from his mother.", "He gave his mother a book from his sister."),
        ("Die Katze jagt den Hund.", "Der Hund jagt die Katze."),
        ("El perro muerde al gato negro.", "El gato negro muerde al perro."),
        ("犬が男を噛んだ。", "男が犬を噛んだ。"),
        ("狗咬了那个人。", "那个人咬了狗。"),
        # Opposites, and any other word in place of one.
        ("The shop is open on Sundays.", "The shop is closed on Sundays."),
        ("She takes the pills before dinner.", "She takes the pills after dinner."),
        ("She wants more sugar in her tea.", "She wants less sugar in her tea."),
        ("The user wants to buy a house near the lake.", "The user wants to sell a house near the lake."),
        ("The heating in the flat is on.", "The heating in the flat is off."),
        ("The office is up the hill by the church.", "The office is down the hill by the church."),
        ("She walks to the station at noon.", "She walks from the station at noon."),
        ("The number of orders increases each month.", "The number of orders decreases each month."),
        ("The contract is legal in this country.", "The contract is illegal in this country."),
        ("The user can park left of the gate.", "The user can park right of the gate."),
        ("The user owes his brother money.", "The user lends his brother money."),
        ("He lives on the third street by the river.", "She lives on the third street by the river."),
        ("The red bicycle is for the commute.", "The blue bicycle is for the commute."),
        ("Der Laden bleibt heute geöffnet.", "Der Laden bleibt heute geschlossen."),
        ("La tienda está abierta hoy.", "La tienda está cerrada hoy."),
        ("Магазин сегодня открыт.", "Магазин сегодня закрыт."),
        ("商店今天开门。", "商店今天关门。"),
        # Names.
        ("Anna lives in Berlin.", "Anna lives in Munich."),
        ("Berlin is where the user lives with her son.", "Munich is where the user lives with her son."),
        ("Anna lives in Berlin with her son and her dog.", "Anna lives in Dublin with her son and her dog."),
        ("lives in berlin with her son and her dog", "lives in munich with her son and her dog"),
        ("Anna loves Ben.", "Ben loves Anna."),
        ("She moved from Rome to Oslo.", "She moved from Oslo to Rome."),
        ("i moved from rome to oslo", "i moved from oslo to rome"),
        ("She lives in Rome.", "Her brother Ben lives in Rome."),
        ("Анна живёт в Берлине с сыном.", "Анна живёт в Мюнхене с сыном."),
        ("她和儿子住在北京市中心。", "她和儿子住在上海市中心。"),
        ("東京タワーの近くに住んでいる。", "京都タワーの近くに住んでいる。"),
        ("안나는 서울에서 아들과 함께 산다.", "안나는 부산에서 아들과 함께 산다."),
        ("آنا تسكن في برلين مع ابنها.", "آنا تسكن في ميونخ مع ابنها."),
        # Numbers, in digits, words and symbols.
        ("The meeting is on Monday at 10 in the large room.", "The meeting is on Monday at 11 in the large room."),
        ("She has three small children.", "She has four small children."),
        ("她有三个孩子。", "她有三十三个孩子。"),
        ("The code is 3.5.", "The code is 35."),
        ("It is 5 degrees.", "It is -5 degrees."),
        ("The shop is open from 9 to 17.", "The shop is open from 17 to 9."),
        ("She writes C.", "She writes C++."),
        ("She feels 😀.", "She feels 😢."),
    ],
)
@pytest.mark.parametrize("threshold", [0.0, 0.8])
def test_the_guard_keeps_sentences_with_a_different_meaning(one: str, other: str, threshold: float) -> None:
    for text in (f"{one}\n{other}", f"{other}\n{one}"):
        kept = deduplicate(text, threshold)
        assert (kept.text, kept.dropped_count) == (text, 0)
        assert deduplicate(text, 0.0).guarded_count == 1
        alone = deduplicate(text, threshold, guard=False)
        # Without the guard, the sentences that it kept are left out.
        assert alone.dropped_count == kept.guarded_count
        assert alone.guarded_count == 0


def test_without_the_guard_only_the_ratio_decides() -> None:
    # "tea" in common, "likes" and "does like not" apart: 2 * 9 / 26 letters alike.
    text = "likes tea\ndoes not like tea"
    drops = [deduplicate(text, threshold, guard=False).dropped_count for threshold in (0.7, 0.6)]
    assert drops == [0, 1]
    assert [deduplicate(text, threshold).guarded_count for threshold in (0.7, 0.6)] == [0, 1]


def test_a_lower_threshold_leaves_out_more() -> None:
    pairs = [(pair.label, f"{pair.left.content}\n{pair.right.content}") for pair in load_written()]

    def dropped(label: Label, threshold: float, *, guard: bool) -> int:
        texts = [text for each, text in pairs if each is label]
        return sum(deduplicate(text, threshold, guard=guard).dropped_count > 0 for text in texts)

    for guard in (True, False):
        repeated = [dropped(Label.PARAPHRASE, threshold, guard=guard) for threshold in (1.0, 0.9, 0.8, 0.6, 0.5)]
        assert repeated == sorted(repeated)
        # The guard keeps what the lowest thresholds would leave out.
        steps = repeated[:3] if guard else repeated
        assert len({*steps}) == len(steps), "each step must leave out more"
    lost = {guard: dropped(Label.CONTRADICTION, 0.8, guard=guard) for guard in (True, False)}
    assert lost[False] > lost[True] == 0


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 1), (0.8, 1), (28 / 30, 1), (0.94, 0), (1.0, 0)])
def test_the_token_set_ratio_must_reach_the_threshold(threshold: float, count: int) -> None:
    # In common: "likes tea user", 14 characters; with "a" they are 16. 14 twice, of 14 + 16: 28 / 30.
    assert deduplicate("The user likes tea.\nA user likes tea.", threshold).dropped_count == count
    assert deduplicate("The user likes tea.\nA user likes tea.", threshold, guard=False).dropped_count == count


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
def test_the_text_between_the_remaining_sentences_survives(text: str, left: str) -> None:
    assert deduplicate(text, 0.8).text == left


def test_a_text_without_repetitions_stays_exactly_the_same() -> None:
    text = "  Tea is hot.  Milk is cold. \n\n Rice is white \n"
    assert deduplicate(text, 0.8).text == text


def test_among_very_many_sentences_only_those_with_the_same_words_are_left_out() -> None:
    few = [f"The room is {'really ' * number}bright.\n" for number in range(SENTENCES_COMPARED_MAX)]
    alike = deduplicate("".join(few), 0.8)
    assert alike.dropped_count > SENTENCES_COMPARED_MAX / 2
    many = [*few, "Milk is cold.\n"]
    text = "".join([*many, *(line.upper() for line in many)])
    assert deduplicate(text, 0.8).text == "".join(many).rstrip()
    assert deduplicate(text, 0.8).dropped_count == len(many)


@given(text=CONTENTS, threshold=SHARES, guard=st.booleans())
def test_every_omitted_sentence_is_expressed_by_one_that_stays(text: str, threshold: float, *, guard: bool) -> None:
    deduplicated = deduplicate(text, threshold, guard=guard)
    sentences = split_sentences(text)
    kept = [sentence for sentence in sentences if sentence.strip() in deduplicated.text]
    gone = [sentence for sentence in sentences if sentence not in kept]
    assert len(gone) <= deduplicated.dropped_count
    assert (deduplicated.dropped_count == 0) == (deduplicated.text == text)
    assert deduplicated.dropped_count + deduplicated.guarded_count <= len(sentences)
    for sentence in gone:
        ratios = [fuzz.token_set_ratio(plain(sentence), plain(other)) for other in kept]
        assert max(ratios) >= threshold * 100 - 1e-6, sentence


def plain(text: str) -> str:
    """The words of a text without punctuation, computed in another way than the program does."""
    words = re.split(r"\s+", unicodedata.normalize("NFKC", text).replace("’", "'"))
    return " ".join(re.sub(r"^[^\w+#]+|[^\w+#]+$", "", word) for word in words).lower()
