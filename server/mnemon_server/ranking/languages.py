"""Languages: which one a text is in, its stemmer and its stop words.

The script tells the language, or a stemmer that suits all of its languages, of every word but those in Latin letters.
For those, the text's most frequent small words decide ("der", "que", "için"), and letters that few languages have. They
tell the language of a whole text reliably, and cost a look-up for each word. Without any such sign, a text counts as
English. A short query may say too little: it is then read in every language that is as likely as the best.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain

from stop_words import get_stop_words

ENGLISH, TURKISH, VIETNAMESE = "english", "turkish", "vietnamese"

LATIN = (
    ENGLISH,
    "spanish",
    "french",
    "portuguese",
    "german",
    "indonesian",
    TURKISH,
    VIETNAMESE,
    "italian",
    "polish",
    "dutch",
    "romanian",
    "hungarian",
    "czech",
    "swedish",
    "catalan",
    "danish",
    "finnish",
    "norwegian",
)
"""The languages in Latin letters that are told apart, by the names of their stemmers. Of languages that are equally
likely, the earlier one is taken.
"""

_SCRIPTS = (
    ("russian", "\u0400-\u052f"),
    ("greek", "\u0370-\u03ff\u1f00-\u1fff"),
    ("arabic", "\u0600-\u06ff\u0750-\u077f"),
    ("hindi", "\u0900-\u097f"),
    ("armenian", "\u0530-\u058f"),
    ("tamil", "\u0b80-\u0bff"),
)
"""The stemmer for words in each other script that has one, and the script's letters."""
OTHERS = tuple(name for name, _ in _SCRIPTS)
"""The stemmers of the other scripts."""
_SCRIPT = re.compile("|".join(f"(?P<{name}>[{letters}])" for name, letters in _SCRIPTS))

_LETTERS = {
    "ß": ("german",),
    "ä": ("german", "finnish", "swedish"),
    "ö": ("german", "finnish", "swedish", "hungarian", "turkish"),
    "å": ("danish", "norwegian", "swedish"),
    "æø": ("danish", "norwegian"),
    "ñ¿¡": ("spanish",),
    "ãõ": ("portuguese",),
    "ìò": ("italian",),
    "ùœ": ("french",),
    "ğış": (TURKISH,),
    "șță": ("romanian",),
    "ąęłńśźż": ("polish",),
    "ěřů": ("czech",),
    "őű": ("hungarian",),
    "ŀ": ("catalan",),
    "ơưđ" + "".join(map(chr, range(0x1EA0, 0x1EFA))): (VIETNAMESE,),
}
"""Lower-case letters that few of the languages have."""

_ENGLISH_STOP_WORDS = """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could d did do does doing down during each few for from further had has have having he her here hers herself
    him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once
    only or other our ours ourselves out over own re s same she should so some such t than that the their theirs them
    themselves then there these they this those through to too under until up ve very was we were what when where which
    while who whom why will with would you your yours yourself yourselves
"""
"""The library's list has 1,333 words, many of which say much."""
STOP_WORDS = frozenset(_ENGLISH_STOP_WORDS.split())
"""The stop words of English."""


@cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, in lower case; none if there is no list for it."""
    if language == ENGLISH:
        return STOP_WORDS
    if language in ("armenian", "tamil"):
        return frozenset()
    return frozenset(word for word in map(str.lower, get_stop_words(language)) if word.isalpha())


def of_script(word: str) -> str | None:
    """The stemmer for a word, told by the script of its first letter; None for Latin and for scripts without one."""
    found = _SCRIPT.match(word)
    return found and found.lastgroup


def of_text(words: Sequence[str]) -> str:
    """The language of a text's words in Latin letters, which are in lower case."""
    signs = _signs(words)
    if not signs:
        return ENGLISH
    most = max(signs.values())
    return next(language for language in LATIN if signs[language] == most)


def of_query(words: Sequence[str]) -> Sequence[str]:
    """The languages in which a query may be, the likeliest first; each but the first one is as likely, or is English.

    If a query is in English rather than in any other language, the result is English alone.
    """
    signs = _signs(words)
    if not signs:
        return (ENGLISH, *(language for language in LATIN if language != ENGLISH))
    most = max(signs.values())
    likely = [language for language in LATIN if signs[language] == most]
    return likely if likely == [ENGLISH] else [*(each for each in likely if each != ENGLISH), ENGLISH]


def _signs(words: Sequence[str]) -> Counter[str]:
    """The number of signs of each language."""
    telling = _telling()
    signs = Counter(chain.from_iterable(map(telling.__getitem__, telling.keys() & words)))
    letters = "".join(words)
    if not letters.isascii():
        signs.update(language for letter in set(letters) for language in _letters().get(letter, ()))
    return signs


@cache
def _telling() -> dict[str, tuple[str, ...]]:
    """The languages that have each word among their stop words."""
    languages: dict[str, list[str]] = {}
    for language in LATIN:
        for word in stop_words(language):
            languages.setdefault(word, []).append(language)
    return {word: tuple(found) for word, found in languages.items()}


@cache
def _letters() -> dict[str, tuple[str, ...]]:
    return {letter: languages for letters, languages in _LETTERS.items() for letter in letters}
