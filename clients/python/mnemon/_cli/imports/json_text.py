"""Reads the records of JSON lines, of one JSON list, or of an API's answer, each with its line.

Of JSON lines, it holds one line at a time; of any other JSON, the text and one record.
"""

import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TextIO, TypeVar

from mnemon._cli.encodings import is_wide
from mnemon._cli.imports.found import Damaged, LeftOut, Place, Raw, damaged
from mnemon._messages.convert import invalid
from mnemon.shared.errors import InvalidArgumentError

_Found = TypeVar("_Found")

LISTS = ("results", "memories", "items", "edges", "facts", "data")
"""Keys of an API response that hold its records."""
_GRAPH = frozenset({"entities", "relations"})
"""Both lists of a knowledge graph hold records."""
_NAMES = frozenset({"id", "uuid", "key", "type"})
"""An object with one of these keys is a record itself."""
_COLUMNS = {"document": "documents", "metadata": "metadatas", "embedding": "embeddings"}
"""The lists in what Chroma's `get` returns, beside the one of ids."""

_SPACE = re.compile(r"[ \t\r\n]*")
_BAD_BYTES = re.compile("[\udc80-\udcff]")
_DECODER = json.JSONDecoder()


@contextmanager
def text_of(file: BinaryIO) -> Iterator[TextIO]:
    """The text of a file in UTF-8 or, with a byte order mark, in UTF-16. Bytes that are not UTF-8 become surrogates."""
    is_utf16 = is_wide(file.read(2))
    file.seek(0)
    encoding, errors = ("utf-16", "replace") if is_utf16 else ("utf-8-sig", "surrogateescape")
    text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
    try:
        yield text
    finally:
        text.detach()  # the file belongs to the caller


def has_bad_bytes(text: str) -> bool:
    """Whether the text was not valid UTF-8."""
    return not text.isascii() and _BAD_BYTES.search(text) is not None


def records(file: BinaryIO, lists: tuple[str, ...] = LISTS) -> Iterator[Raw | LeftOut | Damaged]:
    """The records of a file.

    `lists` are the keys under which an object may hold the records. Other lists of such an object are left out.
    """
    with text_of(file) as text:
        for part, line in _parts(text):
            yield from _Values(part, line).records(lists)


def each_record(
    file: BinaryIO, read: Callable[[Raw], Iterable[_Found]], lists: tuple[str, ...] = LISTS
) -> Iterator[_Found | LeftOut | Damaged]:
    """What `read` makes of each record. One that it refuses with InvalidArgumentError is damaged."""
    for raw in records(file, lists):
        if not isinstance(raw, Raw):
            yield raw
            continue
        try:
            yield from read(raw)
        except InvalidArgumentError as error:
            yield damaged(raw, error)


def _parts(text: TextIO) -> Iterator[tuple[str, int]]:
    """The lines of JSON lines, or all of the text; each with the number of its first line."""
    lines = zip(text, itertools.count(1), strict=False)
    for line, number in lines:
        if line.strip() and _begins_a_text(line):
            rest = text.read()
            if not _is_json(rest.lstrip().partition("\n")[0]):
                yield line + rest, number
                return
            # JSON lines, of which the first one is damaged.
            lines = zip(io.StringIO(rest, newline=""), itertools.count(number + 1), strict=False)
        yield line, number
        if line.strip():
            break
    yield from lines


def _begins_a_text(line: str) -> bool:
    """Whether the first line begins a list, or an object that goes on."""
    return line.lstrip()[0] == "[" or (line.lstrip()[0] == "{" and not _is_json(line))


class _DamageError(Exception):
    """Text that is not JSON."""

    def __init__(self, place: Place, said: str) -> None:
        super().__init__(said)
        self.place = place


class _Values:
    """The JSON values of a text, one after another."""

    def __init__(self, text: str, line: int) -> None:
        # Report an error at the end in the last non-blank line.
        self._text, self._at, self._line = text.rstrip(), 0, line
        self._item = 0

    def records(self, lists: tuple[str, ...]) -> Iterator[Raw | LeftOut | Damaged]:
        """The records, up to the first damage."""
        try:
            while first := self._peek():
                yield from self._items() if first == "[" else self._held(lists)
        except _DamageError as damage:
            yield Damaged(damage.place, invalid("line", f"is not JSON: {damage}"))

    def _held(self, lists: tuple[str, ...]) -> Iterator[Raw | LeftOut | Damaged]:
        """The records of the next value: itself, or those inside an API response or a knowledge graph."""
        start, line = self._at, self._line
        found = self._value()
        if isinstance(found, dict) and isinstance(ids := found.get("ids"), list):
            yield from (Raw(Place(line, number), row) for number, row in enumerate(_rows(found, ids), start=1))
        elif isinstance(found, dict) and (held := _lists_of(found, lists)):
            self._at, self._line = start, line
            yield from self._members(held)
        else:
            yield self._raw(Place(line), found, start)

    def _members(self, held: Collection[str]) -> Iterator[Raw | LeftOut | Damaged]:
        """The items of the given lists of the object that starts here; other lists are skipped."""
        self._expect("{")
        while self._peek() != "}":
            name = self._value()
            self._expect(":")
            place, is_list = Place(self._line), self._peek() == "["
            if is_list and name in held:
                yield from self._items()
            elif (value := self._value()) and is_list:
                yield LeftOut(place, name, len(value))
            if self._peek() == ",":
                self._expect(",")
        self._expect("}")

    def _items(self) -> Iterator[Raw | Damaged]:
        """The items of the list that starts here."""
        self._expect("[")
        while self._peek() != "]":
            if self._item:
                self._expect(",")
                self._peek()
            self._item += 1
            place, start = Place(self._line, self._item), self._at
            yield self._raw(place, self._value(), start)
        self._item = 0
        self._expect("]")

    def _raw(self, place: Place, value: Any, start: int) -> Raw | Damaged:
        is_damaged = has_bad_bytes(self._text[start : self._at])
        return Damaged(place, invalid("line", "is not UTF-8")) if is_damaged else Raw(place, value)

    def _value(self) -> Any:
        """The next value. Raises _DamageError if it is not JSON."""
        self._peek()
        try:
            found, end = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._advance(error.pos)
            raise self._damage(error.msg) from error
        except RecursionError as error:
            raise self._damage("it is nested too deeply") from error
        self._advance(end)
        return found

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._damage(f"{character!r} is expected")
        self._at += 1

    def _peek(self) -> str:
        """The next non-space character; empty at the end."""
        found = _SPACE.match(self._text, self._at)
        self._advance(found.end() if found else self._at)
        return self._text[self._at : self._at + 1]

    def _advance(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _damage(self, said: str) -> _DamageError:
        column = self._at - self._text.rfind("\n", 0, self._at)
        return _DamageError(Place(self._line, self._item), f"column {column}: {said}")


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _lists_of(found: dict[str, Any], lists: tuple[str, ...]) -> Collection[str]:
    """The keys of an object that hold the records; empty if it is a record itself."""
    if not found.keys().isdisjoint(_NAMES):
        return ()
    if isinstance(found.get("entities"), list):
        return _GRAPH
    return [name for name in lists if isinstance(found.get(name), list)][:1]


def _rows(found: dict[str, Any], ids: list[Any]) -> Iterator[dict[str, Any]]:
    """The records of what Chroma's `get` returns: lists of one length."""
    given = {name: found.get(plural) for name, plural in _COLUMNS.items()}
    for number, record_id in enumerate(ids):
        cells = {name: cell[number] for name, cell in given.items() if isinstance(cell, list) and number < len(cell)}
        yield {"id": record_id, **cells}
