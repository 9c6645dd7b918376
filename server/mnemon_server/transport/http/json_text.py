"""JSON text as Python values, in steps, so that other calls are served while a large text is read.

Python's own reader reads a whole text in one step, in which no other thread runs: 10 ms for 2 MiB.
"""

import codecs
import re
from collections.abc import Generator
from json.decoder import JSONDecodeError, JSONDecoder
from time import thread_time
from typing import Any, NoReturn, TypeVar

from mnemon_server.transport.errors import MalformedMessageError

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may pause wherever it yields, and returns its result."""

STEP_S = 0.0005
"""The processor time of a step."""
VALUES_MAX = 1 << 17
"""The same number as fields in a protobuf message."""
LEVELS_MAX = 100
"""How deep lists and objects may be inside of each other."""
SPACES_MAX, NUMBER_CHARS_MAX = 4_096, 400
"""Of white space in a row, and of a number: both are read in one step."""
COPIED_MAX = 256 << 10
"""A copy of more has a step of its own: in new memory, two megabytes take as long as three steps."""
RUN_CHARS = 64 << 10
"""Of a long text, so much is read at once: in a tenth of a millisecond."""
SMALL_BYTES = 4 << 10
"""Up to this size, Python's own reader takes as long as a step at most, and a third of the time."""
_LOOK_EVERY = 32
"""Values between two looks at the clock."""
_SHOWN_MAX = 200

_SPACE = " \t\n\r"
_SPACES = re.compile(rf"[{_SPACE}]{{0,{SPACES_MAX}}}")
_SHORT = re.compile(r'"([^"\\\x00-\x1f]{0,128})"')
_ESCAPES = re.compile(r'(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]){1,256}')
"""The halves of a surrogate pair stay together."""
_NUMBERS = re.compile(
    r"(?:-?(?:0|[1-9][0-9]{0,20})(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,3})?[ \t\n\r]{0,4},[ \t\n\r]{0,4}){8,256}"
)
"""Many numbers of a list, which are read together."""


