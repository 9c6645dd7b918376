"""What tells how two statements relate, besides the similarity of their vectors: shared words, subjects, values, cues.

Most word lists are English. In other languages, shared words, numbers and the vectors count. The cosine of texts that
are not in Latin letters counts only if they share a word: a model that does not read them places them close together.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz.distance import Levenshtein

from mnemon_server.ranking.keywords import HAN, HANGUL, KANA, analyze
from mnemon_server.ranking.languages import STOP_WORDS
from mnemon_server.services.conflicts.relation_words import (
    CALENDAR,
    CHANGES,
    NEGATIONS,
    NUMBERS,
    OPPOSITES,
    PAST,
    PERSONS,
    PRONOUNS,
    SELF,
    VERBS,
)

FEATURES = (
    "cosine", "near", "cosine_high", "overlap", "jaccard", "numbers_shared", "numbers_differ", "names_shared",
    "names_differ", "subject_same", "subject_differs", "subject_modified", "person_differs", "person_one_sided",
    "negation_differs", "opposites", "change", "one_slot", "more_slots", "contained", "reordered", "past_times_differ",
)  # fmt: skip
"""The names of the features, in the order of the weights. Each is symmetric, and 0 to 1."""

READINGS_KEPT = 64
"""Texts whose reading is kept: one save compares its statement with many others."""
TEXT_MAX = 4_096
"""Characters of a text that are read. The rest hardly changes the features."""
_FAR, _HIGH = 0.2, 0.6
_SUBJECT_WORDS_MAX = 6
_BEGINNING = 4
_LATIN_MAX = "\u024f"
_LATIN_SHARE = 0.9

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*")
_CJK = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_HAN_NUMBER = re.compile("[一二两三四五六七八九十百千0-9]+")
_HAN_NEGATION = re.compile("[不没沒無无非未别別]|ません|ない|なく|なかっ|않|못|없")
_HAN_PERSON = re.compile(
    "爸爸|妈妈|哥哥|姐姐|弟弟|妹妹|妻子|丈夫|老公|老婆|儿子|女儿|同学|同事|朋友|老师|邻居"
    "|兄|姉|妹|弟|父|母|夫|妻|息子|娘|友達|友人|同僚|先生"
)
_SUFFIX = re.compile(r"(?:ies|ing|ed|es|s|er|e|y|ly)$")
_NAME = re.compile(r"(?<![.!?:;] )(?<!^)\b[^\W\d_a-z]\w+")
_OWNER = re.compile(r"^(?:The |My |Her |His |Our |Their )?([^\W\d_]+)(?:'s|s') ")
_MAY = re.compile(r"\b(?:in|of|last|early|late|since|until|\d+) May\b")
_YEAR = re.compile(r"(?:19|20)\d\d")


def key_of(word: str) -> str:
    """A word in lower case without its ending, so that "walked" and "walking" are the same; numbers as they are."""
    if word[0].isdigit() or _CJK.match(word) or len(word) <= 3:
        return word
    stem = _SUFFIX.sub("", word)
    if len(stem) > 3 and stem[-1] == stem[-2]:
        stem = stem[:-1]
    return stem if len(stem) >= 3 else word


def _opposites() -> dict[str, frozenset[str]]:
    pairs = [(key_of(one), key_of(other)) for one, other in OPPOSITES]
    directed = [*pairs, *((other, one) for one, other in pairs)]
    return {key: frozenset(other for one, other in directed if one == key) for key, _ in directed}


_OPPOSITES = _opposites()


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read from a text, once for all of its comparisons."""

    sequence: tuple[str, ...]
    """The keys of the telling words, in their order."""
    words: frozenset[str]
    """The same as a set."""
    numbers: frozenset[str]
    """Numbers in digits, also those written as words."""
    times: frozenset[str]
    """Years, months, weekdays and times of day."""
    names: frozenset[str]
    """Words with a capital letter that do not begin a sentence."""
    subject: tuple[str, ...]
    """The telling words before the first verb; empty for "he", "the user" and sentences without a subject."""
    persons: frozenset[str]
    """Whom the beginning is about, other than the user: relatives, names, and "Ben" of "Ben's birthday"."""
    is_self: bool
    """Whether it begins with the user, as in "She …"."""
    opposites: frozenset[str]
    """The words that mean the opposite of one of its words."""
    is_negated: bool
    changes: bool
    """Whether it tells of a change, as in "no longer"."""
    is_past: bool
    is_latin: bool
    """Whether nearly all of its letters are Latin."""

    @property
    def head(self) -> str:
        """The noun of the subject; empty without a subject."""
        return self.subject[-1] if self.subject else ""


def forget_readings() -> None:
    """Drops what is cached of earlier texts."""
    read.cache_clear()


@lru_cache(READINGS_KEPT)
def read(text: str) -> Reading:
    """Reads a text for comparisons."""
    text = unicodedata.normalize("NFKC", text[:TEXT_MAX]).replace("’", "'")
    words = _WORD.findall(analyze(text))
    lowered = [word.lower() for word in words]
    letters = [letter for letter in text if letter.isalpha()]
    sequence = tuple(key_of(NUMBERS.get(word, word)) for word in lowered if _tells(word))
    subject = _subject(lowered)
    return Reading(
        sequence=sequence,
        words=frozenset(sequence),
        numbers=frozenset(_numbers(text, lowered)),
        times=frozenset(_times(text, lowered)),
        names=frozenset(_names(text)),
        subject=subject,
        persons=frozenset(_persons(text, words, subject)),
        is_self=lowered[:2] == ["the", "user"] or not SELF.isdisjoint(lowered[:1]),
        opposites=frozenset(other for key in map(key_of, lowered) for other in _OPPOSITES.get(key, ())),
        is_negated=(sum(map(_negates, lowered)) + len(_HAN_NEGATION.findall(text))) % 2 == 1,
        changes=not CHANGES.isdisjoint(lowered),
        is_past=any(word in PAST or (len(word) > 4 and word.endswith("ed")) for word in lowered[:_BEGINNING]),
        is_latin=sum(letter <= _LATIN_MAX for letter in letters) >= _LATIN_SHARE * len(letters),
    )


