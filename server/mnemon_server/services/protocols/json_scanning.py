"""Finds the JSON in a block of text in one pass: where objects begin and end, and what they are made of."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from mnemon_server.domain.tool_calls import JSON_DEPTH_MAX, Repair
from mnemon_server.services.protocols.json_values import (
    UnsafeJsonError,
    end_of_sound_json,
    read_fraction,
    read_integer,
    read_string,
)

TOKENS_MAX = 16_384
"""Of all objects of a text that need a repair: what the repair gets is bounded, whatever the length of its strings."""
PIECES_MAX = 131_072
"""Of a text that are looked at one by one: the pieces of JSON that is not sound, and each object for several."""
_PIECES_OF_CANDIDATE = 8
PART_CHARACTERS = 1 << 16
"""Of a text that are looked through for the next object at a time."""
# The decoder says on which line it failed, and for that goes over the text from its beginning.
_FAILURES_MAX = 256


class TooManyPiecesError(ValueError):
    """To go on would take a time that nobody should wait for; the message says why it would."""


class Mark(Enum):
    """What a token is, other than a single character of JSON's punctuation."""

    ATOM = "atom"
    CLOSED_HERE = "closed here"


class Token(NamedTuple):
    """A piece of JSON: punctuation as it is; an atom with its value; or the closing bracket that is missing here."""

    mark: Mark | str
    value: Any = None


class Boundary(NamedTuple):
    """Where something ends a block, unless it is part of a string."""

    start: int
    end: int


@dataclass(slots=True)
class Candidate:
    """What looks like an object, or a list of objects: `text[start:end]`.

    `flaw` says why no repair may be tried; `repairs` is what its tokens showed so far.
    """

    start: int
    end: int = 0
    tokens: list[Token] = field(default_factory=list)
    repairs: set[Repair] = field(default_factory=set)
    closed: bool = False
    flaw: str = ""


# What begins JSON, as against a brace in a sentence.
_OPENING = re.compile(r"""\{(?=\s*+(?:["'}]|[^\W\d][\w$-]*+\s*+:|//|/\*|,))|\[(?=\s*+["'{\d-])""")
_BRACKET = re.compile(r"[{\[]")
_TOKEN = re.compile(
    r"""(?P<space>\s++)|(?P<quote>["'])|(?P<opener>[{\[])|(?P<closer>[}\]])|(?P<separator>[,:])
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.+]))
    |(?P<word>[^\W\d][\w$-]*+)|(?P<comment>//|/\*|\#)|(?P<fence>```\w*+)""",
    re.VERBOSE,
)
_NEITHER_STRING_NOR_BRACKET = re.compile(r"""[^"'{}\[\]/#\\]*+""")
_SPACE = re.compile(r"\s*+")
_TO_QUOTE = {
    '"': re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
    "'": re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
}
# What follows a quote that ends its string, as against one that somebody forgot to escape.
_AFTER_STRING = re.compile(r"""\s*+(?:[,:}\]]|//|/\*|\#|```|\Z)|\s++["'{\[]""")
_AFTER_KEY = re.compile(r"\s*+:")
_ESCAPE = re.compile(
    r"""\\(?:(?P<sound>u[0-9a-fA-F]{4}|["\\/bfnrt])|(?P<quote>')|(?P<other>.?))|(?P<bare>")""", re.DOTALL
)
_BARE_CONTROL = re.compile(r"[\x00-\x1f]")
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_CLOSERS = {"{": "}", "[": "]"}
_OPENERS = {"}": "{", "]": "["}


