"""What two statements have in common is told by: their terms, and the digest of their normalised content."""

import json
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from mnemon_server.ranking.keywords import HAN, HANGUL, KANA, analyze

# Vowel signs and accents belong to the word that they stand in, but `\w` leaves them out and would cut it there.
_MARKS = "".join(mark for mark in map(chr, range(0x300, 0x10000)) if unicodedata.category(mark) in ("Mn", "Mc"))
# One save asks for the terms of the same two or three statements several times.
TERMS_KEPT = 8
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"

_WORD = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
# What readers take for a word where nothing separates words. A run of Katakana or Hangul is one. So is a run of Han
# characters, unless Hiragana right behind it belong to it, as in 毎日飲む, and are no particle; the few Chinese
# characters that are nearly always words of their own end it.
_ALONE = "的是在很也我你您他她它们們这這那吗嗎呢吧"
_READABLE = re.compile(
    rf"[{_KATAKANA}]++|[{HANGUL}]++"
    rf"|(?:(?<![{HAN}])|(?<=[{_ALONE}]))(?:(?![{_ALONE}])[{HAN}])++(?:(?![ぁ-ゖ])|(?=[はがをにでとのもへや]))"
    rf"|(?:(?![{HAN}{KANA}{HANGUL}])[^\W_]|[{_MARKS}])++"
)


def terms_of(keywords: Sequence[str], content: str) -> frozenset[str]:
    """What the keyword signal compares: the given keywords in lower case, else the words of the content."""
    return _terms_of(tuple(keywords), content)


@lru_cache(TERMS_KEPT)
def _terms_of(keywords: tuple[str, ...], content: str) -> frozenset[str]:
    given = frozenset(filter(None, map(normalised_keyword, keywords)))
    return given or frozenset(words_of(content))


def words_of(text: str) -> list[str]:
    """The different words in lower case and order, longer than one character; CJK as overlapping pairs."""
    return [word for word in dict.fromkeys(_WORD.findall(analyze(_lowered(text)))) if len(word) > 1]


def readable_words(text: str) -> list[str]:
    """As `words_of`, but no parts of words: of Chinese and Japanese what stands between other characters."""
    return [word for word in dict.fromkeys(_READABLE.findall(_lowered(text))) if len(word) > 1]


def normalised_keyword(keyword: str) -> str:
    """A keyword as it is compared."""
    return normalised_content(_lowered(keyword))


def normalised_content(text: str) -> str:
    """The text in NFKC, trimmed, every run of white space one space."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def content_hash(user: str, persona: str, content: str) -> str:
    """SHA-256 in hex of what makes two statements the same one."""
    parts = json.dumps([user, persona, normalised_content(content)], ensure_ascii=False)
    return sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()


def _lowered(text: str) -> str:
    """The text in NFKC and lower case; in this order, as lower case of compatibility characters is not defined."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
