"""Splits texts into terms for the keyword search of all engines, in every language.

A word becomes its stem in the language of its text: "Häuser" and "Haus" are one term. Terms have neither case nor
accents. Runs of scripts that do not separate words become overlapping groups of characters. A compound that shows its
parts is found by these and as a whole: "wifi" finds "Wi-Fi", "contract" finds "con-" at the end of a line with "tract"
on the next one, and "name" finds "getUserName". An ordinal is its number: "March 14th" finds "14 March". An emoji is a
word of its own, which a query with other words leaves out, since there it seldom says what is asked for.

A query does not show its language as well as a text does. So a word of a query has variants, the stems in every
language in which it may be. A passage with any of them contains the word.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain

import Stemmer
from stop_words import get_stop_words

QUERY_TERMS_MAX = 256

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
HANGUL = "\uac00-\ud7a3"
_CJK_RUN = re.compile(f"[{HAN}{KANA}{HANGUL}]+")
_WIDTH_FORMS = re.compile("[\uff00-\uffef]+")
_WHOLE_WORD = re.compile(r"[^\W_]+")


def analyze(text: str) -> str:
    """The text with each run of CJK characters as overlapping pairs: "東京都" becomes "東京 京都". A single one stays.

    Other text is only normalised: composed characters, and full-width forms to normal width. An index that was filled
    by a different version of this function must be rebuilt, because its entries could not be deleted.
    """
    if text.isascii():
        return text
    text = _WIDTH_FORMS.sub(lambda run: unicodedata.normalize("NFKC", run[0]), unicodedata.normalize("NFC", text))
    return _CJK_RUN.sub(_pairs, text)


def query_terms(text: str) -> list[str]:
    """The distinct words of a query, in lower case and in order, at most 256. Stop words are left out unless the query
    has no other words.
    """
    words = dict.fromkeys(word.lower() for word in _WHOLE_WORD.findall(analyze(text)))
    telling = [word for word in words if word not in STOP_WORDS]
    return (telling or list(words))[:QUERY_TERMS_MAX]


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    pairs = [characters[i : i + 2] for i in range(len(characters) - 1)]
    return f" {' '.join(pairs or [characters])} "


ENGLISH, TURKISH, VIETNAMESE = "english", "turkish", "vietnamese"

LATIN_LANGUAGES = (
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
"""The languages in Latin letters that are distinguished, by the names of their stemmers. Of languages that are equally
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
OTHER_LANGUAGES = tuple(name for name, _ in _SCRIPTS)
"""The stemmers of the other scripts."""
_SCRIPT = re.compile("|".join(f"(?P<{name}>[{letters}])" for name, letters in _SCRIPTS))

