"""Splits a text into overlapping passages, between sentences or words if possible."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnemon_server.embedding.base import Span

OVERLAP_TOKENS = 32
"""Number of tokens that a passage repeats of the previous one, so that text at a boundary is whole in one of them; up
to twice as many if a sentence begins there."""

_SENTENCE_WINDOW = 4
"""A passage ends at a sentence's end only within its last quarter. An earlier end would make too many passages."""

_CLOSERS = "\"'”’»)]}」』】）〉》"
_SENTENCE_END = re.compile(
    # At these, only before a space. A dot behind one letter, or one or two digits, is that of an initial, of a list's
    # number or of a date.
    rf"((?<![\W_][^\W\d_])(?<!^\w)(?<![\s(]\d)(?<![\s(]\d\d)\.|[!?…])[{re.escape(_CLOSERS)}]*\s+$"
    # In Chinese and Japanese, Hindi, Arabic and Urdu, Armenian, Ethiopic, Burmese and Khmer.
    rf"|[。！？．｡।॥؟۔։።፧။។][{re.escape(_CLOSERS)}]*\s*$"
    r"|\n\s*$"
)
_SEEN_BEFORE = 16
"""Number of characters before a token that tell whether a sentence ends there."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text: its code points, and the index of its word; None if the tokenizer has no word indices."""

    start: int
    end: int
    word: int | None = None


def cut_passages(text: str, tokens: Sequence[Token], tokens_max: int, overlap: int = OVERLAP_TOKENS) -> list[Span]:
    """Spans of at most `tokens_max` tokens, in order, that cover the text from its first to its last code point."""
    if len(tokens) <= tokens_max:
        return [Span(0, len(text))]
    spans: list[Span] = []
    first = 0
    while True:
        start = tokens[first].start if spans else 0
        if len(tokens) - first <= tokens_max:
            return [*spans, Span(start, len(text))]
        last = _passage_end(text, tokens, first, first + tokens_max)
        spans.append(Span(start, tokens[last].start))
        first = _next_start(text, tokens, first, last, overlap)


def _passage_end(text: str, tokens: Sequence[Token], first: int, limit: int) -> int:
    """The index of the first token that no longer belongs to the passage."""
    earliest = max(first + 1, limit - (limit - first) // _SENTENCE_WINDOW)
    words = [index for index in range(limit, earliest - 1, -1) if _begins_word(text, tokens, index)]
    if words:
        return _sentence(text, tokens, words) or words[0]
    return next((index for index in range(earliest, first, -1) if _begins_word(text, tokens, index)), limit)


def _next_start(text: str, tokens: Sequence[Token], first: int, last: int, overlap: int) -> int:
    """The index of the token that starts the next passage: within the overlap, preferably one that starts a sentence.

    Further back, it looks within half of the passage at most, so that passages advance; and at the cut itself last, as
    nothing would overlap.
    """
    wanted = max(first + 1, last - overlap)
    furthest = max(first + 1, min(wanted, last - min(2 * overlap, (last - first) // 2)))
    near, far = range(wanted, last), range(wanted - 1, furthest - 1, -1)
    words = [index for index in (*near, *far, last) if _begins_word(text, tokens, index)]
    sentence = _sentence(text, tokens, words)
    return sentence or next((index for index in words if index >= wanted), last)


def _begins_word(text: str, tokens: Sequence[Token], index: int) -> bool:
    token, before = tokens[index], tokens[index - 1]
    # Some tokenizers treat any run without spaces as one word, such as a paragraph in Chinese.
    differs = token.word is None or token.word != before.word
    return token.start >= before.end and (differs or _begins_sentence(text, token.start))


def _sentence(text: str, tokens: Sequence[Token], words: Iterable[int]) -> int | None:
    """The first word that begins a sentence, preferring a capitalized one."""
    found = [index for index in words if _begins_sentence(text, tokens[index].start)]
    return next((index for index in found if not _is_lower(text, tokens[index].start)), found[0] if found else None)


def _begins_sentence(text: str, position: int) -> bool:
    space, following = _space_and_next(text, position)
    before = text[max(0, position - _SEEN_BEFORE) : position] + space
    # Behind a space, a quotation mark opens what follows; without one, it closes what is before.
    return bool(_SENTENCE_END.search(before)) and (before[-1].isspace() or following not in _CLOSERS)


def _is_lower(text: str, position: int) -> bool:
    return _space_and_next(text, position)[1].islower()


def _space_and_next(text: str, position: int) -> tuple[str, str]:
    """The space with which some tokens begin, and the character behind it."""
    found = text[position : position + _SEEN_BEFORE]
    rest = found.lstrip()
    return found[: len(found) - len(rest)], rest[:1]