def features(ours: Reading, theirs: Reading, cosine: float) -> tuple[float, ...]:
    """The FEATURES of two texts whose vectors have this cosine. Either order gives the same."""
    shared, smaller = ours.words & theirs.words, min(len(ours.words), len(theirs.words))
    only_ours, only_theirs = ours.words - shared, theirs.words - shared
    is_read = bool(shared) or (ours.is_latin and theirs.is_latin)
    cosine = max(0.0, cosine) if is_read else 0.0
    slots = _slots(ours.sequence, theirs.sequence) if 2 * len(shared) >= smaller else 0
    subject_differs = "" != ours.head != theirs.head != ""
    person_differs = _both(ours.persons, theirs.persons) and ours.persons != theirs.persons
    past_times_differ = ours.is_past and theirs.is_past and _disjoint(ours.times, theirs.times)
    # A cue says something only about texts on one subject: any two texts may differ by a negation.
    near = min(1.0, max(0.0, (cosine - _FAR) / (_HIGH - _FAR)))
    cues = (
        not ours.numbers.isdisjoint(theirs.numbers),
        _disjoint(ours.numbers, theirs.numbers),
        not ours.names.isdisjoint(theirs.names),
        _both(ours.names - theirs.names, theirs.names - ours.names),
        ours.head == theirs.head != "",
        subject_differs,
        _is_modified(ours, theirs),
        person_differs,
        bool(ours.persons) != bool(theirs.persons) and (ours.is_self or theirs.is_self),
        ours.is_negated != theirs.is_negated,
        not (ours.opposites.isdisjoint(only_theirs) and theirs.opposites.isdisjoint(only_ours)),
        ours.changes or theirs.changes,
        slots == 1,
        slots > 1,
        bool(shared) and not (only_ours and only_theirs),
        ours.words == theirs.words and len(shared) > 1 and ours.sequence != theirs.sequence,
        past_times_differ,
    )
    return (
        cosine,
        near,
        max(0.0, cosine - _HIGH) / (1.0 - _HIGH),
        len(shared) / max(1, smaller),
        len(shared) / max(1, len(shared) + len(only_ours) + len(only_theirs)),
        *(near * cue for cue in cues),
    )


def _both(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    return bool(ours and theirs)


def _disjoint(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether both have values, and different ones."""
    return _both(ours, theirs) and ours.isdisjoint(theirs)


def _slots(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """In how many places one has another word than the other."""
    return sum(step.tag == "replace" for step in Levenshtein.opcodes(ours, theirs))


def _is_modified(ours: Reading, theirs: Reading) -> bool:
    """Whether both have the same subject, but of different kinds: "the red bicycle", "the blue bicycle"."""
    modifiers, others = frozenset(ours.subject[:-1]), frozenset(theirs.subject[:-1])
    return ours.head == theirs.head and _both(modifiers - others, others - modifiers)


def _negates(word: str) -> bool:
    return word in NEGATIONS or word.endswith("n't")


def _tells(word: str) -> bool:
    return not (word in STOP_WORDS or word in PRONOUNS or _negates(word))


def _numbers(text: str, lowered: Sequence[str]) -> Iterator[str]:
    yield from (NUMBERS.get(word, word) for word in lowered if word[0].isdigit() or word in NUMBERS)
    if not text.isascii():
        yield from _HAN_NUMBER.findall(text)


def _times(text: str, lowered: Sequence[str]) -> Iterator[str]:
    yield from (word for word in lowered if word in CALENDAR or _YEAR.fullmatch(word))
    if _MAY.search(text):
        yield "may"


def _names(text: str) -> Iterator[str]:
    return (key_of(name.lower()) for name in _NAME.findall(text) if name.lower() not in CALENDAR)


def _subject(lowered: Sequence[str]) -> tuple[str, ...]:
    for place, word in enumerate(lowered[:_SUBJECT_WORDS_MAX]):
        if word in VERBS or (place and len(word) > 3 and word.endswith(("s", "ed")) and "'" not in word):
            return tuple(key_of(each.removesuffix("'s")) for each in lowered[:place] if each not in PRONOUNS)
    return ()


def _persons(text: str, words: Sequence[str], subject: Sequence[str]) -> Iterator[str]:
    if found := _HAN_PERSON.search(text[:_BEGINNING]):
        yield found[0]
        return
    yield from {word.lower().removesuffix("'s") for word in words[:_BEGINNING]} & PERSONS
    owner = _OWNER.match(text)
    if owner and owner[1].lower() not in ("user", "users"):
        yield owner[1].lower()
    if len(subject) == 1 and _is_name(words[0]) and key_of(words[0].lower()) == subject[0]:
        yield words[0].lower()


def _is_name(word: str) -> bool:
    """Whether the first word of a sentence may be the name of a person."""
    return word[0].isupper() and not word.endswith("s") and word.lower() not in CALENDAR
