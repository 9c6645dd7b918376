"""Cutting a text into overlapping passages, at the ends of sentences or words where it can be done."""

from collections.abc import Sequence
from dataclasses import dataclass

from mnemon_server.embedding.base import Span

OVERLAP_TOKENS = 32
"""Tokens that a passage repeats of the one before it, so that what stands at a cut is read whole once."""

_SENTENCE_WINDOW = 4
"""A sentence's end is taken in the last quarter of a passage; further back would make too many passages."""

_SENTENCE_ENDS = frozenset(".!?…。！？\n")
_CLOSERS = "\"'”’»)]} \t\r"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text: its code points, and the index of its word, None where the tokenizer knows no words."""

    start: int
    end: int
    word: int | None = None


def cut_passages(text: str, tokens: Sequence[Token], tokens_max: int, overlap: int = OVERLAP_TOKENS) -> list[Span]:
    """Spans of at most `tokens_max` tokens that cover the text from its first code point to its last, in order."""
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
    """Index of the token that begins what no longer belongs to the passage."""
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
