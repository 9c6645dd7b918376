"""Texts as sentences, and without those that repeat others.

A text is cut so that its pieces put together are the text again; leaving one out leaves everything else as it was.
Cutting too seldom only finds fewer repetitions, while cutting too often would take half of a statement for one: a full
stop within "3.5", behind "Dr." or behind the number that begins a line ends nothing.

Sentences repeat each other where their token-set ratio reaches the threshold. That alone would lose what is known: it
is 1 for "likes tea" and "likes tea no longer", and for "Anna loves Ben" and "Ben loves Anna", and more than 0.9 for
"lives in Berlin with her son" and "lives in Dublin with her son". So a sentence is left out only where, besides, it is
the whole or the beginning of another one, apart from case, punctuation and words like articles, and neither has a
negation, a condition or a question mark that the other lacks. The one that says more stays, wherever it stands. Where
there is such a word, only the whole counts: "does not drink tea" says more than "does not drink tea at night".
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz

from mnemon_server.services.conflicts.signals import TOLERANCE
from mnemon_server.services.conflicts.wording import FILLERS, turning_words

SENTENCES_MAX = 10_000
"""Of a text with more sentences none is left out: comparing them would keep others from writing for too long."""

_CLOSING = r"\"'”’»›)\]』」】）"
# Marks are tried at the first one of a run alone, and give nothing back: long runs of them take no long time.
_END = re.compile(rf"(?<![.!?])[.!?]++[{_CLOSING}]*+(?=\s|$)\s*+|[。！？]++[{_CLOSING}。！？.!?]*+\s*+")
_ABBREVIATION = re.compile(
    r"\b(?:\w|mr|mrs|ms|mx|dr|prof|st|sr|jr|rev|gen|capt|no|nr|vs|etc|e\.g|i\.e|z\.B|ca|approx|inc|ltd)\.$",
    re.IGNORECASE,
)
_ABBREVIATION_MAX = 8
_PUNCTUATION = ".,;:!?…。、！？\"'“”‘’«»‹›()[]{}『』「」【】（）"
_BULLETS = frozenset("-–—*•·")
_QUESTION = re.compile(r"[?？]\W*$")


@dataclass(frozen=True, slots=True)
class _Wording:
    """What is compared of a sentence; sorted, what repeats another one stands right before it."""

    turning: tuple[str, ...]
    telling: tuple[str, ...]
    """The words but fillers; all of them where there is nothing else."""
    words: tuple[str, ...]
    """In NFKC and lower case, without punctuation around them."""


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """A text without its repetitions, and how many sentences were left out."""

    text: str
    dropped_count: int


def split_sentences(text: str) -> list[str]:
    """The sentences, each with its end and the white space behind it: put together they are the text."""
    return [sentence for line in text.splitlines(keepends=True) for sentence in _split_line(line)]


def deduplicate(text: str, threshold: float) -> Deduplicated:
    """The text without the sentences that others repeat at a token-set ratio of `threshold`, 0 to 1, or more.

    Everything else stays as it is, line ends too, but for those of lines of which nothing is left.
    """
    lines = [list(_split_line(line)) for line in text.splitlines(keepends=True)]
    sentences = [sentence for line in lines for sentence in line]
    repeated = _repeated(sentences, threshold) if len(sentences) <= SENTENCES_MAX else frozenset()
    if not repeated:
        return Deduplicated(text, 0)
    kept, position = [], 0
    for line in lines:
        numbered = enumerate(line, position)
        kept.append(_kept_of_line(line, [sentence for number, sentence in numbered if number not in repeated]))
        position += len(line)
    return Deduplicated("".join(kept).rstrip(), len(repeated))


def _kept_of_line(line: list[str], kept: list[str]) -> str:
    if not kept or len(kept) == len(line):
        return "".join(kept)
    end = line[-1][len(line[-1].rstrip()) :]
    return "".join(kept).rstrip() + end


def _split_line(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if end.end() < len(line) and not _goes_on(line, start, end):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def _goes_on(line: str, start: int, end: re.Match[str]) -> bool:
    """Whether what looks like the end of a sentence is none."""
    if line[end.start()] in "!?":
        return line[end.end()].islower()
    if end[0].rstrip() != ".":
        return False
    stop = end.start() + 1
    is_marker = stop - start <= _ABBREVIATION_MAX and len(line[start:stop].strip()) <= 3
    return is_marker or _ABBREVIATION.search(line, max(start, stop - _ABBREVIATION_MAX), stop) is not None


def _repeated(sentences: list[str], threshold: float) -> frozenset[int]:
    """Which of the sentences are left out.

    Sorted by what is compared, a sentence stands before what it is the beginning of, and the first of equal ones last:
    each needs to be compared with the next one only. Should that one be left out, too, then for one that says as much.
    """
    numbered = ((_wording(sentence), number) for number, sentence in enumerate(sentences))
    known = [(wording, number) for wording, number in numbered if wording.words]
    known.sort(key=lambda pair: _order(*pair))
    return frozenset(number for (one, number), (other, _) in pairwise(known) if _repeats(one, other, threshold))


def _order(wording: _Wording, number: int) -> tuple[tuple[str, ...], tuple[str, ...], int, tuple[str, ...], int]:
    return wording.turning, wording.telling, len(wording.words), wording.words, -number


def _repeats(one: _Wording, other: _Wording, threshold: float) -> bool:
    """Whether the other one, which is not before it in order, says all that it says."""
    if one.turning != other.turning:
        return False
    is_part = not one.turning and one.telling == other.telling[: len(one.telling)]
    if not is_part and one.telling != other.telling:
        return False
    if one.words == other.words:
        return True
    ratio: float = fuzz.token_set_ratio(" ".join(one.words), " ".join(other.words)) / 100.0
    return ratio >= threshold - TOLERANCE


def _wording(sentence: str) -> _Wording:
    text = sentence.lower() if sentence.isascii() else unicodedata.normalize("NFKC", sentence).replace("’", "'").lower()
    stripped = (word.strip(_PUNCTUATION) for word in text.split() if word not in _BULLETS)
    words = tuple(filter(None, stripped))
    telling = tuple(word for word in words if word not in FILLERS) or words
    is_question = _QUESTION.search(text[-_ABBREVIATION_MAX:]) is not None
    return _Wording((*turning_words(words), *("?" * is_question)), telling, words)
