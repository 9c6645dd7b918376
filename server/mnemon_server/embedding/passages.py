"""Splits a text into overlapping passages, at the ends of sentences or words if possible."""

from collections.abc import Sequence
from dataclasses import dataclass

from mnemon_server.embedding.base import Span

OVERLAP_TOKENS = 32
"""Number of tokens that a passage repeats of the previous one, so that text at a cut is whole in one of them."""

_SENTENCE_WINDOW = 4
"""A passage ends at a sentence's end only within its last quarter. An earlier end would make too many passages."""

_SENTENCE_ENDS = frozenset(".!?…。！？\n")
_CLOSERS = "\"'”’»)]} \t\r"


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
        first = _next_start(tokens, first, last, overlap)


def _passage_end(text: str, tokens: Sequence[Token], first: int, limit: int) -> int:
    """The index of the first token that no longer belongs to the passage."""
    earliest = max(first + 1, limit - (limit - first) // _SENTENCE_WINDOW)
    words = [index for index in range(limit, earliest - 1, -1) if _begins_word(tokens, index)]
    sentence = next((index for index in words if _ends_sentence(text, tokens[index].start)), None)
    if sentence is not None:
        return sentence
    if words:
        return words[0]
    return next((index for index in range(earliest, first, -1) if _begins_word(tokens, index)), limit)


def _next_start(tokens: Sequence[Token], first: int, last: int, overlap: int) -> int:
    wanted = max(first + 1, last - overlap)
    return next((index for index in range(wanted, last) if _begins_word(tokens, index)), last)


def _begins_word(tokens: Sequence[Token], index: int) -> bool:
    token, before = tokens[index], tokens[index - 1]
    return token.start >= before.end and (token.word is None or token.word != before.word)


def _ends_sentence(text: str, position: int) -> bool:
    before = text[max(0, position - 8) : position].rstrip(_CLOSERS)
    return bool(before) and before[-1] in _SENTENCE_ENDS