class Scanner:
    """Walks over `text` from one boundary to the next; boundaries inside of strings do not count.

    `boundaries` are in the order of the text, and `index` is that of the first one that still counts.
    """

    def __init__(self, text: str, boundaries: Sequence[Boundary]) -> None:
        self._text = text
        self._boundaries = boundaries
        self._pieces_left = PIECES_MAX
        self._failures_left = _FAILURES_MAX
        self.index = 0

    @property
    def limit(self) -> int:
        """Where the next boundary begins, or the text ends."""
        return self._boundaries[self.index].start if self.index < len(self._boundaries) else len(self._text)

    def candidates(self, position: int) -> list[Candidate]:
        """All that looks like JSON from `position` to the next boundary, at which `index` then stands.

        Raises TooManyPiecesError once PIECES_MAX of the text have been looked at.
        """
        found = []
        while (start := self._opening(position)) is not None:
            self.count(_PIECES_OF_CANDIDATE)
            candidate = self._candidate(start)
            found.append(candidate)
            position = candidate.end
        return found

    def _opening(self, position: int) -> int | None:
        """Where the next candidate begins. It is looked for in parts: no thread runs while an expression is at work."""
        limit = self.limit
        while position < limit:
            end = min(position + PART_CHARACTERS, limit)
            if opening := _OPENING.search(self._text, position, end):
                return opening.start()
            # What tells the last opening may lie beyond the part, but not beyond the next bracket.
            bracket = _BRACKET.search(self._text, end, limit)
            if opening := _OPENING.search(self._text, position, bracket.end() if bracket else limit):
                return opening.start()
            position = bracket.start() if bracket else limit
        return None

    def count(self, pieces: int = 1) -> None:
        """Notes that so many pieces are looked at; raises TooManyPiecesError where those are too many."""
        self._pieces_left -= pieces
        if self._pieces_left < 0:
            raise TooManyPiecesError(f"a text is read for {PIECES_MAX:,} pieces of JSON that is not sound")

    def _candidate(self, start: int) -> Candidate:
        """Sound JSON is read at once; only what is not goes piece by piece."""
        end = end_of_sound_json(self._text, start) if self._failures_left else None
        if end is None:
            self._failures_left = max(self._failures_left - 1, 0)
            return _CandidateScan(self, self._text, start).run()
        self.skip_to(end)
        return Candidate(start, end, closed=True)

    def skip_to(self, position: int) -> None:
        """Boundaries before `position` are part of a string."""
        while self.limit < position:
            self.index += 1


