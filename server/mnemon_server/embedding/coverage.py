"""How well a model's vocabulary covers a text, which tells whether the model reads the text's language.

The vocabulary of a model has long pieces for the languages that it was trained on. Text in other languages falls into
single letters and unknown characters: its vector then says hardly anything about its meaning.

So do acronyms, names of two letters and part numbers. Therefore a few letters are no evidence in a script of which the
vocabulary has words: short pieces count the more, the more letters the text has.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache

from tokenizers import Tokenizer

_LETTERS_MIN = 3
_LETTER = re.compile(r"[^\W\d_]")
_SYLLABLE = re.compile("[\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
"""Han characters, kana and Hangul."""
_LETTERS_OF_SYLLABLE = 3
"""Each of these says as much as so many letters: a Chinese question with an English name is Chinese."""
_TELLING_LETTERS = 30
"""From so many letters on, the tokens of a text tell its language: about those of five words."""
_TOKENS_SAMPLED = 8_192
_SCRIPT_SHARE = 0.002
"""The share of the vocabulary that a script has in tokens of several letters, if the model reads it. The scripts that
the built-in models read have at least 0.014, all others at most 0.0003.
"""


def read_scripts(tokenizer: Tokenizer) -> frozenset[str]:
    """The scripts of which a vocabulary has more than single letters."""
    size = tokenizer.get_vocab_size()
    ids = range(0, size, max(size // _TOKENS_SAMPLED, 1))
    letters = map(_LETTER.findall, tokenizer.decode_batch([[token] for token in ids]))
    counts = Counter(script_of(found[0]) for found in letters if len(found) > 1)
    return frozenset(script for script, count in counts.items() if count > len(ids) * _SCRIPT_SHARE)


@lru_cache(4_096)
def script_of(letter: str) -> str:
    """The first word of the letter's name in Unicode, such as LATIN or CYRILLIC."""
    return unicodedata.name(letter, "").partition(" ")[0]


def coverage(text: str, known: Iterable[tuple[int, int]], read: Collection[str]) -> float:
    """The share of a text's letters, 0 to 1, that are in long tokens: at least three letters, or two CJK characters.

    Without any letter, it is 1, or 0 if no token is known, as of an emoji. `known` has the start and the exclusive end
    of each token of the vocabulary, in code points. In the scripts that the model reads, the share is the higher, the
    shorter the text is.
    """
    others, syllables = _counts(text)
    total = others + _LETTERS_OF_SYLLABLE * syllables
    if not total:
        return float(any(end > start for start, end in known) or not text.strip())
    in_long_tokens = 0
    for start, end in known:
        letters, long_syllables = _counts(text[start:end])
        if letters + 2 * long_syllables >= _LETTERS_MIN:
            # Also a vocabulary that was made for these languages has half of the characters of a text as tokens of
            # their own, so two that are a token count for four.
            in_long_tokens += letters + 2 * _LETTERS_OF_SYLLABLE * long_syllables
    unread = 1.0 - min(in_long_tokens / total, 1.0)
    foreign = _foreign(text, read)
    return 1.0 - unread * (foreign + (1.0 - foreign) * min(total / _TELLING_LETTERS, 1.0))


def _foreign(text: str, read: Collection[str]) -> float:
    """The share of a text's letters that are of other scripts."""
    letters = Counter(_LETTER.findall(text))
    return sum(count for letter, count in letters.items() if script_of(letter) not in read) / letters.total()


def _counts(text: str) -> tuple[int, int]:
    """The number of CJK characters comes last, that of other letters first."""
    syllables = len(_SYLLABLE.findall(text))
    return len(_LETTER.findall(text)) - syllables, syllables
