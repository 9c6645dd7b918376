"""Searches a long text in parts: during each, all other threads are blocked, and a mebibyte of brackets takes 20 ms."""

import re
from collections.abc import Iterator

PART_CHARACTERS = 1 << 16
"""How many characters are searched at once."""
_BEGINNING_MAX = 64


def matches(beginning: re.Pattern[str], whole: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """As `whole.finditer(text)`.

    Args:
        beginning: how each match of `whole` begins; it has at most 64 characters, and is nowhere else within a match.
        whole: may match any number of characters.
        text: what is searched.
    """
    position = 0
    while position < len(text):
        end = position + PART_CHARACTERS
        begin = beginning.search(text, position, end + _BEGINNING_MAX)
        if begin is None or begin.start() >= end:
            position = end
            continue
        match = whole.match(text, begin.start())
        position = (match or begin).end()
        if match is not None:
            yield match
