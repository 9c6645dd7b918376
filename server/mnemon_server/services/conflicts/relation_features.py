"""Features of two statements' relation besides their cosine: shared words, subjects, values, cues.

Most word lists are English. In other languages, shared words, numbers and the vectors count. The cosine of texts that
are not in Latin letters counts only if they share a word: a model that does not read them places them close together.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from rapidfuzz.distance import Levenshtein

from mnemon_server.ranking.analysis import HAN, HANGUL, KANA, STOP_WORDS, analyze
from mnemon_server.services.conflicts.relation_words import (
    ADDING,
    ADVERBS,
    CALENDAR,
    CHANGES,
    DETERMINERS,
    FORMER,
    HAVING,
    INDEFINITE,
    LASTING,
    NEGATIONS,
    NUMBERS,
    ONCE,
    OPPOSITES,
    OWNERS,
    PAST,
    PERSONS,
    PREDICATES,
    PRONOUNS,
    RELATIVES,
    REPLACING,
    SELF,
    SIDED,
    SIDES,
    SINGLE,
    TOPICS,
    UNITS,
    VERBS,
)

FEATURES = (
    "cosine", "near", "cosine_high", "overlap", "jaccard", "numbers_shared", "numbers_differ", "names_shared",
    "names_differ", "subject_same", "subject_differs", "subject_modified", "person_differs", "person_one_sided",
    "negation_differs", "opposites", "change", "one_slot", "more_slots", "contained", "reordered",
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
_SPELLING = 0.8
_CLOSE = 0.75

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
_NAME_WORD = re.compile(r"(?=[^\W\d_])[^a-z][\w'-]*\.?")
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
_ONCE = frozenset(map(key_of, ONCE))
_OTHER = key_of("other")
_NO_VALUES = CALENDAR | CHANGES | SINGLE | UNITS | NUMBERS.keys()
_PREDICATES = {key_of(form): lemma for form, lemma in PREDICATES.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """A thing that a person does, likes or has, such as "speaks" "French": it may be true of other things, too."""

    predicate: str
    value: frozenset[str]
    """The telling words of the first thing that it is about."""
    is_indefinite: bool
    """Whether it is one of many, as in "has a meeting"."""
    is_habit: bool
    """Whether it recurs on certain weekdays, as in "works on Mondays"."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The features of one text, read once for all of its comparisons."""

    sequence: tuple[str, ...]
    """The keys of the telling words, in their order."""
    words: frozenset[str]
    """The same as a set."""
    numbers: frozenset[str]
    """Numbers in digits, also those written as words."""
    times: frozenset[str]
    """Years, months, weekdays and times of day."""
    years: frozenset[str]
    names: frozenset[str]
    """Words with a capital letter that do not begin a sentence."""
    full_name: frozenset[str]
    """The words of a name that begins it, as in "Anna Weber lives in Graz"; empty for a single word."""
    subject: tuple[str, ...]
    """The telling words before the first verb; empty for "he", "the user" and sentences without a subject."""
    subject_ids: frozenset[str]
    """The words of the subject with digits, such as the number of an order."""
    owned: tuple[str, ...]
    """The subject if it is a definite thing, as in "my flat", "Tom's flat" or "the flat"; else empty."""
    has_subject: bool
    side: tuple[str, ...]
    """The verb and preposition of a statement about living or working, as in "works at"; else empty."""
    relatives: frozenset[str]
    """The people in the subject, as in "my wife's flat", each kind by one word."""
    persons: frozenset[str]
    """The people that the beginning is about, other than the user: relatives, names, and "Ben" of "Ben's birthday"."""
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
    claim: Claim | None
    """The claim about its subject; None without a verb that may be true of several things."""
    moments: frozenset[str]
    """Its times, and numbers beside times."""
    topics: frozenset[str]
    """Topics that have one value but many wordings, such as a person's home or job."""
    replaces: bool
    """Whether a new value takes the place of the known one."""

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
    numbers, times = frozenset(_numbers(text, lowered)), frozenset(_times(text, lowered))
    place = _verb_place(lowered)
    subject = tuple(key_of(word) for word in _bare(lowered[:place]) if word not in PRONOUNS)
    return Reading(
        sequence=sequence,
        words=frozenset(sequence),
        numbers=numbers,
        times=times,
        years=frozenset(filter(str.isdigit, times)),
        names=frozenset(_names(text)),
        full_name=frozenset(_full_name(text, lowered, place)),
        subject=subject,
        subject_ids=frozenset(filter(_has_digit, subject)),
        owned=subject if any(map(_owns, lowered[:place])) else (),
        has_subject=place > 0,
        side=_side(lowered[place : place + 2]),
        relatives=frozenset(_relatives(lowered[:place])),
        persons=frozenset(_persons(text, words, subject)),
        is_self=lowered[:2] == ["the", "user"] or not SELF.isdisjoint(lowered[:1]),
        opposites=frozenset(other for key in map(key_of, lowered) for other in _OPPOSITES.get(key, ())),
        is_negated=(sum(map(_negates, lowered)) + len(_HAN_NEGATION.findall(text))) % 2 == 1,
        changes=not CHANGES.isdisjoint(lowered),
        is_past=any(word in PAST or (len(word) > 4 and word.endswith("ed")) for word in lowered[:_BEGINNING]),
        claim=_claim(lowered, place),
        moments=times | numbers if times else times,
        topics=frozenset(TOPICS[word] for word in lowered if word in TOPICS),
        replaces=not REPLACING.isdisjoint(lowered) and ADDING.isdisjoint(lowered),
        is_latin=sum(letter <= _LATIN_MAX for letter in letters) >= _LATIN_SHARE * len(letters),
    )


