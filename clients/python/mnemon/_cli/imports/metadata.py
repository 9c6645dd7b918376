"""Converts the fields of other programs to metadata."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

from mnemon._cli.options import typed
from mnemon._values.documents import MetadataValue

_KEY_CHARACTERS_MAX = 64
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]+")
_WHOLE_MAX = 1 << 63
_NUMBER_CHARACTERS_MAX = 32
"""The longest text that can be a number in metadata."""
_BOOLEANS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}


def exact(text: str) -> bool | int | float | str:
    """The value of an untyped text: true or false, a number that prints as the same text, else the text.

    So `1.10` of a version and `12E5` of a part stay as they are.
    """
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    found = typed(text) if len(text) <= _NUMBER_CHARACTERS_MAX else text
    return found if isinstance(found, int | float) and repr(found) == text else text


def metadata_of(fields: Iterable[tuple[object, object]]) -> dict[str, MetadataValue]:
    """The fields as metadata without nulls. A name that cannot be a key is changed, numbered if the key is taken."""
    found: dict[str, MetadataValue] = {}
    for position, (name, value) in enumerate(fields, start=1):
        if value is not None:
            key = _key(str(name), position)
            found[key if key not in found else _key(f"{position}_{key}", position)] = _value(value)
    return found


def _key(name: str, position: int) -> str:
    key = _OTHER_CHARACTERS.sub("_", name.strip()).strip("_") or f"field_{position}"
    return (key if key[0].isalpha() or key[0] == "_" else f"_{key}")[:_KEY_CHARACTERS_MAX]


def _value(value: object) -> MetadataValue:
    match value:
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case int() if abs(value) >= _WHOLE_MAX:
            return str(value)
        case str() | bool() | int() | float():
            return value
        case list() if not any(isinstance(each, list | Mapping) for each in value):
            return [shown(each) if isinstance(each, bool) else str(each) for each in value if each is not None]
    return shown(value)


def shown(value: object) -> str:
    """A value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
