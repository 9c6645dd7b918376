"""JSON text as the bytes of a google.protobuf.Struct, without the objects and messages in between.

A list of small values takes twenty to thirty times its text as Python objects, and as much again as messages. Here a
value is written as it is read.
"""

import re
from collections.abc import Callable
from json.decoder import JSONDecoder
from struct import Struct

from mnemon_server.transport.convert.shared.wire import field_start

# Fields of google.protobuf.Value, ListValue, Struct, and of an entry of its map.
_STRING, _STRUCT, _LIST = 3, 5, 6
_ITEM, _ENTRY, _ENTRY_KEY, _ENTRY_VALUE = 1, 1, 1, 2
_NULL, _FALSE, _TRUE = b"\x08\x00", b"\x20\x00", b"\x20\x01"
_LITERALS = {"n": ("null", _NULL), "t": ("true", _TRUE), "f": ("false", _FALSE)}

_number_value: Callable[[int, float], bytes] = Struct("<Bd").pack
_number_item: Callable[[bytes, float], bytes] = Struct("<3sd").pack
_NUMBER_START, _NUMBER_ITEM_START = 0x11, b"\x0a\x09\x11"
_scan_string: Callable[[str, int], tuple[str, int]] = JSONDecoder().parse_string  # type: ignore[attr-defined]
"""Reads from after the opening quote; returns the string and the place after the closing one."""
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_NUMBERS = re.compile(r"(?:-?[0-9][0-9.eE+-]*,){8,1024}")
"""Many numbers of a list, which are read together."""
_SHORT = re.compile(r'"([^"\\]{0,256})"')


def struct_bytes(text: str) -> bytes:
    """The bytes of the Struct that holds a JSON object. Raises IndexError or ValueError if the text is not one."""
    body, end = _object(text, _after(text, 0, "{"))
    if text[end:].strip():
        raise ValueError("there is text after the object")
    return bytes(body)


def _value(text: str, at: int) -> tuple[bytes | bytearray, int]:
    """The bytes of the Value that begins here, and where it ends."""
    first = text[at]
    if first == '"':
        content, end = _string(text, at)
        return field_start(_STRING, len(content)) + content, end
    if first == "{":
        body, end = _object(text, at + 1)
        return field_start(_STRUCT, len(body)) + body, end
    if first == "[":
        body, end = _list(text, at + 1)
        return field_start(_LIST, len(body)) + body, end
    if first in _LITERALS:
        name, literal = _LITERALS[first]
        if not text.startswith(name, at):
            raise ValueError(f"a value is expected at {at}")
        return literal, at + len(name)
    number = _NUMBER.match(text, at)
    if number is None:
        raise ValueError(f"a value is expected at {at}")
    return _number_value(_NUMBER_START, float(number[0])), number.end()


def _object(text: str, at: int) -> tuple[bytearray, int]:
    """The fields of a Struct, from after the opening brace to after the closing one."""
    body = bytearray()
    at = _skip(text, at)
    while text[at] != "}":
        key, at = _string(text, at)
        at = _skip(text, _after(text, at, ":"))
        value, at = _value(text, at)
        key_start, value_start = field_start(_ENTRY_KEY, len(key)), field_start(_ENTRY_VALUE, len(value))
        body += field_start(_ENTRY, len(key_start) + len(key) + len(value_start) + len(value))
        body += key_start
        body += key
        body += value_start
        body += value
        at = _next(text, at, "}")
    return body, at + 1


def _list(text: str, at: int) -> tuple[bytearray, int]:
    """The values of a ListValue, from after the opening bracket to after the closing one."""
    body = bytearray()
    at = _skip(text, at)
    while text[at] != "]":
        if numbers := _NUMBERS.match(text, at):
            body += b"".join([_number_item(_NUMBER_ITEM_START, float(one)) for one in numbers[0].split(",")[:-1]])
            at = numbers.end()
            continue
        value, at = _value(text, at)
        body += field_start(_ITEM, len(value))
        body += value
        at = _next(text, at, "]")
    return body, at + 1


def _string(text: str, at: int) -> tuple[bytes, int]:
    if plain := _SHORT.match(text, at):
        return plain[1].encode(), plain.end()
    # In a long one the expression would take milliseconds for a megabyte, and no thread runs meanwhile.
    end = text.find('"', at + 1)
    if text[at] == '"' and end > 0 and text.find("\\", at, end) < 0:
        return text[at + 1 : end].encode(), end + 1
    content, end = _scan_string(text, _after(text, at, '"'))
    return content.encode(), end


def _next(text: str, at: int, end: str) -> int:
    """Where the next item begins, after a comma, or where the closing bracket is."""
    at = _skip(text, at)
    return at if text[at] == end else _skip(text, _after(text, at, ","))


def _after(text: str, at: int, mark: str) -> int:
    at = _skip(text, at)
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at {at}")
    return at + 1


def _skip(text: str, at: int) -> int:
    if text[at] not in " \t\n\r":
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at
