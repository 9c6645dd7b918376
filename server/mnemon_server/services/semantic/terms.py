"""Terms of statements and digests of their normalised content, by which they are compared."""

import json
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from mnemon_server.ranking.analysis import HAN, HANGUL, KANA, MARKS, analyze, is_stop_word, language_of_text

# One save needs the terms of the same two or three statements several times.
TERMS_KEPT = 8
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"
_FULL_STOPS = ".!。।۔"

_WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+")
# What readers see as a word in scripts that do not separate words. A run of Katakana or Hangul is a word. So is a run
# of Han characters, unless the Hiragana after it belong to it, as in 毎日飲む, and are not a particle. The few Chinese
# characters that are nearly always words of their own end a run.
_ALONE = "的是在很也我你您他她它们們这這那吗嗎呢吧"
_READABLE = re.compile(
    rf"[{_KATAKANA}]++|[{HANGUL}]++"
    rf"|(?:(?<![{HAN}])|(?<=[{_ALONE}]))(?:(?![{_ALONE}])[{HAN}])++(?:(?![ぁ-ゖ])|(?=[はがをにでとのもへや]))"
    rf"|(?:(?![{HAN}{KANA}{HANGUL}])[^\W_]|[{MARKS}])++"
)


def terms_of(keywords: Sequence[str], content: str) -> frozenset[str]:
    """The terms of the keyword signal: given keywords in lower case, otherwise the significant words of the content."""
    return _terms_of(tuple(keywords), content)


@lru_cache(TERMS_KEPT)
def _terms_of(keywords: tuple[str, ...], content: str) -> frozenset[str]:
    given = frozenset(filter(None, map(normalised_keyword, keywords)))
    return given or frozenset(telling_words(words_of(content)))


def forget_terms() -> None:
    """Drops what is cached of earlier texts."""
    _terms_of.cache_clear()


def words_of(text: str) -> list[str]:
    """The distinct words in lower case, in their order, longer than one character; CJK as overlapping pairs."""
    return [word for word in dict.fromkeys(_WORD.findall(analyze(_lowered(text)))) if len(word) > 1]


def telling_words(words: Sequence[str]) -> list[str]:
    """The distinct words of a text without the stop words of its language."""
    language = (language_of_text(words),)
    return [word for word in words if not is_stop_word(word, language, len(words))]


def readable_words(text: str) -> list[str]:
    """As `words_of`, but only whole words: in Chinese and Japanese, those that other characters set apart."""
    return [word for word in dict.fromkeys(_READABLE.findall(_lowered(text))) if len(word) > 1]


def normalised_keyword(keyword: str) -> str:
    """A keyword in the form in which it is compared."""
    return normalised_content(_lowered(keyword))


def normalised_content(text: str) -> str:
    """The text in NFKC, trimmed, every run of white space one space."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def without_full_stop(text: str) -> str:
    """The text without the full stop or the exclamation mark at its end; an ellipsis stays."""
    bare = text[:-1]
    return bare if bare and text[-1] in _FULL_STOPS and bare[-1] not in _FULL_STOPS else text


def spellings(content: str) -> list[str]:
    """The content as people may write it again: with or without a full stop, its first letter large or small.

    The case of other letters may be what a correction is about, as in "works at IBM".
    """
    bare = without_full_stop(normalised_content(content))
    starts = dict.fromkeys((bare, bare[:1].swapcase() + bare[1:]))
    return [start + stop for start in starts for stop in ("", *_FULL_STOPS)]


def content_hash(user: str, persona: str, content: str) -> str:
    """SHA-256, in hex, of the values that make two statements of one household equal."""
    parts = json.dumps([user, persona, normalised_content(content)], ensure_ascii=False)
    return sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()


def _lowered(text: str) -> str:
    """The text in NFKC and lower case; in this order, as lower case of compatibility characters is not defined."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