_LANGUAGE_LETTERS = {
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
def stop_words_of(language: str) -> frozenset[str]:
    """The stop words of a language, in lower case; empty for a language without a list."""
    if language == ENGLISH:
        return STOP_WORDS
    if language in ("armenian", "tamil"):
        return frozenset()
    return frozenset(word for word in map(str.lower, get_stop_words(language)) if word.isalpha())


def language_of_script(word: str) -> str | None:
    """The stemmer for a word, by the script of its first letter; None for Latin and for scripts without one."""
    found = _SCRIPT.match(word)
    return found and found.lastgroup


def language_of_text(words: Sequence[str]) -> str:
    """The language of a text's words in Latin letters, which are in lower case."""
    signs = _signs(words)
    if not signs:
        return ENGLISH
    most = max(signs.values())
    return next(language for language in LATIN_LANGUAGES if signs[language] == most)


def languages_of_query(words: Sequence[str]) -> Sequence[str]:
    """The languages in which a query may be, the likeliest first; each but the first one is as likely, or is English.

    If a query is in English rather than in any other language, the result is English alone.
    """
    signs = _signs(words)
    if not signs:
        return (ENGLISH, *(language for language in LATIN_LANGUAGES if language != ENGLISH))
    most = max(signs.values())
    likely = [language for language in LATIN_LANGUAGES if signs[language] == most]
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
    for language in LATIN_LANGUAGES:
        for word in stop_words_of(language):
            languages.setdefault(word, []).append(language)
    return {word: tuple(found) for word, found in languages.items()}


@cache
def _letters() -> dict[str, tuple[str, ...]]:
    return {letter: languages for letters, languages in _LANGUAGE_LETTERS.items() for letter in letters}


MARKS = "".join(mark for mark in map(chr, range(0x300, 0x10000)) if unicodedata.category(mark) in ("Mn", "Mc"))
"""Vowel signs and accents belong to their word, but `\\w` does not match them."""

_CJK = HAN + KANA + HANGUL
_SYLLABIC = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
"""Thai, Lao, Burmese and Khmer. Their letters are parts of a syllable, so three of them say as much as two of CJK."""
_PICTURES = "\u231a-\u23ff\u2600-\u27bf\u2b1b-\u2b55\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
"""Emoji, without the skin tones, and the other symbols among them."""
_EMOJI = f"[\U0001f1e6-\U0001f1ff]{{2}}|[{_PICTURES}]"
"""An emoji is a word: a flag is two letters, and a person with a tool, say, is two words. Skin tones, joiners and
selectors are left out.
"""
_WORD = re.compile(rf"[{_CJK}]+|[{_SYLLABIC}]+|{_EMOJI}|(?:(?![{_CJK}{_SYLLABIC}{_PICTURES}])[^\W_]|[{MARKS}])+")
_EMOJI_WORD = re.compile(_EMOJI)
_ASCII_WORD = re.compile("[a-z0-9]+")
_INVISIBLE = re.compile("\u00ad(?![^\\S\n]*\n)|[\u200b\u2060\ufe00-\ufe0f\ufeff]|(?<=[\u0000-\u058f])[\u200c\u200d]")
"""Characters within words that say where a line may break, how letters join, and how a symbol looks. In Arabic and
Indic scripts, the joiners have a meaning.
"""
_LINK = r"[-_\u2010\u2011\u00ad](?<=\w.)(?:[^\S\n]*\n[^\S\n]*)?(?=[^\W_])"
"""A hyphen or an underscore within a word; at the end of a line, also a soft hyphen."""
_LINKS = re.compile(_LINK)
_LINKED_WORD = rf"(?:[^\W_]++[{MARKS}]*+)++"
_LINKED = re.compile(rf"(?<![^\W_]){_LINKED_WORD}(?:{_LINK}{_LINKED_WORD})+")
_DIGIT_GROUPS = re.compile(r"(?<![\w.,'])[0-9]{1,3}([.,'\u2019\u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*(?!\w)")
"""A number in groups of thousands."""
_ASCII_TOKEN = re.compile("[A-Za-z0-9]+")
_CAPITAL = re.compile("[A-Z](?:(?<=[a-z].)|(?<=[A-Z].)(?=[a-z]{2}))")
"""A capital letter that begins a word within a word."""
_CAMEL_PART = re.compile("[A-Z]+(?![a-z]{2})|[A-Z]?[a-z]+")
_CLUSTER = re.compile(rf".[{MARKS}]*")
_SCRIPT_OF_GRAMS = re.compile(rf"([{_CJK}])|[{_SYLLABIC}]")

_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0640]+")
_LETTERS = str.maketrans(
    {"ß": "ss", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ħ": "h"}
)
_COMPOUNDING = frozenset({"danish", "dutch", "finnish", "german", "hungarian", "norwegian", "swedish"})
"""Languages that write compounds as one word. Its last part is the subject: "Krankenhaus" is a "Haus"."""
_ORDINAL = re.compile("([0-9]+)(?:st|[nr]d|th)")
_PART_LETTERS = 4
_FEW_WORDS = 3
_WORD_LENGTH_MAX = 64
"""Longer words are no words of a language: they are neither stemmed nor kept."""
_KEPT_WORDS = 1 << 15


@dataclass(frozen=True)
class QueryWords:
    """The terms of a query."""

    own: Counter[str]
    """How often the query's own text, if it were stored, would contain each term."""
    groups: Sequence[tuple[str, ...]]
    """For each distinct word, its variants. No term is in two groups."""
    terms_per_word: float = 1.0
    """About how many terms a text in the query's scripts has for each word: more if groups of characters are terms."""

    @cached_property
    def terms(self) -> Sequence[str]:
        """The terms of all groups."""
        return [term for group in self.groups for term in group]


class StemmedWords:
    """How an index splits texts into terms: words as stems, by the language of their text. Thread-safe.

    An index that was filled by a different version of it must be rebuilt, because its entries could not be deleted.
    """

    tokenizer = "ascii"
    """The FTS5 tokenizer that splits a prepared text into its terms."""

    def __init__(self) -> None:
        """Stems are computed when they are first needed."""
        self._stemmers = {language: _Stems(language) for language in (*LATIN_LANGUAGES, *OTHER_LANGUAGES)}

    def prepare(self, text: str) -> str:
        """The text as an FTS5 table takes it."""
        text = self._visible(text)
        words = split(text)
        language = language_of_text(words)
        words, latin = _in_language(text, words, language), self._stemmers[language]
        words += [*_wholes(text), *_parts(text)]
        if text.isascii():
            return " ".join(map(latin.__getitem__, words))
        return " ".join([self._prepared(word, latin) for word in words])

    def terms(self, text: str) -> list[str]:
        """All terms of a text, in order."""
        return self.prepared_terms(self.prepare(text))

    def prepared_terms(self, prepared: str) -> list[str]:
        """All terms of a prepared text, in order."""
        return prepared.split()

    def query(self, text: str) -> QueryWords:
        """The words of a query, at most 256. Stop words and emoji are left out unless the query has no other words."""
        text = self._visible(text)
        # A number in groups of thousands is one word: texts have it as a whole, however it is written there.
        words = split(_DIGIT_GROUPS.sub(lambda number: "".join(split(number[0])), text))
        latin = languages_of_query(words)
        words = _in_language(text, words, latin[0])
        distinct = dict.fromkeys([*words, *_wholes(text)])
        telling = [word for word in distinct if not is_stop_word(word, latin, len(distinct))] or list(distinct)
        telling = [word for word in telling if not _EMOJI_WORD.match(word)] or telling
        groups = _merged(group for word in telling for group in self._groups(word, latin))
        return QueryWords(Counter(self.terms(text)), groups[:QUERY_TERMS_MAX], _terms_per_word(words))

    def _visible(self, text: str) -> str:
        return text if text.isascii() else _INVISIBLE.sub("", text)

    def _prepared(self, word: str, latin: "_Stems") -> str:
        if size := _gram_size(word):
            # The smaller groups are for words that are shorter than a group.
            return " ".join(dict.fromkeys((*_grams(word, size), *_grams(word, size - 1))))
        return self._stems(word, latin)[word]

    def _groups(self, word: str, latin: Sequence[str]) -> Iterator[tuple[str, ...]]:
        if size := _gram_size(word):
            yield from ((gram,) for gram in _grams(word, size))
            return
        stems = [self._stems(word, self._stemmers[language])[word].split(" ") for language in latin]
        # The further stems in the list are parts of a compound, which a query for the whole does not ask for.
        yield tuple(dict.fromkeys(found[0] for found in stems))
        if latin[0] == VIETNAMESE and len(stems[0]) > 1:
            yield (stems[0][1],)

    def _stems(self, word: str, latin: "_Stems") -> "_Stems":
        script = None if word.isascii() else language_of_script(word)
        return self._stemmers[script] if script else latin


class _Stems(dict[str, str]):
    """The terms of each word of a language, separated by spaces, computed when they are first needed."""

    def __init__(self, language: str) -> None:
        self._language = language
        name = "porter" if language == ENGLISH else language
        self._stemmer = None if language == VIETNAMESE else Stemmer.Stemmer(name, 0)
        self._lock = threading.Lock()

    def __missing__(self, word: str) -> str:
        if len(word) > _WORD_LENGTH_MAX:
            return _folded(word)
        terms = " ".join(self._terms(word))
        if len(self) >= _KEPT_WORDS:
            self.clear()
        self[word] = terms
        return terms

    def _terms(self, word: str) -> Iterator[str]:
        if ordinal := _ORDINAL.fullmatch(word):
            yield ordinal[1]
            return
        if self._stemmer is None:
            yield _folded(word)
            if word != _folded(word):
                # The accents tell words apart, but many people leave them out.
                yield word
            return
        with self._lock:  # a stemmer is for one thread at a time
            stem = _folded(self._stemmer.stemWord(word)) or word
        yield stem
        if self._language in _COMPOUNDING and stem.isalpha():
            yield from (stem[start:] for start in range(_PART_LETTERS, len(stem) - _PART_LETTERS + 1))


def split(text: str) -> list[str]:
    """The words of a text, in order and in lower case; runs of scripts that do not separate words stay whole."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(unicodedata.normalize("NFKC", text.replace("İ", "i")).lower())


def _in_language(text: str, words: list[str], language: str) -> list[str]:
    """The words again, if the language has another lower case."""
    return split(text.replace("I", "ı")) if language == TURKISH and "I" in text else words


def _wholes(text: str) -> list[str]:
    """The words with hyphens or underscores, and the numbers in groups of digits, without these marks."""
    linked = _LINKED.findall(text) if _LINKS.search(text) else ()
    wholes = ["".join(split(each)) for each in linked if not _SCRIPT_OF_GRAMS.search(each)]
    wholes += ["".join(split(each[0])) for each in _DIGIT_GROUPS.finditer(text)]
    return [whole for whole in wholes if len(whole) <= _WORD_LENGTH_MAX]


def _parts(text: str) -> list[str]:
    """The words that begin with a capital letter within a word."""
    tokens = _ASCII_TOKEN.findall(text) if _CAPITAL.search(text) else ()
    words = [each for each in tokens if len(each) <= _WORD_LENGTH_MAX and _CAPITAL.search(each)]
    return [part.lower() for word in words for part in _CAMEL_PART.findall(word) if len(part) > 1]


def _folded(word: str) -> str:
    """The word without accents. Letters that only look like accented ones become the usual replacement."""
    if word.isascii():
        return word
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", word)).translate(_LETTERS)


def _gram_size(word: str) -> int:
    """How many characters a group has; 0 for words of scripts that separate them."""
    found = None if word[0] < "\u0e01" else _SCRIPT_OF_GRAMS.match(word)
    if found is None:
        return 0
    return 2 if found[1] else 3


def _grams(run: str, size: int) -> list[str]:
    """Overlapping groups of characters, or the whole run if it is shorter."""
    characters = _CLUSTER.findall(run)
    return ["".join(characters[i : i + size]) for i in range(len(characters) - size + 1)] or [run]


def _terms_per_word(words: Sequence[str]) -> float:
    """A group of characters is about as long as a word, and each character begins two groups."""
    if not words:
        return 1.0
    sizes = [(len(word), _gram_size(word)) for word in words]
    terms = sum(2 * length if size else 1 for length, size in sizes)
    return terms / sum(length / size if size else 1.0 for length, size in sizes)


def is_stop_word(word: str, latin: Sequence[str], word_count: int) -> bool:
    """Whether a word is a stop word in a query or text in these languages.

    In a very short text, a frequent word may also be a name.
    """
    if word in STOP_WORDS and ENGLISH in latin:
        return True
    script = None if word.isascii() else language_of_script(word)
    return word_count > _FEW_WORDS and any(
        word in stop_words_of(language) for language in ([script] if script else latin)
    )


def _merged(groups: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups that share a term become one."""
    merged: dict[str, list[str]] = {}
    for group in groups:
        known = next((merged[term] for term in group if term in merged), [])
        for term in group:
            if merged.setdefault(term, known) is known and term not in known:
                known.append(term)
    return list(dict.fromkeys(tuple(group) for group in merged.values()))


STEMMED_WORDS = StemmedWords()
"""The analysis of all indexes that are filled by this program."""
