"""Values of JSON as the bytes of `google.protobuf.Struct`, `Value` and `ListValue`, without a message for each value.

A list of small values takes twenty to thirty times its text as Python objects, and as much again as messages.
"""

import json
import math
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NoReturn

from mnemon_server.transport.convert.shared.wire import field_start

Path = tuple[Any, str] | None
"""The place of a value: that of the value that it is in, and its name there."""
Note = Callable[[Path, str], None]
"""Hears of each value that has no bytes: its place, and the problem."""

UNFIT = (ValueError, TypeError, OverflowError)
"""The errors of a conversion, or of protobuf, if a field does not take a value."""
NOT_EXACT = "must be a number that a double holds exactly, as all are within 2^53; write a larger one as text"
NO_SURROGATES = "must be a text without halves of surrogate pairs"
TOO_DEEP = "is too deep"
_STORED_LEVELS_MAX = 500
"""The request that stored a value had fewer."""

# Fields of google.protobuf.Value, ListValue, Struct, and of an entry of a map.
_STRING, _STRUCT, _LIST, _ITEM, _ENTRY, _KEY, _VALUE = 3, 5, 6, 1, 1, 1, 2
_NULL, _FALSE, _TRUE = b"\x08\x00", b"\x20\x00", b"\x20\x01"
_number: Callable[[int, float], bytes] = Struct("<Bd").pack
_NUMBER_START = 0x11


def struct_bytes(text: str) -> bytes:
    """The Struct that holds a stored JSON object. Raises ValueError if the text is not one."""
    return object_bytes(_refuse, json.loads(text, parse_int=float), None, _STORED_LEVELS_MAX)


def object_bytes(note: Note, value: Any, path: Path, levels: int) -> bytes:
    """A Struct: any object, with so many levels below it."""
    if not isinstance(value, dict) or levels < 0:
        note(path, object_problem(value))
        return b""
    body = bytearray()
    for name, item in value.items():
        at = path, f".{name}"
        content = value_bytes(note, item, at, levels - 2)
        try:
            key = name.encode()
        except UnicodeEncodeError:
            note(at, "must have another name")
            continue
        start, middle = field_start(_KEY, len(key)), field_start(_VALUE, len(content))
        body += field_start(_ENTRY, len(start) + len(key) + len(middle) + len(content))
        body += start + key + middle
        body += content
    return bytes(body)


def list_bytes(note: Note, value: Any, path: Path, levels: int) -> bytes:
    """A ListValue: any list."""
    if not isinstance(value, list) or levels < 0:
        note(path, "must be a list" if levels >= 0 else TOO_DEEP)
        return b""
    body = bytearray()
    for index, item in enumerate(value):
        content = value_bytes(note, item, (path, f"[{index}]"), levels - 1)
        body += field_start(_ITEM, len(content))
        body += content
    return bytes(body)


def value_bytes(note: Note, value: Any, path: Path, levels: int) -> bytes:
    """A Value: anything."""
    kind = type(value)
    if levels < 0:
        note(path, TOO_DEEP)
    elif kind is str:
        return _text(note, value, path)
    elif kind is dict:
        content = object_bytes(note, value, path, levels - 1)
        return field_start(_STRUCT, len(content)) + content
    elif kind is list:
        content = list_bytes(note, value, path, levels - 1)
        return field_start(_LIST, len(content)) + content
    elif kind is int or kind is float:
        try:
            return _number(_NUMBER_START, exact(value))
        except UNFIT:
            note(path, NOT_EXACT if kind is int else "must be a number that a double can hold")
    else:
        return _NULL if value is None else _TRUE if value else _FALSE
    return b""


def exact(number: float) -> float:
    """The double of a number. Raises one of UNFIT unless it holds the number: an id must not change without a word."""
    found = float(number)
    if not math.isfinite(found) or (type(number) is int and int(found) != number):
        raise ValueError
    return found


def object_problem(value: Any) -> str:
    """The problem of a value that is no object, or too deep inside of others."""
    return TOO_DEEP if isinstance(value, Mapping) else "must be an object"


def _text(note: Note, text: str, path: Path) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        note(path, NO_SURROGATES)
        return b""
    return field_start(_STRING, len(content)) + content


def _refuse(path: Path, problem: str) -> NoReturn:
    raise ValueError(problem)
