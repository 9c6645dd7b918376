"""Splits texts into sentences, and leaves out those that repeat others.

The pieces of a text, joined, are the text again; leaving out one piece does not change the others. Splitting too rarely
only finds fewer repetitions, but splitting too often would take half a statement for a repetition. So a full stop
within "3.5", behind "Dr." or behind the number that begins a line does not end a sentence.

Of two sentences whose token-set ratio reaches the threshold, the longer one stays, wherever it is; of two with the same
length, the first. That alone would lose knowledge: the ratio is 1 for "Anna loves Ben" and "Ben loves Anna", and above
0.9 for "lives in Berlin with her son" and "lives in Dublin with her son". The guard (`wording.py`) keeps those.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rapidfuzz import fuzz, process

from mnemon_server.services.conflicts.signals import TOLERANCE
from mnemon_server.services.conflicts.wording import Wording, bare_words, is_question

SENTENCES_COMPARED_MAX = 200
"""In a text with more distinct sentences, only those with the same words are left out: comparing all pairs would keep
other writes waiting for too long."""

_CLOSING = r"\"'”’»›)\]』」】）"
# A run of marks is matched only from its first mark, and without backtracking: long runs do not take long.
_END = re.compile(rf"(?<![.!?])[.!?]++[{_CLOSING}]*+(?=\s|$)\s*+|[。！？]++[{_CLOSING}。！？.!?]*+\s*+")
_ABBREVIATION = re.compile(
    r"\b(?:\w|mr|mrs|ms|mx|dr|prof|st|sr|jr|rev|gen|capt|no|nr|vs|etc|e\.g|i\.e|z\.B|ca|approx|inc|ltd)\.$",
    re.IGNORECASE,
)
_ABBREVIATION_MAX = 8


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """A text without its repetitions, how many sentences were left out, and how many only the guard kept."""

    text: str
    dropped_count: int = 0
    guarded_count: int = 0


def split_sentences(text: str) -> list[str]:
    """The sentences, each with its end mark and the white space behind it; joined, they are the text."""
    return [sentence for line in text.splitlines(keepends=True) for sentence in _split_line(line)]


def deduplicate(text: str, threshold: float, *, guard: bool = True) -> Deduplicated:
    """The text without the sentences that others repeat at a token-set ratio of at least `threshold`, 0 to 1.

    Everything else stays as it is, including line ends, except those of lines that are now empty. With `guard`, a
    sentence stays if it may say something else than the sentence that repeats it.
    """
    lines = [list(_split_line(line)) for line in text.splitlines(keepends=True)]
    comparison = _Comparison(threshold, guard=guard)
    comparison.compare([sentence for line in lines for sentence in line])
    repeated, guarded_count = comparison.repeated, len(comparison.guarded)
    if not repeated:
        return Deduplicated(text, guarded_count=guarded_count)
    kept, position = [], 0
    for line in lines:
        numbered = enumerate(line, position)
        kept.append(_kept_of_line(line, [sentence for number, sentence in numbered if number not in repeated]))
        position += len(line)
    return Deduplicated("".join(kept).rstrip(), len(repeated), guarded_count)


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
    """Whether a sentence goes on behind what looks like its end."""
    if line[end.start()] in "!?":
        return line[end.end()].islower()
    if end[0].rstrip() != ".":
        return False
    stop = end.start() + 1
    is_marker = stop - start <= _ABBREVIATION_MAX and len(line[start:stop].strip()) <= 3
    return is_marker or _ABBREVIATION.search(line, max(start, stop - _ABBREVIATION_MAX), stop) is not None


class _Comparison:
    """The numbers of the sentences that are left out, and of those that only the guard kept."""

    def __init__(self, threshold: float, *, guard: bool) -> None:
        self._score_min = (threshold - TOLERANCE) * 100.0
        self._guard = guard
        self.repeated: set[int] = set()
        self.guarded: set[int] = set()

    def compare(self, sentences: list[str]) -> None:
        """Fills both; every sentence that is left out is repeated by one that stays."""
        different = self._different(sentences)
        if len(different) > SENTENCES_COMPARED_MAX:
            return
        wordings = {
            number: Wording.of(words, is_question=is_question(sentences[number])) for number, words in different.items()
        }
        kept: list[Wording] = []
        for number, wording in sorted(wordings.items(), key=lambda item: (-len(item[1].text), item[0])):
            self._compare(number, wording, kept)
            if number not in self.repeated:
                kept.append(wording)

    def _different(self, sentences: list[str]) -> dict[int, list[str]]:
        """The words of the sentences that have any; of several with the same words, only the first."""
        known: set[tuple[str, bool]] = set()
        found: dict[int, list[str]] = {}
        for number, sentence in enumerate(sentences):
            words = bare_words(sentence)
            key = (" ".join(words).lower(), self._guard and is_question(sentence))
            if not words:
                continue
            if key in known:
                self.repeated.add(number)
            else:
                known.add(key)
                found[number] = words
        return found

    def _compare(self, number: int, wording: Wording, kept: list[Wording]) -> None:
        if not kept:
            return
        texts = [other.text for other in kept]
        [scores] = process.cdist([wording.text], texts, scorer=fuzz.token_set_ratio, dtype=np.float64)
        alike = [kept[index] for index in np.flatnonzero(scores >= self._score_min)]
        if not alike:
            return
        if self._guard and all(wording.differs(other) for other in alike):
            self.guarded.add(number)
        else:
            self.repeated.add(number)