def features(ours: Reading, theirs: Reading, cosine: float) -> tuple[float, ...]:
    """The FEATURES of two texts whose vectors have this cosine. Either order gives the same."""
    only_name = cosine < _CLOSE and _share_only_a_name(ours, theirs)
    is_of_others = _are_two_events(ours, theirs) or _are_of_two_things(ours, theirs)
    if only_name or is_of_others or _are_several_values(ours, theirs):
        return (0.0,) * len(FEATURES)  # however close their vectors are, and however many words they share
    shared, smaller = ours.words & theirs.words, min(len(ours.words), len(theirs.words))
    only_ours, only_theirs = ours.words - shared, theirs.words - shared
    is_read = bool(shared) or (ours.is_latin and theirs.is_latin)
    cosine = max(0.0, cosine) if is_read else 0.0
    slots = _slots(ours.sequence, theirs.sequence) if 2 * len(shared) >= smaller else 0
    subject_differs = "" != ours.head != theirs.head != ""
    person_differs = _both(ours.persons, theirs.persons) and ours.persons != theirs.persons
    # A cue says something only about texts on one subject: any two texts may differ by a negation.
    near = min(1.0, max(0.0, (cosine - _FAR) / (_HIGH - _FAR)))
    cues = (
        not ours.numbers.isdisjoint(theirs.numbers),
        _disjoint(ours.numbers, theirs.numbers),
        not ours.names.isdisjoint(theirs.names),
        _each(ours.names, theirs.names),
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
    )
    return (
        cosine,
        near,
        max(0.0, cosine - _HIGH) / (1.0 - _HIGH),
        len(shared) / max(1, smaller),
        len(shared) / max(1, len(shared) + len(only_ours) + len(only_theirs)),
        *(near * cue for cue in cues),
    )


def _share_only_a_name(ours: Reading, theirs: Reading) -> bool:
    """Whether they share only a name, which alone brings the vectors of short texts as near as _CLOSE."""
    persons = ours.persons & theirs.persons
    if not persons or ours.topics & theirs.topics or ours.opposites & theirs.words:
        return False
    return (ours.words & theirs.words).issubset(map(key_of, persons))


def _are_two_events(ours: Reading, theirs: Reading) -> bool:
    """Whether both tell what happened, at different times, as "in 2015" and "in 2018"."""
    if not (ours.is_past and theirs.is_past and _ONCE.isdisjoint(ours.words & theirs.words)):
        return False
    return _disjoint(ours.times, theirs.times) or _each(ours.years, theirs.years)


