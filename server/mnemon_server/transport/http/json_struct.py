"""Values of JSON as the bytes of `google.protobuf.Struct`, `Value` and `ListValue`, which hold any JSON."""

from collections.abc import Callable
from struct import Struct
from typing import Any

from mnemon_server.transport.convert.shared.wire import field_start
from mnemon_server.transport.http.json_reading import TOO_DEEP, Path, Reading, object_problem, utf8
from mnemon_server.transport.http.json_scalars import NOT_EXACT, UNFIT, exact
from mnemon_server.transport.http.json_text import Steps

_LOOK_EVERY = 32
"""Values between two looks at the clock."""
# Fields of google.protobuf.Value, ListValue, Struct, and of an entry of a map.
_STRING, _STRUCT, _LIST, _ITEM, _ENTRY, _KEY, _VALUE = 3, 5, 6, 1, 1, 1, 2
_NULL, _FALSE, _TRUE = b"\x08\x00", b"\x20\x00", b"\x20\x01"
_number: Callable[[int, float], bytes] = Struct("<Bd").pack
_NUMBER_START = 0x11


def read_struct(reading: Reading, value: Any, path: Path, levels: int) -> Steps[bytes]:
    """A Struct: any object."""
    if not isinstance(value, dict) or levels < 0:
        reading.note(path, object_problem(value))
        return b""
    body = bytearray()
    for count, (name, item) in enumerate(value.items()):
        at = path, f".{name}"
        content = yield from read_value(reading, item, at, levels - 2)
        try:
            key = name.encode()
        except UnicodeEncodeError:
            reading.note(at, "must have another name")
            continue
        body += _entry(key, content)
        if count % _LOOK_EVERY == 0 and reading.step.is_over():
            yield
    return bytes(body)


def read_list(reading: Reading, value: Any, path: Path, levels: int) -> Steps[bytes]:
    """A ListValue: any list."""
    if not isinstance(value, list) or levels < 0:
        reading.note(path, "must be a list" if levels >= 0 else TOO_DEEP)
        return b""
    body = bytearray()
    for index, item in enumerate(value):
        content = yield from read_value(reading, item, (path, f"[{index}]"), levels - 1)
        body += field_start(_ITEM, len(content)) + content
        if index % _LOOK_EVERY == 0 and reading.step.is_over():
            yield
    return bytes(body)


def read_value(reading: Reading, value: Any, path: Path, levels: int) -> Steps[bytes]:
    """A Value: anything."""
    kind = type(value)
    if levels < 0:
        reading.note(path, TOO_DEEP)
    elif kind is str:
        text = yield from utf8(reading, value, path)
        return field_start(_STRING, len(text)) + text
    elif kind is dict:
        content = yield from read_struct(reading, value, path, levels - 1)
        return field_start(_STRUCT, len(content)) + content
    elif kind is list:
        content = yield from read_list(reading, value, path, levels - 1)
        return field_start(_LIST, len(content)) + content
    elif kind is int or kind is float:
        try:
            return _number(_NUMBER_START, exact(value))
        except UNFIT:
            reading.note(path, NOT_EXACT if kind is int else "must be a number that a double can hold")
    else:
        return _NULL if value is None else _TRUE if value else _FALSE
    return b""


def _entry(key: bytes, content: bytes) -> bytes:
    """An entry of a map."""
    start, middle = field_start(_KEY, len(key)), field_start(_VALUE, len(content))
    return field_start(_ENTRY, len(start) + len(key) + len(middle) + len(content)) + start + key + middle + content
