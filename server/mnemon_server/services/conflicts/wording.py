"""Words that change a sentence's meaning, by which de-duplication keeps sentences that share most words.

No list of opposites is complete, and the order of words says who did what. So a sentence is left out only for one that
has all of its telling words, in their order; only small words, such as articles and most prepositions, may differ.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemon_server.ranking.analysis import HAN, KANA, STOP_WORDS

_FILLERS = frozenset({"a", "also", "an", "indeed", "quite", "really", "the", "very"})
_COMMON = STOP_WORDS | _FILLERS
"""Words that may differ, and that are never names, whatever their case."""
_OPPOSITES_TEXT = """
    after:before more:less more:fewer most:least on:off in:out up:down above:below over:under to:from into:from
    he:she him:her his:her his:hers
"""
_OPPOSITES = tuple(frozenset(pair.split(":")) for pair in _OPPOSITES_TEXT.split())
"""Pairs of the common words that exclude each other."""

# Too many words here do no harm: a word keeps two sentences apart that might mean the same, and nothing is lost.
_TURNING_TEXT = """
    barely cannot cant couldnt didnt doesnt dont hadnt hardly hasnt havent isnt lack lacks neither never no nobody
    none nor not nothing nowhere shouldnt unlikely wasnt werent without wont wouldnt almost before either else
    except fewer former formerly if instead less likely may maybe might once only or perhaps possibly probably
    rarely refuses said says seldom should stopped supposedly than though thinks unless unlike until used wants
    when whenever whether would could was were will
    keine keinem keinen keiner keines kein nicht nichts nie niemals niemand ohne oder wenn falls vielleicht nur
    aucun aucune jamais ne ni pas personne plus rien sans si
    jamás nada nadie ni ningún ninguna ninguno nunca sin tampoco
    mai né nessuno nessuna niente non senza
    jamais nada nem ninguém não nenhum nenhuma sem
    geen niemand niet niets nooit zonder
    bez nie nigdy nikt nic
    без не нет ни никогда никто ничего
    안 못 नहीं मत لا ليس لم لن 不 没 沒 無 ない
"""
_TURNING = frozenset(_TURNING_TEXT.split())
"""Negations, conditions, doubts and tenses: adding or removing one changes the meaning of a sentence."""
# For scripts that do not separate words, and languages that add suffixes to them.
_TURNING_PART = re.compile(
    "[不没沒無无非未别別莫勿曾]|以前|如果|要是|可能|也许|也許|或许|或許|[说說]|认为|認為"
    "|な[いく]|なかっ|ません|もし|かも|ば、|言っ|思[いうっ]|[않못없]|ไม่"
)

_NUMBERS_TEXT = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half once twice
    first second third fourth fifth sixth seventh eighth ninth tenth
    null ein eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig vierzig fünfzig sechzig
    siebzig achtzig neunzig hundert tausend halb einmal zweimal
    zéro un deux trois quatre cinq sept huit neuf dix onze douze vingt trente quarante cinquante soixante cent mille
    cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce veinte treinta cuarenta cincuenta cien mil
    due tre quattro cinque sei sette otto nove dieci venti trenta cento
"""
_NUMBERS = frozenset(_NUMBERS_TEXT.split())
_ASCII_NUMBER_OR_SYMBOL = re.compile(r"[0-9$+<=>^`|~]")

_PUNCTUATION = ".,;:!?…。、！？\"'“”‘’«»‹›()[]{}『』「」【】（）"
_BULLETS = frozenset("-–—*•·")
_QUESTION = re.compile(r"[?？]\W*$")
_QUESTION_MAX = 8
_UNINFLECTED_MAX = 3
# Each character of Chinese or Japanese on its own, since nothing marks where words end.
_UNIT = re.compile(f"[{HAN}{KANA}]|[^{HAN}{KANA}]+")


