"""Removes the thinking of a model from its text."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from mnemon_server.services.protocols.searching import matches

_TAG_BEGINNING = re.compile(r"</?think", re.IGNORECASE | re.ASCII)
# ASCII, since otherwise other letters that fold to "k", such as the Kelvin sign, would match.
_TAG = re.compile(r"<(/?)think(?:ing)?(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class VisibleText:
    """A text without its thinking, with the original position of each character."""

    text: str
    starts: tuple[int, ...]
    shifts: tuple[int, ...]
    unclosed: int | None = None
    """The offset in the original text of a tag that is not closed, and so hides the rest; None if all are closed."""

    def offset_in_original(self, offset: int) -> int:
        """The offset in the original text of the character at `offset`."""
        return offset + self.shifts[bisect_right(self.starts, offset) - 1]


def without_thinking(text: str) -> VisibleText:
    """Removes `<think>` and `<thinking>` blocks, nested or not; one that is not closed hides the rest of the text.

    A space replaces a block between two words, so that no marker can result from joining them.
    """
    pieces: list[str] = []
    starts, shifts, length = [0], [0], 0
    ranges, unclosed = _visible_ranges(text)
    for begin, end in ranges:
        if pieces and _would_join(text, pieces[-1], begin):
            pieces.append(" ")
            length += 1
        starts.append(length)
        shifts.append(begin - length)
        pieces.append(text[begin:end])
        length += end - begin
    return VisibleText("".join(pieces), tuple(starts), tuple(shifts), unclosed)


def _visible_ranges(text: str) -> tuple[list[tuple[int, int]], int | None]:
    ranges, depth, begin, hidden_from = [], 0, 0, 0
    for tag in matches(_TAG_BEGINNING, _TAG, text):
        if not tag[1]:
            if depth == 0:
                hidden_from = tag.start()
                if hidden_from > begin:
                    ranges.append((begin, hidden_from))
            depth += 1
        elif depth:
            depth -= 1
            begin = tag.end()
    if depth:
        return ranges, hidden_from
    if begin < len(text):
        ranges.append((begin, len(text)))
    return ranges, None


def _would_join(text: str, before: str, begin: int) -> bool:
    return not before[-1].isspace() and not text[begin].isspace()
