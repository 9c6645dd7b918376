"""Converts tables to documents: each row of a CSV file, each record of any JSON, each episode of a graph."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, BinaryIO

from mnemon._cli.imports.facts import key_of, time_of
from mnemon._cli.imports.found import Damaged, Found, Item, Place, Raw, as_object
from mnemon._cli.imports.json_text import each_record, has_bad_bytes, text_of
from mnemon._cli.imports.metadata import exact, metadata_of, shown
from mnemon._messages.convert import invalid
from mnemon._values.documents import Document
from mnemon.shared.errors import InvalidArgumentError

_IDS = ("doc_id", "id", "uuid", "key", "_id")
_TEXTS = ("content", "text", "body", "document", "memory", "note", "message")
_HEAD_CHARACTERS = 1 << 14
_HEAD_ROWS = 20
_CELL_CHARACTERS_MAX = 1 << 24
_OPEN_AT_THE_END = "unexpected end of data"
"""The error of `csv` for a quote that the end of the file leaves open."""


def csv_rows(file: BinaryIO, name: str) -> Iterator[Found]:
    """The rows of a CSV file whose first line names the columns.

    A row with a bad quote fails alone if it ends in its line. Otherwise the quote has taken lines that may have been
    rows, and nothing behind it is read.
    """
    csv.field_size_limit(_CELL_CHARACTERS_MAX)
    delimiter, rows, names = _delimiter(file_head(file)), _Rows(name, exact), list[str]()
    with text_of(file) as text:
        table = csv.reader(text, delimiter=delimiter, strict=True)
        while True:
            place = Place(table.line_num + 1)
            try:
                if (cells := next(table, None)) is None:
                    return
                if not names:
                    names = _unique(cells)
                elif any(map(str.strip, cells)):
                    yield rows.item(place, _named(names, cells))
            except csv.Error as error:
                is_open = table.line_num > place.line or str(error) == _OPEN_AT_THE_END
                said = "a quote begins here and is not closed, so nothing behind it is read" if is_open else error
                yield Damaged(place, invalid("line", f"is not CSV: {said}"))
                if is_open or not names:
                    return
            except InvalidArgumentError as error:
                yield Damaged(place, error)


def json_rows(file: BinaryIO, name: str) -> Iterator[Found]:
    """The objects of a file of JSON lines, or of a list."""
    rows = _Rows(name)
    return each_record(file, lambda raw: [rows.item(raw.place, as_object(raw))], ())


class _Rows:
    """Converts the rows of a file to documents. `value_of` converts the values of metadata."""

    def __init__(self, name: str, value_of: Callable[[Any], Any] = lambda value: value) -> None:
        self._name, self._value_of = name, value_of
        self._digests: dict[str, str] = {}
        """By the ids so far."""

    def item(self, place: Place, row: dict[str, Any]) -> Item:
        """The document of a row: its text, or all of its cells. Raises InvalidArgumentError if it is empty."""
        text_key, id_key = _first_key(row, _TEXTS, str), _first_key(row, _IDS, (str, int))
        said = "\n".join(f"{key}: {shown(value)}" for key, value in row.items() if value is not None)
        content = row[text_key] if text_key else said
        if not content.strip():
            raise invalid("row", "has no text")
        inner = row.get("metadata")
        spread = inner if isinstance(inner, Mapping) else {}
        rest = {key: value for key, value in row.items() if key not in (text_key, id_key) and value is not spread}
        metadata = metadata_of((key, self._value_of(value)) for key, value in {**rest, **spread}.items())
        row_id = self._id_of(row, id_key)
        return Item(place, Document(f"{self._name}/{row_id}", content, {"source": self._name, **metadata}))

    def _id_of(self, row: dict[str, Any], id_key: str) -> str:
        """The id of a row, or a digest; both, if an earlier row of other content has the id."""
        said = json.dumps(row, sort_keys=True, ensure_ascii=False)
        digest = blake2b(said.encode("utf-8", "replace"), digest_size=12).hexdigest()
        if not id_key:
            return digest
        row_id = str(row[id_key])
        return row_id if self._digests.setdefault(row_id, digest) == digest else f"{row_id}/{digest}"


def episode(raw: Raw) -> Iterator[Found]:
    """An episode of a graph of Graphiti: the text from which its facts were made."""
    record = as_object(raw)
    content = record.get("content", record.get("episode_body"))
    if not isinstance(content, str) or not content.strip():
        raise invalid("content", "must be the text of the episode")
    time = time_of(record, "valid_at") or time_of(record, "reference_time") or time_of(record, "created_at")
    named = [(name, record.get(name)) for name in ("name", "group_id", "source", "source_description")]
    yield Item(
        raw.place, Document(f"graphiti/{key_of(record, 'uuid')}", content, metadata_of([*named, ("time", time)]))
    )


def is_table(head: str) -> bool:
    """Whether a text begins with names of columns and rows with as many cells."""
    rows = [row for row in csv.reader(head.splitlines(keepends=True)[:_HEAD_ROWS], delimiter=_delimiter(head)) if row]
    # The last row may continue past the sample.
    names, *others = [[], *rows] if len(rows) < 2 else rows[:-1] if len(rows) > 2 else rows
    is_named = len(names) > 1 and all(map(str.strip, names)) and len(set(names)) == len(names)
    return is_named and bool(others) and all(len(row) == len(names) for row in others)


def file_head(file: BinaryIO) -> str:
    """The beginning of a file as text; the file is rewound."""
    with text_of(file) as text:
        head = text.read(_HEAD_CHARACTERS)
    file.seek(0)
    return head


def _delimiter(head: str) -> str:
    """The delimiter: whichever common one is most frequent in the first line."""
    return max(",;\t|", key=head.partition("\n")[0].count)


def _unique(names: list[str]) -> list[str]:
    """The column names; missing and repeated names are numbered."""
    found: list[str] = []
    for number, name in enumerate(map(str.strip, names), start=1):
        found.append(name if name and name not in found else f"{name or 'column'} {number}")
    return found


def _named(names: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) > len(names):
        raise invalid("row", f"has {len(cells)} cells, and the first line names {len(names)}")
    if any(map(has_bad_bytes, cells)):
        raise invalid("row", "is not UTF-8")
    return {name: cell for name, cell in zip(names, cells, strict=False) if cell.strip()}


def has_text(record: Mapping[str, Any]) -> bool:
    """Whether a record has a text under a usual name."""
    return bool(_first_key(record, _TEXTS, str))


def _first_key(row: Mapping[str, Any], names: tuple[str, ...], types: type | tuple[type, ...]) -> str:
    """The row's key that matches the first of the names, ignoring case, with a value of these types; else empty."""
    lower = {key.lower(): key for key in reversed(list(row))}
    found = ((lower[name], row[lower[name]]) for name in names if name in lower)
    return next((key for key, value in found if isinstance(value, types) and value != "" and value is not True), "")