def _are_of_two_things(ours: Reading, theirs: Reading) -> bool:
    """Whether they are about two things, such as "Tom's office" and "Tom's flat", or two people."""
    if _are_other_values(ours.full_name - theirs.full_name, theirs.full_name - ours.full_name):
        return True  # members of a family share a name, and friends may have the same first one
    if _each(ours.subject_ids, theirs.subject_ids) or (
        ours.has_subject and theirs.has_subject and _differ(ours, theirs)
    ):
        return True
    if not (ours.owned and theirs.owned) or ours.changes or theirs.changes:
        return False
    if _is_modified(ours, theirs) or (_OTHER in ours.owned) != (_OTHER in theirs.owned):
        return True
    if ours.topics & theirs.topics:
        return False
    is_named = ours.owned[-1] in theirs.owned or theirs.owned[-1] in ours.owned
    return not is_named and _are_other_values(frozenset(ours.owned[-1:]), frozenset(theirs.owned[-1:]))


def _differ(ours: Reading, theirs: Reading) -> bool:
    """Whether they are about different people, or different aspects of a life: "works at", "works as"."""
    if ours.relatives != theirs.relatives:
        return True
    return bool(ours.side and theirs.side) and ours.side[0] == theirs.side[0] and ours.side != theirs.side


def _are_several_values(ours: Reading, theirs: Reading) -> bool:
    """Whether both make the same claim about different things that go together, such as languages or pets."""
    our, their = ours.claim, theirs.claim
    if our is None or their is None or our.predicate != their.predicate:
        return False
    if ours.replaces or theirs.replaces or ours.words == theirs.words:
        return False
    if our.is_habit and their.is_habit and _each(ours.times, theirs.times):
        return True
    if _are_other_values(our.value - their.value, their.value - our.value):
        return True
    # "A meeting on Monday" is one of many; "the meeting on Monday" has been moved if it is on Tuesday.
    others = _each(ours.moments, theirs.moments) or _each(ours.names, theirs.names)
    return our.is_indefinite and their.is_indefinite and others


