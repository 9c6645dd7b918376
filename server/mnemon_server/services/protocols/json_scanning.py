"""Finds JSON in a block of text in one pass: where objects begin and end, and their tokens."""

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
from mnemon_server.services.protocols.searching import PART_CHARACTERS

TOKENS_MAX = 16_384
"""The most tokens in all objects of a text that need repair: it limits the work, whatever the length of the strings."""
PIECES_MAX = 131_072
"""The most pieces of a text that are scanned: an object counts as several, and a token of damaged JSON as one."""
_PIECES_OF_CANDIDATE = 8
# To tell the line of an error, the decoder counts the lines from the beginning of the text, which takes time.
_FAILURES_MAX = 256


class TooManyPiecesError(ValueError):
    """Scanning the text further would take too long; the message says why."""


class Mark(Enum):
    """The kind of a token, other than a single character of JSON's punctuation."""

    ATOM = "atom"
    CLOSED_HERE = "closed here"


class Token(NamedTuple):
    """A piece of JSON: a punctuation mark; an atom with its value; or a closing bracket that is missing here."""

    mark: Mark | str
    value: Any = None


@dataclass(slots=True)
class Candidate:
    """A part of the text that looks like an object, or like a list of objects: `text[start:end]`.

    `flaw` says why it cannot be repaired; `repairs` are the repairs that its tokens need.
    """

    start: int
    end: int = 0
    tokens: list[Token] = field(default_factory=list)
    repairs: set[Repair] = field(default_factory=set)
    closed: bool = False
    flaw: str = ""


# The beginning of JSON, but not a brace in a sentence.
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
# The text after a quote that ends its string. After a quote that should have been escaped, there is other text.
_AFTER_STRING = re.compile(r"""\s*+(?:[,:}\]]|//|/\*|\#|```|\Z)|\s++["'{\[]""")
_AFTER_KEY = re.compile(r"\s*+:")
_ESCAPE = re.compile(
    r"""\\(?:(?P<sound>u[0-9a-fA-F]{4}|[\\/bfnrt])|(?P<quote>["'])|(?P<lone>.?))|(?P<bare>")""", re.DOTALL
)
_CONTROL_CHARACTERS = bytes(range(32))
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_CLOSERS = {"{": "}", "[": "]"}
_OPENERS = {"}": "{", "]": "["}


class Scanner:
    """Scans `text` from one boundary to the next; boundaries inside strings do not count.

    `boundaries` are the places, in order, that end a block; `index` is the index of the next one.
    """

    def __init__(self, text: str, boundaries: Sequence[int]) -> None:
        self._text = text
        self._boundaries = boundaries
        self._pieces_left = PIECES_MAX
        self._failures_left = _FAILURES_MAX
        self.index = 0

    @property
    def limit(self) -> int:
        """Where the next boundary begins, or the text ends."""
        return self._boundaries[self.index] if self.index < len(self._boundaries) else len(self._text)

    def candidates(self, position: int) -> list[Candidate]:
        """All candidates from `position` to the next boundary; `index` is then the index of that boundary.

        Raises TooManyPiecesError if more than PIECES_MAX of the text have been scanned.
        """
        found = []
        while (start := self._opening(position)) is not None:
            self.count(_PIECES_OF_CANDIDATE)
            candidate = self._candidate(start)
            found.append(candidate)
            position = candidate.end
        return found

    def _opening(self, position: int) -> int | None:
        """The start of the next candidate. The search goes in parts, since other threads are blocked during each."""
        limit = self.limit
        while position < limit:
            end = min(position + PART_CHARACTERS, limit)
            if opening := _OPENING.search(self._text, position, end):
                return opening.start()
            # The match of an opening in this part may reach beyond it, but not beyond the next bracket.
            bracket = _BRACKET.search(self._text, end, limit)
            if opening := _OPENING.search(self._text, position, bracket.end() if bracket else limit):
                return opening.start()
            position = bracket.start() if bracket else limit
        return None

    def count(self, pieces: int = 1) -> None:
        """Counts scanned pieces; raises TooManyPiecesError if there are too many."""
        self._pieces_left -= pieces
        if self._pieces_left < 0:
            raise TooManyPiecesError(f"at most {PIECES_MAX:,} pieces of damaged JSON are read")

    def _candidate(self, start: int) -> Candidate:
        """The candidate at `start`. Valid JSON is read in one go; only damaged JSON is scanned piece by piece."""
        end = end_of_sound_json(self._text, start) if self._failures_left else None
        if end is None:
            self._failures_left = max(self._failures_left - 1, 0)
            return _CandidateScan(self, self._text, start).run()
        self.skip_to(end)
        return Candidate(start, end, closed=True)

    def skip_to(self, position: int) -> None:
        """Skips the boundaries before `position`, since they are part of a string."""
        while self.limit < position:
            self.index += 1


