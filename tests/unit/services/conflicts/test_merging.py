"""Merging: how two statements are combined, field by field, and the statistics about it."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.conflicts import (
    SOURCE_PRIORITY,
    ContentStrategy,
    ImportanceStrategy,
    KeywordsStrategy,
    MergeConfig,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.merging import Merged, merge, split_sentences

from tests.support.statements import NOON, merge_configs, statement, statements

CONCATENATE, REPLACE, SUMMARIZE, SMART = ContentStrategy
DAY = timedelta(days=1)


def merged(first: SemanticMemory, second: SemanticMemory, **config: Any) -> Merged:
    return merge(first, second, MergeConfig(**config), source_priority=SOURCE_PRIORITY)


def contents(first: str, second: str, **config: Any) -> str:
    return merged(statement(first), statement(second), **config).memory.content


def test_concatenate_joins_both_with_a_newline() -> None:
    assert contents(" Tea is hot. ", "Milk is cold", content_strategy=CONCATENATE) == " Tea is hot. \nMilk is cold"


def test_replace_returns_the_second() -> None:
    result = merged(statement("Tea. Tea."), statement("Rice. Rice. "), content_strategy=REPLACE)
    assert result.memory.content == "Rice. Rice. "
    assert result.statistics.deduplicated_count == 0


def test_summarize_names_the_topic_and_the_sentences_that_add_something() -> None:
    first = statement("Anna drinks green tea. She has a cat.", keywords=("Tea", "cat", "Anna", "TEA"))
    second = statement("Anna drinks green tea at noon. She has a cat.", keywords=("anna", "tea", "noon"))
    result = merged(first, second, content_strategy=SUMMARIZE)
    assert result.memory.content == "Tea, Anna\nShe has a cat.\nAnna drinks green tea at noon."
    assert result.statistics.deduplicated_count == 2


def test_without_keywords_the_topic_is_the_significant_words_of_both() -> None:
    assert contents("The tea is for Anna.", "Anna never has tea.", content_strategy=SUMMARIZE) == (
        "tea, anna\nThe tea is for Anna.\nAnna never has tea."
    )


@pytest.mark.parametrize(
    ("first", "second", "about"),
    [
        ("他住在北京，不喝绿茶。", "用户在北京，喜欢猫。", "北京"),
        ("用户的妹妹是医生，三十岁。", "他的妹妹是医生。", "妹妹, 医生"),
        ("她喜欢喝绿茶。", "她从不喝红茶。", ""),
        ("東京タワーの近くで毎日飲むコーヒー。", "東京ではコーヒーを毎日飲まない。", "東京, コーヒー"),
        ("电话 from Anna：明天下雨。", "Anna 不接电话。", "anna"),
        ("안나는 녹차를 마신다.", "안나는 녹차를 안 마셨다.", "안나는, 녹차를"),
        ("カフェで働く。", "駅前のｶﾌｪにいない。", "カフェ"),
    ],
)
def test_the_topic_consists_of_readable_words(first: str, second: str, about: str) -> None:
    content = contents(first, second, content_strategy=SUMMARIZE)
    assert content == "\n".join(filter(None, (about, first, second)))


def test_given_keywords_are_the_topic_in_any_script() -> None:
    first = statement("他住在北京。", keywords=("北京", "居住"))
    second = statement("他没有离开北京。", keywords=("离开", "北京"))
    assert merged(first, second, content_strategy=SUMMARIZE).memory.content.startswith("北京\n")


def test_summarizing_contents_with_nothing_in_common_has_no_topic_line() -> None:
    assert contents("Tea is hot.", "Milk was cold.", content_strategy=SUMMARIZE) == "Tea is hot.\nMilk was cold."


def test_summarize_leaves_repetitions_out_even_if_other_strategies_would_not() -> None:
    assert contents("Tea.", "Tea.", content_strategy=SUMMARIZE, deduplicate=False) == "tea\nTea."


@pytest.mark.parametrize(
    ("first", "second", "strategy"),
    [
        # w0 to w6 of w0 to w9: 7 of 10 is not above 0.7
        ("w0 w1 w2 w3 w4 w5 w6 w7", "w0 w1 w2 w3 w4 w5 w6 w8 w9", CONCATENATE),
        # 8 of 11 = 0.727
        ("w0 w1 w2 w3 w4 w5 w6 w7 w8", "w0 w1 w2 w3 w4 w5 w6 w7 w9 wa", SUMMARIZE),
        ("Tea is hot", "TEA is hot!", SUMMARIZE),
        ("東京が好き", "東京が好き", SUMMARIZE),
        ("Tea is hot", "Milk was cold", CONCATENATE),
        ("?", "!", CONCATENATE),
    ],
)
def test_smart_summarizes_if_more_than_seven_tenths_of_the_words_are_the_same(
    first: str, second: str, strategy: ContentStrategy
) -> None:
    result = merged(statement(first), statement(second), content_strategy=SMART)
    assert result.content_strategy is strategy
    assert result.memory.content == contents(first, second, content_strategy=strategy)


def test_a_shared_sentence_is_kept_once_unless_deduplication_is_disabled() -> None:
    first, second = "Tea is hot. Milk is cold.", "Rice is white. Tea is hot."
    assert contents(first, second) == "Tea is hot. Milk is cold.\nRice is white."
    assert contents(first, second, deduplicate=False) == f"{first}\n{second}"


def test_the_threshold_for_repetitions_is_configured() -> None:
    first, second = "The user likes tea.", "A user likes tea."
    assert contents(first, second, content_strategy=CONCATENATE) == "The user likes tea."
    strict = contents(first, second, content_strategy=CONCATENATE, deduplication_threshold=0.95)
    assert strict == f"{first}\n{second}"


@pytest.mark.parametrize("strategy", [CONCATENATE, SUMMARIZE])
def test_the_guard_is_configured_and_the_sentences_it_kept_are_counted(strategy: ContentStrategy) -> None:
    first = statement("The user likes tea.", keywords=("k",))
    second = statement("The user does not like tea.", keywords=("l",))
    both = merged(first, second, content_strategy=strategy)
    assert both.memory.content == f"{first.content}\n{second.content}"
    assert (both.statistics.deduplicated_count, both.statistics.guarded_count) == (0, 1)
    unguarded = merged(first, second, content_strategy=strategy, deduplication_guard=False)
    assert unguarded.memory.content == second.content
    assert (unguarded.statistics.deduplicated_count, unguarded.statistics.guarded_count) == (1, 0)


@pytest.mark.parametrize(
    ("strategy", "first", "second", "expected"),
    [
        (ImportanceStrategy.MAX, 0.3, 0.6, 0.6),
        (ImportanceStrategy.MAX, 0.3, None, 0.3),
        (ImportanceStrategy.BOOST, 0.6, 0.3, 0.7),
        (ImportanceStrategy.BOOST, 0.95, 0.3, 1.0),
        (ImportanceStrategy.BOOST, None, 0.3, 0.4),
        (ImportanceStrategy.BOOST, 0.0, 0.0, 0.1),
        (ImportanceStrategy.AVERAGE, 0.2, 0.6, 0.4),
        (ImportanceStrategy.AVERAGE, 0.2, None, 0.2),
        (ImportanceStrategy.MAX, None, None, None),
        (ImportanceStrategy.BOOST, None, None, None),
        (ImportanceStrategy.AVERAGE, None, None, None),
    ],
)
def test_importance(
    strategy: ImportanceStrategy, first: float | None, second: float | None, expected: float | None
) -> None:
    result = merged(statement(importance=first), statement(importance=second), importance_strategy=strategy)
    assert result.memory.importance == (None if expected is None else pytest.approx(expected))
    delta = 0.0 if expected is None else expected - max(first or 0.0, second or 0.0)
    assert result.statistics.importance_delta == pytest.approx(delta)


@pytest.mark.parametrize(
    ("strategy", "first", "second", "expected"),
    [
        (TimestampStrategy.MAX, NOON, NOON + DAY, NOON + DAY),
        (TimestampStrategy.MAX, NOON + DAY, NOON, NOON + DAY),
        (TimestampStrategy.MIN, NOON, NOON + DAY, NOON),
        (TimestampStrategy.MIN, None, NOON, NOON),
        (TimestampStrategy.MAX, NOON, None, NOON),
        (TimestampStrategy.MAX, None, None, None),
    ],
)
def test_times(strategy: TimestampStrategy, first: object, second: object, expected: object) -> None:
    result = merged(statement(create_time=first), statement(create_time=second), timestamp_strategy=strategy)
    assert result.memory.create_time == expected


@pytest.mark.parametrize(
    ("strategy", "first", "second", "expected"),
    [
        (SourceStrategy.PREFER_HIGHER, "user", "conversation", "user"),
        (SourceStrategy.PREFER_HIGHER, "inferred", "system", "system"),
        (SourceStrategy.PREFER_HIGHER, "system", "skill", "skill"),
        (SourceStrategy.PREFER_HIGHER, "skill", "conversation", "conversation"),
        (SourceStrategy.PREFER_HIGHER, "a form", "inferred", "inferred"),
        (SourceStrategy.PREFER_HIGHER, "a form", "a letter", "a form"),
        (SourceStrategy.PREFER_HIGHER, "", "a letter", "a letter"),
        (SourceStrategy.FIRST, "inferred", "user", "inferred"),
        (SourceStrategy.FIRST, "", "user", "user"),
        (SourceStrategy.SECOND, "user", "inferred", "inferred"),
        (SourceStrategy.SECOND, "user", "", "user"),
        (SourceStrategy.SECOND, "", "", ""),
    ],
)
def test_sources(strategy: SourceStrategy, first: str, second: str, expected: str) -> None:
    result = merged(statement(source=first), statement(source=second), source_strategy=strategy)
    assert result.memory.source == expected


def test_the_configured_source_priorities_apply() -> None:
    result = merge(statement(source="user"), statement(source="a form"), MergeConfig(), source_priority={"a form": 1.0})
    assert result.memory.source == "a form"


@pytest.mark.parametrize(
    ("strategy", "first", "second", "expected"),
    [
        (KeywordsStrategy.UNION, ("Tea", "milk"), ("rice", "TEA"), ("Tea", "milk", "rice")),
        (KeywordsStrategy.UNION, ("tea", "Tea"), (), ("tea",)),
        (KeywordsStrategy.UNION, (), ("rice",), ("rice",)),
        (KeywordsStrategy.UNION, (), (), ()),
        (KeywordsStrategy.INTERSECTION, ("Tea", "milk", "Rice"), ("rice", "TEA"), ("Tea", "Rice")),
        (KeywordsStrategy.INTERSECTION, ("tea",), (), ()),
    ],
)
def test_keywords(
    strategy: KeywordsStrategy, first: tuple[str, ...], second: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    result = merged(statement(keywords=first), statement(keywords=second), keywords_strategy=strategy)
    assert result.memory.keywords == expected
    assert result.statistics.keywords_count == len(expected)


def test_metadata_of_both_is_merged_and_the_second_wins() -> None:
    first = SemanticMemory(
        "one", "Tea.", "Hot.", Scope("anna", household="home", persona="work"), metadata={"a": 1, "b": 2}
    )
    second = SemanticMemory("two", "Rice.", "White.", Scope("anna", persona="cook"), metadata={"b": 3, "c": 4})
    memory = merged(first, second).memory
    assert memory.summary == "Hot.\nWhite."
    assert memory.scope == Scope("anna", household="home", persona="cook")
    assert memory.metadata == {"a": 1, "b": 3, "c": 4}
    assert (memory.memory_id, memory.revision, memory.superseded_by) == ("", 0, "")


@pytest.mark.parametrize(("first", "second", "summary"), [("", "", ""), ("Hot.", "", "Hot."), ("Hot.", "hot", "Hot.")])
def test_summaries_are_joined(first: str, second: str, summary: str) -> None:
    assert merged(statement(summary=first), statement(summary=second)).memory.summary == summary


def test_the_inputs_are_named_if_history_is_kept() -> None:
    first, second = statement(memory_id="one"), statement(memory_id="two")
    assert merged(first, second).memory.merged_from == ("one", "two")
    assert merged(first, second, keep_history=False).memory.merged_from == ()
    assert merged(first, statement()).memory.merged_from == ("one",)


EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [
        (EAST, NORTH, (0.5**0.5, 0.5**0.5)),
        (EAST, EAST, EAST),
        (EAST, WEST, WEST),  # no direction lies between them
        (EAST, None, EAST),
        (None, NORTH, NORTH),
        (None, None, None),
        ((1.0, 0.0, 0.0), NORTH, NORTH),
    ],
)
def test_the_vector_lies_between_those_of_the_two(first: Any, second: Any, between: Any) -> None:
    memory = merged(statement("Tea.", embedding=first), statement("Rice.", embedding=second)).memory
    assert memory.embedding == (None if between is None else pytest.approx(between))


def test_a_content_equal_to_one_input_gets_its_vector() -> None:
    first, second = statement("Tea is hot, and good.", embedding=EAST), statement("Tea is hot", embedding=NORTH)
    assert merged(first, second, content_strategy=REPLACE).memory.embedding == NORTH
    assert merged(first, second, content_strategy=CONCATENATE).memory.content == first.content
    assert merged(first, second, content_strategy=CONCATENATE).memory.embedding == EAST


keeping = merge_configs(st.sampled_from((CONCATENATE, SUMMARIZE, SMART)))


@given(statements(), statements(), merge_configs(st.sampled_from(ContentStrategy)))
def test_statistics_agree_with_the_result(first: SemanticMemory, second: SemanticMemory, config: MergeConfig) -> None:
    result = merge(first, second, config, source_priority=SOURCE_PRIORITY)
    assert result.content_strategy is not SMART
    assert result.statistics.content_length == len(result.memory.content)
    assert result.statistics.keywords_count == len(result.memory.keywords) == len(set(result.memory.keywords))
    known = [importance for importance in (first.importance, second.importance) if importance is not None]
    assert (result.memory.importance is None) == (not known)
    if known:
        assert result.memory.importance == pytest.approx(max(known) + result.statistics.importance_delta)
        assert 0.0 <= (result.memory.importance or 0.0) <= 1.0


@given(statements(), statements(), keeping)
def test_every_lost_sentence_is_counted(first: SemanticMemory, second: SemanticMemory, config: MergeConfig) -> None:
    result = merge(first, second, config, source_priority=SOURCE_PRIORITY)
    sentences = [*split_sentences(first.content), *split_sentences(second.content)]
    gone = [sentence for sentence in sentences if sentence.strip() not in result.memory.content]
    assert len(gone) <= result.statistics.deduplicated_count
    if not result.statistics.deduplicated_count:
        assert result.memory.content.endswith(f"{first.content}\n{second.content}")


@given(statements(), statements())
def test_without_deduplication_concatenation_is_exact(first: SemanticMemory, second: SemanticMemory) -> None:
    result = merged(first, second, content_strategy=CONCATENATE, deduplicate=False)
    assert result.memory.content == f"{first.content}\n{second.content}"
    assert result.statistics.deduplicated_count == 0
