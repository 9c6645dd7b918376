"""Passages of long texts begin with a sentence, in any script, and wherever lines break."""

import itertools
import random
import textwrap

import pytest
from mnemon_server.embedding.endpoint import estimated_tokens
from mnemon_server.embedding.passages import cut_passages

PLAIN = ["the", "river", "bridge", "of", "light", "stone", "in", "summer"]
DOTTED = [*PLAIN, "J. Ross", "3.5", "example.org,", "A. B. Lee", "19. Mai", "(see p. 7)"]


def sentences(seed: int, words: list[str], *, end: str = ".", space: str = " ") -> list[str]:
    """Many sentences of 3 to 10 words."""
    dice = random.Random(seed)
    return [
        space.join(["Then" if space else "", *dice.choices(words, k=dice.randint(3, 10))]) + end for _ in range(200)
    ]


def begins(text: str) -> list[int]:
    """Where the passages of a text begin, behind the first."""
    spans = cut_passages(text, estimated_tokens(text), 128)
    assert len(spans) > 5 and spans[0].start == 0 and spans[-1].end == len(text)
    assert all(before.start < after.start <= before.end for before, after in itertools.pairwise(spans))
    return [span.start for span in spans[1:]]


@pytest.mark.parametrize(
    ("words", "end", "space"),
    [
        (PLAIN, ".", " "),
        (DOTTED, ".", " "),
        (PLAIN, '?"', " "),
        (PLAIN, "!)", " "),
        (["река", "мост", "камень", "свет", "лето"], "…", " "),
        (["川の", "橋は", "石で", "夏に", "作られた"], "。", ""),
        (["河上", "的桥", "是用", "石头", "建的"], "！」", ""),
        (["नदी", "पुल", "पत्थर", "गर्मी", "पानी"], "।", " "),
        (["نهر", "جسر", "حجر", "صيف", "ماء"], "؟", " "),
        (["دریا", "پل", "پتھر", "گرمی", "پانی"], "۔", " "),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_passages_begin_with_a_sentence(words: list[str], end: str, space: str, seed: int) -> None:
    found = sentences(seed, words, end=end, space=space)
    starts = set(itertools.accumulate(len(each + space) for each in found))
    assert starts.issuperset(begins(space.join(found)))


def test_lines_that_are_wrapped_are_no_sentences() -> None:
    text = textwrap.fill(" ".join(sentences(5, PLAIN)), 60)
    assert all(text.startswith("Then", start) for start in begins(text))


def test_sentences_in_lower_case_and_single_lines_count_if_there_is_nothing_better() -> None:
    text = " ".join(sentences(6, PLAIN)).lower()
    assert all(text.startswith("then", start) for start in begins(text))
    text = "\n".join(sentences(7, PLAIN, end="")).lower()
    assert all(text.startswith("then", start) for start in begins(text))


def test_a_sentence_longer_than_a_passage_is_cut_at_words() -> None:
    text = " ".join(random.Random(8).choices(PLAIN, k=2000))
    assert all(text[start - 1] == " " for start in begins(text))