class _CandidateScan:
    """Scans one candidate, token by token."""

    def __init__(self, scanner: Scanner, text: str, start: int) -> None:
        self._scanner = scanner
        self._text = text
        self._position = start
        self._open: list[str] = []
        self._count = {"{": 0, "[": 0}
        self._escapes: set[str] = set()
        """The kinds of escapes in its strings, by their names in _ESCAPE."""
        self._may_end = False
        """Whether the next quote after a backslash may have been meant to end its string."""
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
        self._check_escapes()
        return self._candidate

    def _check_escapes(self) -> None:
        """Rejects ambiguous backslashes: in a Windows path, they are not meant as escapes."""
        if "lone" in self._escapes and len(self._escapes) > 1:
            self._flaw('some backslashes are escapes and others are not; write each of the others as "\\\\"')

    def _step(self) -> None:
        self._scanner.count()
        if self._candidate.flaw:
            self._skip_to_string_or_bracket()
        match = _TOKEN.match(self._text, self._position, self._scanner.limit)
        if match is None or match.lastgroup is None:
            if self._position < self._scanner.limit:
                self._foreign()
            return
        self._position = match.end()
        if (handler := self._handlers.get(match.lastgroup)) is not None:
            handler(match[0])

    def _skip_to_string_or_bracket(self) -> None:
        match = _NEITHER_STRING_NOR_BRACKET.match(self._text, self._position, self._scanner.limit)
        if match is not None:
            self._position = match.end()

    def _foreign(self) -> None:
        """Skips a character that is not JSON; a backslash with the character after it, which may be a quote."""
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
            self._flaw("the JSON is too large to be repaired")

    def _opener(self, bracket: str) -> None:
        self._open.append(bracket)
        self._count[bracket] += 1
        self._add(Token(bracket))
        if len(self._open) > JSON_DEPTH_MAX:
            self._flaw(f"nested deeper than {JSON_DEPTH_MAX}")

    def _closer(self, bracket: str) -> None:
        """Closes the object or list that the bracket belongs to, and everything that is still open inside it."""
        opener = _OPENERS[bracket]
        if not self._count[opener]:
            self._flaw(f"{bracket!r} has no opening bracket")
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
        """Skips a comment. A boundary ends a comment, too: only strings hide boundaries."""
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
        """The position after the quote that ends the string; None if a boundary comes first.

        If the next quote after a boundary ends the string, the boundary is part of the string; otherwise that quote
        opens a string in the next block. If a quote before the boundary does not end the string, nothing does.
        """
        match, limit = _TO_QUOTE[quote].match(self._text, start + 1), self._scanner.limit
        if match is None:
            return None
        if _AFTER_STRING.match(self._text, match.end()) or self._space_ends(match.end()) == limit:
            return match.end()
        if match.end() <= limit:
            self._flaw(f"more text follows the end of a string; write a {quote} inside of one as \\{quote}")
        return None

    def _space_ends(self, position: int) -> int:
        match = _SPACE.match(self._text, position)
        return match.end() if match else position

    def _open_string(self, start: int) -> None:
        """Reads a string without a closing quote: it ends at the boundary, or before the final closing brackets."""
        limit = self._scanner.limit
        inner = self._text[start + 1 : limit].rstrip().removesuffix("```").rstrip()
        body = inner.rstrip("}] \t\r\n")
        closers = "".join(inner[len(body) :].split())
        self._candidate.repairs.add(Repair.OPEN_STRINGS)
        may_hold_brackets = bool(closers) and ("{" in body or "[" in body)
        whole = closers in ("", self._missing_closers()) and not may_hold_brackets
        if not whole:
            self._flaw("a string is not closed, and its end is not clear")
        self._position = limit
        self._add_string(body if closers else inner)
        for bracket in closers:
            self._closer(bracket)

    def _missing_closers(self) -> str:
        return "".join(_CLOSERS[bracket] for bracket in reversed(self._open[: JSON_DEPTH_MAX + 1]))

    def _add_string(self, inner: str) -> None:
        if _has_control_characters(inner):
            self._candidate.repairs.add(Repair.CONTROL_CHARACTERS)
        self._may_end = True
        try:
            # Without this check, the search through a megabyte without escapes would block all threads for 10 ms.
            sound = _ESCAPE.sub(self._sound_escape, inner) if "\\" in inner or '"' in inner else inner
            self._add(Token(Mark.ATOM, read_string(sound)))
        except (UnsafeJsonError, json.JSONDecodeError) as error:
            self._flaw(str(error))

    def _sound_escape(self, match: re.Match[str]) -> str:
        if match["bare"]:
            return '\\"'
        kind = match.lastgroup or "lone"
        self._escapes.add(kind)
        if kind == "quote":
            # With literal backslashes, the first such quote ends the string.
            if self._may_end and _AFTER_STRING.match(match.string, match.end()):
                self._flaw(f"the quote in {match[0]} may end its string; write a backslash as \\\\")
            self._may_end = Repair.OPEN_STRINGS in self._candidate.repairs
        if kind == "lone" or match["quote"] == "'":
            self._candidate.repairs.add(Repair.INVALID_ESCAPES)
        if kind == "lone":
            return f"\\{match[0]}"
        return "'" if match["quote"] == "'" else match[0]


def _has_control_characters(text: str) -> bool:
    # A regular expression would block all threads for 9 ms per megabyte.
    encoded = text.encode("utf-8", "surrogatepass")
    return len(encoded.translate(None, _CONTROL_CHARACTERS)) < len(encoded)
