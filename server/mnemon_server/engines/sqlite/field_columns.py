"""The columns of a collection's own fields: their types, and the conversion of values in both directions."""

import json
from collections.abc import Callable
from typing import Any

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.documents import FieldValue

COLUMN_TYPES = {
    FieldType.TEXT: "TEXT NOT NULL DEFAULT ''",
    FieldType.BOOLEAN: "INTEGER",
    FieldType.TIME: "INTEGER",
    FieldType.NUMBER: "REAL",
    FieldType.TEXTS: "TEXT NOT NULL DEFAULT '[]'",
}
"""Times are microseconds. Lists of texts are JSON, encoded so that equal lists have equal texts."""


def encode_texts(texts: Any) -> str:
    """A list of texts as stored in a column."""
    return _LIST_JSON.encode(texts) if texts else "[]"


def _decode_texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()


def _nullable(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_LIST_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

ENCODERS: dict[FieldType, Callable[[FieldValue], Any]] = {
    FieldType.TEXT: lambda value: value or "",
    FieldType.BOOLEAN: _nullable(int),
    FieldType.TIME: _nullable(to_microseconds),
    FieldType.NUMBER: _nullable(float),
    FieldType.TEXTS: encode_texts,
}
"""Converts the value of a field to that of its column."""

DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.TEXT: str,
    FieldType.BOOLEAN: _nullable(bool),
    FieldType.TIME: _nullable(from_microseconds),
    FieldType.NUMBER: _nullable(float),
    FieldType.TEXTS: _decode_texts,
}
"""Converts the value of a column to that of its field."""
