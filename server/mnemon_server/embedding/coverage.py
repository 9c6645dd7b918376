"""How well a model's vocabulary covers a text, which tells whether the model reads the text's language.

The vocabulary of a model has long pieces for the languages that it was trained on. Text in other languages falls into
single letters and unknown characters: its vector then says hardly anything about its meaning.
"""

import re
from collections.abc import Iterable

_LETTERS_MIN = 3
_LETTER = re.compile(r"[^\W\d_]")
_SYLLABLE = re.compile("[\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
"""Han characters, kana and Hangul. Two of them are a long token, and count for two more: also a vocabulary that was
made for these languages has half of the characters of a text as tokens of their own.
"""


def coverage(text: str, known: Iterable[tuple[int, int]]) -> float:
    """The share of a text's letters, 0 to 1, that are in long tokens: at least three letters, or two CJK characters.

    Args:
        text: the text. Without any letter, the result is 1.
        known: the start and the exclusive end of each token of the vocabulary, in code points.
    """
    letters = len(_LETTER.findall(text))
    if not letters:
        return 1.0
    in_long_tokens = 0
    for start, end in known:
        token = text[start:end]
        weight = len(_LETTER.findall(token)) + len(_SYLLABLE.findall(token))
        if weight >= _LETTERS_MIN:
            in_long_tokens += weight
    return min(in_long_tokens / letters, 1.0)