def _are_other_values(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether each has a value, and none of one's is only another spelling of one of the other's."""
    likest = max((Levenshtein.normalized_similarity(one, other) for one in ours for other in theirs), default=1.0)
    return likest < _SPELLING


def _both(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    return bool(ours and theirs)


def _each(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether each has something that the other has not."""
    return _both(ours - theirs, theirs - ours)


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


def _owns(word: str) -> bool:
    return word in OWNERS or word.endswith(("'s", "s'"))


def _side(words: Sequence[str]) -> tuple[str, ...]:
    if len(words) < 2 or words[0] not in SIDED or words[1] not in SIDES:
        return ()
    return key_of(words[0]), SIDES[words[1]]


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _relatives(words: Sequence[str]) -> Iterator[str]:
    return (RELATIVES.get(word, word) for word in _bare(words) if word in PERSONS)


def _bare(words: Sequence[str]) -> Iterator[str]:
    return (word.removesuffix("'s") for word in words)


def _negates(word: str) -> bool:
    return word in NEGATIONS or word.endswith("n't")


def _tells(word: str) -> bool:
    return not (word in STOP_WORDS or word in PRONOUNS or _negates(word))


def _numbers(text: str, lowered: Sequence[str]) -> Iterator[str]:
    yield from (NUMBERS.get(word, word) for word in lowered if word[0].isdigit() or word in NUMBERS)
    if not text.isascii():
        yield from _HAN_NUMBER.findall(text)


def _times(text: str, lowered: Sequence[str]) -> Iterator[str]:
    singular = (word.removesuffix("s") for word in lowered)
    yield from (word for word in singular if word in CALENDAR or _YEAR.fullmatch(word))
    if _MAY.search(text):
        yield "may"


def _claim(lowered: Sequence[str], place: int) -> Claim | None:
    """The claim of a sentence whose verb, or a word before it, has this place."""
    verb = next((at for at in range(place, len(lowered)) if _is_predicate(lowered, at)), len(lowered))
    rest = lowered[verb + 1 :]
    begin = next((at for at, word in enumerate(rest) if _is_value(word)), len(rest))
    # "Has a job as a nurse" tells of one thing; "has a job interview" does not.
    attributes = SINGLE.intersection((*lowered[verb : verb + 1], *rest[: max(0, begin - 1)]))
    is_habit = any(word.endswith("days") and word[:-1] in CALENDAR for word in rest)
    # "Lived in Rome" may be followed by "lived in Prague"; "has lived in Rome since May" still holds.
    is_single = attributes and not is_habit and not (attributes <= FORMER and LASTING.isdisjoint(rest))
    if not rest or lowered[verb] in DETERMINERS or is_single:
        return None
    key = key_of(lowered[verb])
    # Things have attributes rather than habits, so that only known verbs tell of several: "the app uses Kotlin".
    is_personal = place <= 1 or lowered[:2] == ["the", "user"] or not PERSONS.isdisjoint(lowered[:place])
    if key not in _PREDICATES and not (is_personal and _is_inflected(lowered, verb)):
        return None
    value = frozenset(map(key_of, takewhile(_is_value, rest[begin:])))
    is_indefinite = not INDEFINITE.isdisjoint(rest[:begin])
    return Claim(_PREDICATES.get(key, key), value, is_indefinite, is_habit)


def _is_predicate(lowered: Sequence[str], at: int) -> bool:
    """Whether the word carries meaning: not an auxiliary verb, adverb or negation."""
    word, following = lowered[at], "".join(lowered[at + 1 : at + 2])
    if word in HAVING and (following == "been" or following.endswith("ed")):
        return False
    if word in STOP_WORDS:
        return word in DETERMINERS or key_of(word) in _PREDICATES
    return not (word in ADVERBS or word in CHANGES or word.endswith("ly") or _negates(word))


def _is_inflected(lowered: Sequence[str], at: int) -> bool:
    """Whether the word is an English verb or adjective by its ending, or by the word before it."""
    before = "".join(lowered[max(0, at - 1) : at])
    return (
        lowered[at].endswith(("s", "ed", "ing"))
        or lowered[at] in PAST
        or before in STOP_WORDS
        or before in ADVERBS
        or _negates(before)
    )


def _is_value(word: str) -> bool:
    return _tells(word) and not word[0].isdigit() and word not in _NO_VALUES


def _names(text: str) -> Iterator[str]:
    return (key_of(name.lower()) for name in _NAME.findall(text) if name.lower() not in CALENDAR)


def _full_name(text: str, lowered: Sequence[str], place: int) -> Sequence[str]:
    """The words with a capital letter before the first verb; none unless there are several."""
    given = text.split()
    name = [*takewhile(_NAME_WORD.fullmatch, given)]
    following = "".join(given[len(name) : len(name) + 1])
    if len(name) < 2 or not following[:1].islower():
        return ()
    first = lowered[0]
    is_verb = first in STOP_WORDS or first in VERBS or first in PAST or key_of(first) in _PREDICATES
    # Without an English verb, it may be another language, or begin with a verb: "Plays Chopin on Mondays".
    is_other = place == 0 and following not in STOP_WORDS and not _is_inflected(lowered, 0)
    is_name = 0 < place <= len(name) or is_other  # "Hans" ends like a verb
    return [word.lower().rstrip(".") for word in name] if is_name and not is_verb else ()


def _verb_place(lowered: Sequence[str]) -> int:
    """The number of words before the first verb; 0 for sentences without a subject."""
    if lowered[:1] and lowered[0] in SELF:
        return 1
    for place, word in enumerate(lowered[:_SUBJECT_WORDS_MAX]):
        ends = place and len(word) > 3 and word.endswith(("s", "ed")) and not word.endswith(("ss", "'s", "s'"))
        ends = ends and word not in PERSONS
        if ends or word in VERBS or (place and (_negates(word) or word in ADVERBS)):
            return place
    return 0


def _persons(text: str, words: Sequence[str], subject: Sequence[str]) -> Iterator[str]:
    if found := _HAN_PERSON.search(text[:_BEGINNING]):
        yield found[0]
        return
    yield from _relatives([word.lower() for word in words[:_BEGINNING]])
    owner = _OWNER.match(text)
    if owner and owner[1].lower() not in ("user", "users"):
        yield owner[1].lower()
    if len(subject) == 1 and _begins_with_name(words) and key_of(words[0].lower()) == subject[0]:
        yield words[0].lower()


def _begins_with_name(words: Sequence[str]) -> bool:
    """Whether the first word may be the name of a person: "Jonas likes", but not "Deploys happen"."""
    after = "".join(words[1:2]).lower()
    is_plural = words[0].endswith("s") and not (after.endswith("s") or _negates(after) or after in VERBS)
    return words[0][0].isupper() and not is_plural and words[0].lower() not in CALENDAR