class _CandidateScan:
    """One candidate, token by token."""

    def __init__(self, scanner: Scanner, text: str, start: int) -> None:
        self._scanner = scanner
        self._text = text
        self._position = start
        self._open: list[str] = []
        self._count = {"{": 0, "[": 0}
        self._candidate = Candidate(start)
        self._handlers: dict[str, Callable[[str], None]] = {
            "quote": self._string,
            "opener": self._opener,
            "closer": self._closer,
            "separator": self._separator,
            "number": self._number,
            "word": self._word,
            "comment": self._comment,
            "fence": self._fence,
        }

    def run(self) -> Candidate:
        try:
            while not self._candidate.closed and self._position < self._scanner.limit:
                self._step()
        except TooManyPiecesError as error:
            raise TooManyPiecesError(self._candidate.flaw or error) from error
        self._candidate.end = self._position
        if not self._candidate.closed:
            self._candidate.repairs.add(Repair.OPEN_BRACKETS)
            while self._open:
                self._close()
        return self._candidate

    def _step(self) -> None:
        self._scanner.count()
        if self._candidate.flaw:
            self._skip_what_matters_no_more()
        match = _TOKEN.match(self._text, self._position, self._scanner.limit)
        if match is None or match.lastgroup is None:
            if self._position < self._scanner.limit:
                self._foreign()
            return
        self._position = match.end()
        if (handler := self._handlers.get(match.lastgroup)) is not None:
            handler(match[0])

    def _skip_what_matters_no_more(self) -> None:
        match = _NEITHER_STRING_NOR_BRACKET.match(self._text, self._position, self._scanner.limit)
        if match is not None:
            self._position = match.end()

    def _foreign(self) -> None:
        """What is no JSON. A backslash goes with what it escapes: a quote behind one opens no string."""
        character = self._text[self._position]
        self._flaw(f"unexpected {character!r} outside of a string")
        self._position = min(self._position + (2 if character == "\\" else 1), self._scanner.limit)

    def _fence(self, _: str) -> None:
        self._candidate.repairs.add(Repair.CODE_FENCE)

    def _separator(self, character: str) -> None:
        self._add(Token(character))

    def _flaw(self, reason: str) -> None:
        self._candidate.flaw = self._candidate.flaw or reason

    def _add(self, token: Token) -> None:
        if self._candidate.flaw:
            return
        self._candidate.tokens.append(token)
        if len(self._candidate.tokens) > TOKENS_MAX:
            self._flaw("too much of it to repair")

    def _opener(self, bracket: str) -> None:
        self._open.append(bracket)
        self._count[bracket] += 1
        self._add(Token(bracket))
        if len(self._open) > JSON_DEPTH_MAX:
            self._flaw(f"nested deeper than {JSON_DEPTH_MAX}")

    def _closer(self, bracket: str) -> None:
        """Closes what it belongs to, and whatever was left open in there."""
        opener = _OPENERS[bracket]
        if not self._count[opener]:
            self._flaw(f"{bracket!r} closes nothing")
            return
        while self._open[-1] != opener:
            self._candidate.repairs.add(Repair.OPEN_BRACKETS)
            self._close()
        self._count[self._open.pop()] -= 1
        self._add(Token(bracket))
        self._candidate.closed = not self._open

    def _close(self) -> None:
        bracket = self._open.pop()
        self._count[bracket] -= 1
        self._add(Token(Mark.CLOSED_HERE, _CLOSERS[bracket]))

    def _number(self, text: str) -> None:
        try:
            self._add(Token(Mark.ATOM, read_fraction(text) if any(c in ".eE" for c in text) else read_integer(text)))
        except UnsafeJsonError as error:
            self._flaw(str(error))

    def _word(self, word: str) -> None:
        if _AFTER_KEY.match(self._text, self._position, self._scanner.limit):
            self._candidate.repairs.add(Repair.UNQUOTED_KEYS)
            self._add(Token(Mark.ATOM, word))
        elif word in _LITERALS:
            if word[0].isupper():
                self._candidate.repairs.add(Repair.PYTHON_LITERALS)
            self._add(Token(Mark.ATOM, _LITERALS[word]))
        else:
            self._flaw("a word outside of a string")

    def _comment(self, opening: str) -> None:
        """Comments end at a boundary, too: only strings hide one."""
        ending = "*/" if opening == "/*" else "\n"
        end = self._text.find(ending, self._position, self._scanner.limit)
        self._position = end + len(ending) if end >= 0 else self._scanner.limit
        self._candidate.repairs.add(Repair.COMMENTS)

    def _string(self, quote: str) -> None:
        start = self._position - 1
        if quote == "'":
            self._candidate.repairs.add(Repair.SINGLE_QUOTES)
        end = self._end_of_string(start, quote)
        if end is None:
            self._open_string(start)
            return
        self._scanner.skip_to(end)
        self._position = end
        self._add_string(self._text[start + 1 : end - 1])

    def _end_of_string(self, start: int, quote: str) -> int | None:
        """Behind the quote that ends the string; None where a boundary comes first.

        Beyond a boundary only the next quote is looked at, which keeps the time linear: it is part of this string if
        it ends it, and otherwise opens one of the next block.
        """
        limit, position = self._scanner.limit, start + 1
        while (match := _TO_QUOTE[quote].match(self._text, position)) is not None:
            self._scanner.count()
            position = match.end()
            if _AFTER_STRING.match(self._text, position) or self._space_ends(position) == limit:
                return position
            if position > limit:
                return None
            self._candidate.repairs.add(Repair.INNER_QUOTES)
            if position == start + 2:
                self._flaw("quotes that enclose nothing")
        return None

    def _space_ends(self, position: int) -> int:
        match = _SPACE.match(self._text, position)
        return match.end() if match else position

    def _open_string(self, start: int) -> None:
        """A string without its end: it ends at the boundary, or before the brackets that close all that is open."""
        limit = self._scanner.limit
        inner = self._text[start + 1 : limit].rstrip().removesuffix("```").rstrip()
        body = inner.rstrip("}] \t\r\n")
        closers = "".join(inner[len(body) :].split())
        self._candidate.repairs.add(Repair.OPEN_STRINGS)
        may_hold_brackets = bool(closers) and ("{" in body or "[" in body)
        whole = closers in ("", self._missing_closers()) and not may_hold_brackets
        if not whole or Repair.INNER_QUOTES in self._candidate.repairs:
            self._flaw("where an open string ends cannot be told")
        self._position = limit
        self._add_string(body if closers else inner)
        for bracket in closers:
            self._closer(bracket)

    def _missing_closers(self) -> str:
        return "".join(_CLOSERS[bracket] for bracket in reversed(self._open[: JSON_DEPTH_MAX + 1]))

    def _add_string(self, inner: str) -> None:
        if _BARE_CONTROL.search(inner):
            self._candidate.repairs.add(Repair.CONTROL_CHARACTERS)
        try:
            # Where there is nothing to mend in a megabyte, to find that out would stop every thread for 10 ms.
            sound = _ESCAPE.sub(self._sound_escape, inner) if "\\" in inner or '"' in inner else inner
            self._add(Token(Mark.ATOM, read_string(sound)))
        except (UnsafeJsonError, json.JSONDecodeError) as error:
            self._flaw(str(error))

    def _sound_escape(self, match: re.Match[str]) -> str:
        if match["sound"]:
            return match[0]
        if match["quote"] or match["bare"]:
            return "'" if match["quote"] else '\\"'
        self._candidate.repairs.add(Repair.INVALID_ESCAPES)
        return f"\\\\{match['other']}"
