"""How well a model's vocabulary covers a text, which tells whether the model reads the text's language.

The vocabulary of a model has long pieces for the languages that it was trained on. Text in other languages falls into
single letters and unknown characters: its vector then says hardly anything about its meaning.
"""

import re
from collections.abc import Iterable

_LETTERS_MIN = 3
_LETTER = re.compile(r"[^\W\d_]")
_SYLLABLE = re.compile("[\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
"""Han characters, kana and Hangul."""
_LETTERS_OF_SYLLABLE = 3
"""Each of these says as much as so many letters: a Chinese question with an English name is Chinese."""


def coverage(text: str, known: Iterable[tuple[int, int]]) -> float:
    """The share of a text's letters, 0 to 1, that are in long tokens: at least three letters, or two CJK characters.

    Args:
        text: the text. Without any letter, the result is 1.
        known: the start and the exclusive end of each token of the vocabulary, in code points.
    """
    others, syllables = _counts(text)
    if not others + syllables:
        return 1.0
    in_long_tokens = 0
    for start, end in known:
        letters, long_syllables = _counts(text[start:end])
        if letters + 2 * long_syllables >= _LETTERS_MIN:
            # Also a vocabulary that was made for these languages has half of the characters of a text as tokens of
            # their own, so two that are a token count for four.
            in_long_tokens += letters + 2 * _LETTERS_OF_SYLLABLE * long_syllables
    return min(in_long_tokens / (others + _LETTERS_OF_SYLLABLE * syllables), 1.0)


def _counts(text: str) -> tuple[int, int]:
    """The number of CJK characters comes last, that of other letters first."""
    syllables = len(_SYLLABLE.findall(text))
    return len(_LETTER.findall(text)) - syllables, syllables