class Step:
    """Says when the time of a step is over. After that, the next one begins."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def is_over(self) -> bool:
        """Whether to pause. Takes as long as a small value."""
        now = thread_time()
        if self._until is None:
            self._until = now + STEP_S
        elif now > self._until:
            self._until = None
            return True
        return False


def object_of(text: bytes, step: Step) -> Steps[dict[str, Any]]:
    """The object that a text describes, as `json.loads` reads it; but NaN and Infinity are no numbers of JSON.

    Raises:
        MalformedMessageError: it is not JSON, or not an object, or names a member twice, or exceeds one of the limits
            above.
    """
    if len(text) <= SMALL_BYTES:
        try:
            found: Any = _SMALL.decode(text.decode())
        except (ValueError, RecursionError):
            pass  # What is wrong is said below.
        else:
            if isinstance(found, dict):
                return found
    decoded = yield from _decoded(text, step)
    try:
        value = yield from _Text(decoded, step).read()
    except ValueError as error:
        raise MalformedMessageError(f"the body is not JSON: {error}"[:_SHOWN_MAX]) from None
    except IndexError:
        empty = not decoded.strip()
        reason = "the body is empty; an empty request is {}" if empty else "the body is not JSON: it ends too early"
        raise MalformedMessageError(reason) from None
    if not isinstance(value, dict):
        raise MalformedMessageError("the body must be a JSON object")
    return value


def _decoded(text: bytes, step: Step) -> Steps[str]:
    try:
        if len(text) <= RUN_CHARS:
            return text.decode()
        if text.isascii():
            decoded = text.decode("ascii")
        else:
            decoder, pieces = codecs.getincrementaldecoder("utf-8")(), []
            for start in range(0, len(text), RUN_CHARS):
                end = start + RUN_CHARS
                pieces.append(decoder.decode(text[start:end], final=end >= len(text)))
                if step.is_over():
                    yield
            if len(text) > COPIED_MAX:
                yield
            decoded = "".join(pieces)
        if len(decoded) > COPIED_MAX:
            yield
        return decoded
    except UnicodeDecodeError:
        raise MalformedMessageError("the body is not UTF-8") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("members are named twice")
    return found


_SMALL: Any = JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)
_scan_string, _scan = _SMALL.parse_string, _SMALL.scan_once


class _Text:
    """A text that is read from its beginning to its end. Raises IndexError if it ends before its value does."""

    def __init__(self, text: str, step: Step) -> None:
        self._text, self._step = text, step
        self._left, self._look_at = VALUES_MAX, VALUES_MAX
        """How many values may follow, and with how many left to look at the clock."""

    def read(self) -> Steps[Any]:
        """The only value."""
        value, at = yield from self._slow(self._skip(0), LEVELS_MAX)
        if at < len(self._text) and self._spaces(at) < len(self._text):
            raise JSONDecodeError("nothing may follow", self._text, at)
        return value

    def _quick(self, at: int) -> tuple[Any, int]:
        """The value that begins here, and where it ends: 0 if it is an object, a list or a long text."""
        if (short := _SHORT.match(self._text, at)) is not None:
            return short[1], short.end()
        return (None, 0) if self._text[at] in '{["' else self._literal(at)

    def _slow(self, at: int, levels: int) -> Steps[tuple[Any, int]]:
        """The same for every value."""
        first = self._text[at]
        if first == '"':
            return (yield from self._string(at + 1))
        if first not in "{[":
            return self._literal(at)
        if not levels:
            raise MalformedMessageError(f"the body is more than {LEVELS_MAX} levels deep")
        return (yield from (self._object if first == "{" else self._list)(at, levels - 1))

    def _object(self, at: int, levels: int) -> Steps[tuple[Any, int]]:
        found: dict[str, Any] = {}
        at, more = self._begin(at, "}")
        while more:
            if self._text[at] != '"':
                raise JSONDecodeError("a name in quotes is expected", self._text, at)
            name, end = self._quick(at)
            if not end:
                name, end = yield from self._string(at + 1)
            if name in found:
                raise MalformedMessageError(f"the body has duplicate members: {name}"[:_SHOWN_MAX])
            at = self._skip(self._after(self._skip(end), ":"))
            found[name], end = self._quick(at)
            if not end:
                found[name], end = yield from self._slow(at, levels)
            if self._is_due(1):
                yield
            at, more = self._next(end, "}")
        return found, at

    def _list(self, at: int, levels: int) -> Steps[tuple[Any, int]]:
        found: list[Any] = []
        at, more = self._begin(at, "]")
        while more:
            if (run := _NUMBERS.match(self._text, at)) is not None:
                numbers = _scan(f"[{run[0].rstrip(_SPACE)[:-1]}]", 0)[0]
                found += numbers
                at = run.end()
                if self._is_due(len(numbers)):
                    yield
            value, end = self._quick(at)
            if not end:
                value, end = yield from self._slow(at, levels)
            found.append(value)
            if self._is_due(1):
                yield
            at, more = self._next(end, "]")
        return found, at

    def _string(self, at: int) -> Steps[tuple[str, int]]:
        """A text, from after the opening quote to after the closing one. What has no escapes is copied once."""
        text, pieces, quote, plain, begin = self._text, list[str](), -1, at, at
        while True:
            if quote < at and (quote := text.find('"', at)) < 0:
                raise IndexError
            stop = min(quote, at + RUN_CHARS)
            escape = text.find("\\", at, stop)
            self._unescaped(at, stop if escape < 0 else escape)
            at = stop
            if escape >= 0:
                if (escapes := _ESCAPES.match(text, escape)) is None:
                    raise JSONDecodeError("this is no escape of JSON", text, escape)
                at = escapes.end()
                pieces += (text[plain:escape], self._unescaped(escape, at))
                plain = at
            elif stop == quote:
                if is_long := quote - begin > COPIED_MAX:
                    yield
                pieces.append(text[plain:quote])
                found = "".join(pieces)
                if is_long:
                    yield
                return found, quote + 1
            if self._step.is_over():
                yield

    def _unescaped(self, at: int, end: int) -> str:
        try:
            found: str = _scan_string(self._text[at:end] + '"', 0)[0]
        except ValueError:
            raise JSONDecodeError("control characters must be escaped", self._text, at) from None
        return found

    def _literal(self, at: int) -> tuple[Any, int]:
        """A number, true, false or null."""
        try:
            value, length = _scan(self._text[at : at + NUMBER_CHARS_MAX], 0)
        except StopIteration:
            raise JSONDecodeError("a value is expected", self._text, at) from None
        return value, at + length

    def _begin(self, at: int, end: str) -> tuple[int, bool]:
        """Where the first item after an opening bracket begins; if the list is empty, where it ends, and that it is."""
        at = self._skip(at + 1)
        return (at + 1, False) if self._text[at] == end else (at, True)

    def _next(self, at: int, end: str) -> tuple[int, bool]:
        """The same for the next item."""
        at = self._skip(at)
        return (at + 1, False) if self._text[at] == end else (self._skip(self._after(at, ",")), True)

    def _after(self, at: int, mark: str) -> int:
        if self._text[at] != mark:
            raise JSONDecodeError(f"{mark!r} is expected", self._text, at)
        return at + 1

    def _skip(self, at: int) -> int:
        return at if self._text[at] not in _SPACE else self._spaces(at)

    def _spaces(self, at: int) -> int:
        end = _SPACES.match(self._text, at).end()  # type: ignore[union-attr] # it matches nothing, too
        if end - at == SPACES_MAX:
            raise MalformedMessageError(f"the body has {SPACES_MAX:,} spaces in a row")
        return end

    def _is_due(self, count: int) -> bool:
        """Counts values; whether to pause after them."""
        self._left -= count
        if self._left < 0:
            raise MalformedMessageError(f"the body has more than {VALUES_MAX:,} values")
        if self._left > self._look_at:
            return False
        self._look_at = self._left - _LOOK_EVERY
        return self._step.is_over()
