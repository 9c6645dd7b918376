"""What de-duplication must know of languages: which sentences differ in meaning, however many words they share.

Names are recognised by their capital letters. In a sentence without capitals, and in scripts that have none, every word
may be a name: such a sentence is left out only for one that has all of its words, in their order.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemon_server.ranking.keywords import HAN, KANA
from mnemon_server.ranking.languages import STOP_WORDS

_FILLERS_TEXT = "a also an indeed quite really the very"
_COMMON = STOP_WORDS | frozenset(_FILLERS_TEXT.split())
"""Words that are never names, however they are written."""

# Too many words here do no harm: a word keeps two sentences apart that might mean the same, and nothing is lost.
_TURNING_TEXT = """
    barely cannot cant couldnt didnt doesnt dont hadnt hardly hasnt havent isnt lack lacks neither never no nobody
    none nor not nothing nowhere shouldnt unlikely wasnt werent without wont wouldnt almost before either else
    except fewer former formerly if instead less likely may maybe might once only or perhaps possibly probably
    rarely refuses said says seldom should stopped supposedly than though thinks unless unlike until used wants
    when whenever whether would could
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
"""Negations, conditions and doubts: one more or less of them changes the meaning of a sentence."""
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
# Each character of Chinese or Japanese on its own, since nothing marks where words end.
_UNIT = re.compile(f"[{HAN}{KANA}]|[^{HAN}{KANA}]+")
_HIRAGANA = re.compile("[\u3041-\u309f]")


@dataclass(frozen=True, slots=True)
class Wording:
    """The parts of a sentence that are compared."""

    text: str
    """The words in NFKC and lower case, without punctuation around them."""
    turning: tuple[str, ...]
    """Negations, conditions, doubts, and the question mark."""
    units: tuple[str, ...]
    """The words of the text; single characters for Chinese and Japanese."""
    names: tuple[str, ...]
    """The units that are certainly numbers, symbols or names."""
    possible_names: tuple[str, ...]
    """The units that may be names."""

    @classmethod
    def of(cls, words: Sequence[str], *, is_question: bool) -> "Wording":
        """The wording of a sentence, from its bare words."""
        units = [unit for word in words for unit in ([word] if word.isascii() else _UNIT.findall(word))]
        lowered = [unit.lower() for unit in units]
        pairs = list(zip(units, lowered, strict=True))
        is_cased = units != lowered
        possible = [low for unit, low in pairs if not is_cased or (low == unit.upper() and not low.isascii())]
        return cls(
            text=" ".join(words).lower(),
            turning=tuple(sorted((*_turning(words), *("?" * is_question)))),
            units=tuple(lowered),
            names=tuple(low for place, (unit, low) in enumerate(pairs) if _is_name(unit, low, is_first=place == 0)),
            possible_names=tuple(low for low in possible if low not in _COMMON and not _HIRAGANA.fullmatch(low)),
        )

    def differs(self, other: "Wording") -> bool:
        """Whether the other one differs in meaning, however similar the two are."""
        return (
            self.turning != other.turning
            or not set(self.names) <= set(other.units)
            or not set(other.names) <= set(self.units)
            or _those_of(self.names, other.names) != _those_of(other.names, self.names)
            or not _are_in_order(self.possible_names, other.units)
        )


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


def _those_of(names: Sequence[str], others: Sequence[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name in known]


def _are_in_order(units: Sequence[str], others: Sequence[str]) -> bool:
    rest = iter(others)
    return all(unit in rest for unit in units)
