"""Packs items into a text for a prompt: a line for each, oldest first, numbered, within a number of tokens.

The most relevant items are chosen first. An item that is long gives only the passage that matters, so that it leaves
room for others; one that does not fit leaves its room to the next.

A stored text must not pass for more than it is: only the lines of items begin at the margin, with their numbers. The
further lines of a text are indented, and characters that move the cursor or the direction of writing are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from itertools import pairwise

from mnemon_server.domain.clock import local, local_metadata
from mnemon_server.domain.documents import Passage
from mnemon_server.domain.events import MESSAGE_TYPE
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Origin, trust
from mnemon_server.domain.recall import RecallItem
from mnemon_server.ranking.analysis import STEMMED_WORDS, query_terms
from mnemon_server.ranking.heads import Heads
from mnemon_server.services.recall.tokenizers import Count, utf8_tokens
from mnemon_server.services.search.reranking import AUTHOR_KEYS

PARTS = 4
"""An item takes at most this fraction of the context: one part in PARTS."""
PART_TOKENS_MIN = 64
"""Or this many tokens, so that a small context holds more than fragments."""
FRAGMENT_TOKENS_MIN = 16
"""A shorter excerpt is not worth a line."""
EXAMINED_MAX = 65_536
"""How many characters of a text are searched for the words of the question if its best passage is not known."""
PASSAGE_TOKENS = 100
"""The size of the passage that is shown of an item: some lines."""
ELLIPSIS = "…"

SOURCE_CHARACTERS_MAX = 60
"""Maximum length of an origin's name."""
INDENT = "    "
CHARACTERS_PER_TOKEN_MAX = 16
"""Prose has far fewer characters per token, so a longer text need not be counted to its end."""

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of writing."""
_SENTENCE_END = re.compile(r"[.!?](?=\s)\s+|[。！？]|\n+")

_HEADS, _DAYS = Heads(("title", *AUTHOR_KEYS, "date", "time")), Heads(("date", "time"))


def pack(
    items: Sequence[RecallItem], question: str, tokens_max: int, count: Count, zone: tzinfo = UTC
) -> tuple[str, list[RecallItem]]:
    """The context, and the items in their order, each with its number in it; 0 if it is not there.

    The items are the most relevant first. The question chooses the passage of a long text whose best one is not known.
    Days are those of the zone.
    """
    chosen: dict[int, str] = {}
    words = _telling(question)

    def shown_size(text: str) -> int:
        return count(_shown(text))

    part = max(tokens_max // PARTS, PART_TOKENS_MIN)
    # A whole has at most as many tokens as its parts, so a text that is left out here would not have fitted.
    left = tokens_max
    for place, item in enumerate(items):
        number = len(chosen) + 1
        line = _line(_in_zone(item, zone), words, min(part, left), shown_size, number=number)
        if line is not None and (size := count(f"[{number}] {line}\n")) <= left:
            chosen[place] = line
            left -= size
    while chosen:
        numbers = _numbered(items, chosen)
        context = "\n".join(f"[{number}] {chosen[place]}" for place, number in numbers.items())
        if count(context) <= tokens_max:
            return context, [replace(item, citation=numbers.get(place, 0)) for place, item in enumerate(items)]
        chosen.pop(max(chosen))
    return "", list(items)


def with_passages(items: Sequence[RecallItem], question: str) -> list[RecallItem]:
    """The items, each with the passage to show of it: the whole text if it is short."""
    words, count = _telling(question), utf8_tokens
    characters_max = EXAMINED_MAX // max(len(items), 1)

    def passage(item: RecallItem) -> Passage:
        text = item.content
        if len(text) <= PASSAGE_TOKENS or count(text) <= PASSAGE_TOKENS:
            return Passage(0, 0, len(text))
        begin = _best_start(text, words, *_examined(item, len(text), characters_max), PASSAGE_TOKENS, count)
        return Passage(0, begin, _longest(text, begin, PASSAGE_TOKENS, count))

    return [replace(item, passage=passage(item)) for item in items]


def excerpt(item: RecallItem, question: str, tokens_max: int) -> str:
    """The text of an item, or the part of it that matters for a question, in at most so many tokens of utf8_tokens."""
    text = item.content.strip()
    return text if utf8_tokens(text) <= tokens_max else _excerpt(item, _telling(question), tokens_max, utf8_tokens)


def _telling(question: str) -> frozenset[str]:
    """The stems of the words of a question, without stop words."""
    return frozenset(STEMMED_WORDS.terms(" ".join(query_terms(question))))


def _numbered(items: Sequence[RecallItem], chosen: dict[int, str]) -> dict[int, int]:
    """The numbers of the chosen items, oldest first."""
    ordered = sorted(chosen, key=lambda place: (items[place].time, place))
    return {place: number for number, place in enumerate(ordered, 1)}


def _in_zone(item: RecallItem, zone: tzinfo) -> RecallItem:
    """The item with its times as the clocks of a zone show them."""
    return replace(item, time=local(item.time, zone), metadata=local_metadata(item.metadata, zone))


def _line(item: RecallItem, words: frozenset[str], tokens_max: int, count: Count, *, number: int) -> str | None:
    """The line of an item without its number, which has room beside it; None if too little of the text would fit."""
    start = f"{_day(item)}{_source(item)}{_head(item)}"
    text = item.content.strip()
    room = tokens_max - count(f"[{number}] {start}\n")
    if len(text) <= CHARACTERS_PER_TOKEN_MAX * room and count(text) <= room:
        return _shown(start + text)
    if room < FRAGMENT_TOKENS_MIN:
        return None
    return _shown(start + _excerpt(item, words, room, count))


def _shown(text: str) -> str:
    """A text as it stands in a context: further lines are indented."""
    return f"\n{INDENT}".join(_INVISIBLE.sub("", line) for line in text.splitlines())


def _day(item: RecallItem) -> str:
    """The day of an item, unless its head or its text begins with one."""
    return "" if _DAYS.of(item.metadata, item.content) else f"{item.time.date()} "


def _source(item: RecallItem) -> str:
    """The user of an item, if several are possible; and its origin if that is trusted less than an agent, so that a
    page does not read like the user's words.
    """
    origin, name = item.scope.origin, item.scope.origin_name[:SOURCE_CHARACTERS_MAX]
    # Tool messages already show their speaker.
    is_told = origin == Origin.TOOL and item.type == MESSAGE_TYPE
    is_plain = is_told or trust(origin) >= trust(Origin.AGENT)
    said = [item.whose[:SOURCE_CHARACTERS_MAX], "" if is_plain else f"{origin}: {name}" if name else origin]
    known = ", ".join(filter(None, said))
    return f"({known}) " if known else ""


def _head(item: RecallItem) -> str:
    """Its title, whose words it is, and their own day; the key of a fact."""
    named = f"{item.record.id}: " if item.record.kind is RecordKind.FACT and item.content.startswith("{") else ""
    return named + _HEADS.of(item.metadata, item.content)


def _excerpt(item: RecallItem, words: frozenset[str], tokens_max: int, count: Count) -> str:
    """The part of a text that fits: its best passage and what follows, from where most words of the question are."""
    text = item.content.rstrip()
    begin = _best_start(text, words, *_examined(item, len(text), EXAMINED_MAX), tokens_max, count)
    before = f"{ELLIPSIS} " if text[:begin].strip() else ""
    end = _longest(text, begin, tokens_max - count(before) - count(ELLIPSIS), count)
    return f"{before}{text[begin:end].strip()}{ELLIPSIS if end < len(text) else ''}"


def _examined(item: RecallItem, length: int, characters_max: int) -> tuple[int, int]:
    """The part of a text that is searched for the words of the question: its best passage, if that is known."""
    first, last = (item.passage.start, item.passage.end) if item.passage else (0, length)
    return first, min(last, length, first + characters_max)


def _best_start(text: str, words: frozenset[str], first: int, last: int, tokens_max: int, count: Count) -> int:
    """Where the excerpt between two places of a text begins: at the sentence from which on most words are within it."""
    if count(text[first:last]) <= tokens_max or not words:
        return first
    starts = [first, *(found.end() for found in _SENTENCE_END.finditer(text, first, last)), last]
    sentences = [
        (start, count(text[start:end]), words.intersection(STEMMED_WORDS.terms(text[start:end])))
        for start, end in pairwise(starts)
    ]

    def found_from(number: int) -> tuple[int, int]:
        """How many words of the question the excerpt has from this sentence on, without repetitions and with them."""
        found, repeated, size = set[str](), 0, 0
        for _, tokens, matching in sentences[number:]:
            size += tokens
            if size > tokens_max and found:
                break
            found |= matching
            repeated += len(matching)
            if size > tokens_max:
                break
        return len(found), repeated

    # Of equal ones the last: what follows the words of a question is more likely to answer it than what precedes them.
    most, best = max((found_from(number), number) for number in range(len(sentences)))
    return sentences[best][0] if any(most) else first


def _longest(text: str, begin: int, tokens_max: int, count: Count) -> int:
    """The end of the longest part from `begin` on that has at most `tokens_max` tokens, at the end of a word."""
    low, high = begin, min(len(text), begin + CHARACTERS_PER_TOKEN_MAX * max(tokens_max, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[begin:middle]) <= tokens_max:
            low = middle
        else:
            high = middle - 1
    if low == len(text) or text[low].isspace():
        return low
    # Some scripts have no spaces: then any character may be the last.
    space = max(text.rfind(" ", begin, low), text.rfind("\n", begin, low))
    return space if space > begin + (low - begin) // 2 else low