@dataclass(frozen=True, slots=True)
class Wording:
    """The parts of a sentence that are compared."""

    text: str
    """The words in NFKC and lower case, without punctuation around them."""
    turning: tuple[str, ...]
    """Negations, conditions, doubts, tenses, and the question mark."""
    units: frozenset[str]
    """The words of the text; single characters for Chinese and Japanese."""
    names: tuple[str, ...]
    """The units that are certainly numbers, symbols or names."""
    order: tuple[str, ...]
    """The units without fillers, in the form in which they are compared."""
    words: frozenset[str]
    """The units of `order`, without their order."""
    telling: frozenset[str]
    """The words that must not be missing."""

    @classmethod
    def of(cls, words: Sequence[str], *, is_question: bool) -> "Wording":
        """The wording of a sentence, from its bare words."""
        units = [unit for word in words for unit in ([word] if word.isascii() else _UNIT.findall(word))]
        lowered = [unit.lower() for unit in units]
        order = tuple(_compared(unit) for unit in lowered if unit not in _FILLERS)
        return cls(
            text=" ".join(words).lower(),
            turning=tuple(sorted((*_turning(words), *("?" * is_question)))),
            units=frozenset(lowered),
            names=tuple(
                low
                for place, (unit, low) in enumerate(zip(units, lowered, strict=True))
                if _is_name(unit, low, is_first=place == 0)
            ),
            order=order,
            words=frozenset(order),
            telling=frozenset(_compared(unit) for unit in lowered if _is_telling(unit)),
        )

    def differs(self, other: "Wording") -> bool:
        """Whether the other sentence, which would remain, may differ in meaning, however similar the two are."""
        ours, theirs = self.units - other.units, other.units - self.units
        return (
            self.turning != other.turning
            or not ours.isdisjoint(self.names)
            or not theirs.isdisjoint(other.names)
            or not self.telling <= other.words
            or any(pair & ours and pair & theirs for pair in _OPPOSITES)
            or not self._has_order_of(other)
        )

    def _has_order_of(self, other: "Wording") -> bool:
        """Whether the common words are in the same order, or one sentence begins with the end of the other."""
        common = self.words & other.words
        less, more = sorted(([word for word in each.order if word in common] for each in (self, other)), key=len)
        # Two words form a compound: "milk chocolate", "chocolate milk".
        return _are_in_order(less, more) or (len(less) == len(more) > 2 and _line(less) in _line([*more, *more]))


def bare_words(sentence: str) -> list[str]:
    """The words of a sentence as written, in NFKC, without punctuation around them."""
    text = sentence if sentence.isascii() else unicodedata.normalize("NFKC", sentence).replace("’", "'")
    return [word for raw in text.split() if raw not in _BULLETS and (word := raw.strip(_PUNCTUATION))]


def is_question(sentence: str) -> bool:
    """Whether the sentence ends with a question mark."""
    return _QUESTION.search(sentence.rstrip()[-_QUESTION_MAX:]) is not None


def _turning(words: Sequence[str]) -> Iterator[str]:
    for word in map(str.lower, words):
        # "isn't", "cannot", "n'aime"
        if word.endswith("n't") or word == "cannot":
            yield "not"
        elif word in _TURNING or word.startswith("n'"):
            yield word
        elif not word.isascii():
            yield from _TURNING_PART.findall(word)


def _is_name(unit: str, lowered: str, *, is_first: bool) -> bool:
    if lowered in _NUMBERS or _says_number_or_symbol(unit):
        return True
    if unit == lowered or unit.split("'")[0] == "I":
        return False
    return not is_first or lowered not in _COMMON


def _says_number_or_symbol(unit: str) -> bool:
    if unit.isascii():
        return _ASCII_NUMBER_OR_SYMBOL.search(unit) is not None
    return any(character.isnumeric() or unicodedata.category(character)[0] == "S" for character in unit)


def _is_telling(unit: str) -> bool:
    """Whether a word has a meaning of its own; "I've" and "doesn't" do not."""
    return not (unit in _TURNING or unit.endswith("n't") or unit.partition("'")[0] in _COMMON)


def _compared(unit: str) -> str:
    """The word without the ending of "trains" and "drinks", and without the points of "p.m."."""
    word = unit.replace(".", "")
    return word.removesuffix("s") if len(word) > _UNINFLECTED_MAX else word


def _line(words: Sequence[str]) -> str:
    return "\n".join(["", *words, ""])


def _are_in_order(words: Sequence[str], others: Sequence[str]) -> bool:
    rest = iter(others)
    return all(word in rest for word in words)
