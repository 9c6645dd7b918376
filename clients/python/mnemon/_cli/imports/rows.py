"""Converts tables to documents: each row of a CSV file, each record of any JSON, each episode of a graph."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, BinaryIO

from mnemon._cli.imports.facts import key_of, time_of
from mnemon._cli.imports.found import Damaged, Found, Item, Place, Raw, as_object, damaged
from mnemon._cli.imports.json_text import has_bad_bytes, records, text_of
from mnemon._cli.imports.metadata import metadata_of, shown
from mnemon._cli.options import typed
from mnemon._errors import InvalidArgumentError
from mnemon._messages.documents import invalid
from mnemon._values.documents import Document

_IDS = ("doc_id", "id", "uuid", "key", "_id")
_TEXTS = ("content", "text", "body", "document", "memory", "note", "message")
_HEAD_CHARACTERS = 1 << 14
_HEAD_ROWS = 20
_CELL_CHARACTERS_MAX = 1 << 24


def csv_rows(file: BinaryIO, name: str) -> Iterator[Found]:
    """The rows of a CSV file, whose first line has the names of the columns."""
    csv.field_size_limit(_CELL_CHARACTERS_MAX)
    delimiter = _delimiter(file_head(file))
    with text_of(file) as text:
        table = csv.reader(text, delimiter=delimiter)
        names = next(table, [])
        while True:
            place = Place(table.line_num + 1)
            try:
                if (cells := next(table, None)) is None:
                    return
                if any(map(str.strip, cells)):
                    yield _row(place, _named(names, cells), name, typed)
            except csv.Error as error:
                yield Damaged(place, invalid("line", f"is not CSV: {error}"))
                return
            except InvalidArgumentError as error:
                yield Damaged(place, error)


def json_rows(file: BinaryIO, name: str) -> Iterator[Found]:
    """The objects of a file of JSON lines, or of a list."""
    for raw in records(file, ()):
        if not isinstance(raw, Raw):
            yield raw
            continue
        try:
            yield _row(raw.place, as_object(raw), name)
        except InvalidArgumentError as error:
            yield damaged(raw, error)


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
    # The last row may go on behind the beginning.
    names, *others = [[], *rows] if len(rows) < 2 else rows[:-1] if len(rows) > 2 else rows
    is_named = len(names) > 1 and all(map(str.strip, names)) and len(set(names)) == len(names)
    return is_named and bool(others) and all(len(row) == len(names) for row in others)


def file_head(file: BinaryIO) -> str:
    """The beginning of a file as text; the file is at its beginning again."""
    with text_of(file) as text:
        head = text.read(_HEAD_CHARACTERS)
    file.seek(0)
    return head


def _delimiter(head: str) -> str:
    """The character between cells: the most frequent one of those that programs use, in the first line."""
    return max(",;\t|", key=head.partition("\n")[0].count)


def _named(names: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) > len(names):
        raise invalid("row", f"has {len(cells)} cells, and the first line names {len(names)}")
    if any(map(has_bad_bytes, cells)):
        raise invalid("row", "is not UTF-8")
    given = (
        (name.strip() or f"column {number}", cell)
        for number, (name, cell) in enumerate(zip(names, cells, strict=False), 1)
    )
    return {name: cell for name, cell in given if cell.strip()}


def _row(place: Place, row: dict[str, Any], name: str, value_of: Callable[[Any], Any] = lambda cell: cell) -> Found:
    """The document of a row: its text, or all of its cells; and its id, or a digest of the row."""
    text_key, id_key = _first_key(row, _TEXTS, str), _first_key(row, _IDS, (str, int))
    content = (
        row[text_key] if text_key else "\n".join(f"{key}: {shown(row[key])}" for key in row if row[key] is not None)
    )
    if not content.strip():
        raise invalid("row", "has no text")
    said = json.dumps(row, sort_keys=True, ensure_ascii=False)
    row_id = row[id_key] if id_key else blake2b(said.encode("utf-8", "replace"), digest_size=12).hexdigest()
    inner = row.get("metadata")
    spread = inner if isinstance(inner, Mapping) else {}
    rest = {key: value_of(value) for key, value in row.items() if key not in (text_key, id_key) and value is not spread}
    metadata = {"source": name, **metadata_of({**rest, **spread}.items())}
    return Item(place, Document(f"{name}/{row_id}", content, metadata))


def has_text(record: Mapping[str, Any]) -> bool:
    """Whether a record has a text under a usual name."""
    return bool(_first_key(record, _TEXTS, str))


def _first_key(row: Mapping[str, Any], names: tuple[str, ...], types: type | tuple[type, ...]) -> str:
    """The key of the row that is the first of the names, in any case, with a value of these types; else empty."""
    lower = {key.lower(): key for key in reversed(list(row))}
    found = ((lower[name], row[lower[name]]) for name in names if name in lower)
    return next((key for key, value in found if isinstance(value, types) and value != "" and value is not True), "")
