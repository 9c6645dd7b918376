"""Messages as values of JSON, equal to those of protobuf's `json_format`, in a fraction of its time.

`json_format` asks the descriptor of every field of every message what to do. Here that is asked once for each type.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, lru_cache
from struct import Struct
from typing import Any

import orjson
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Convert = Callable[[Any], Any]

_PLAIN_PREFIX = "google.protobuf."
"""Types with a form of their own in JSON."""
_AS_TEXT = {f"{_PLAIN_PREFIX}{name}" for name in ("Duration", "FieldMask")}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all times are in UTC
_HOUR_S, _SECOND_NS = 3_600, 1_000_000_000
_HOURS_KEPT = 4_096
_TWO_DIGITS = [f"{number:02}" for number in range(60)]
"""To format a number takes three times as long."""
_INT64 = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_FLOAT32 = Struct("<f")
_DIGITS_MIN = 6
"""Every decimal number of so many digits survives as a float of 32 bits."""


dumped = orjson.dumps
"""A JSON value as text without line breaks."""


def text_of(message: Message) -> bytes:
    """A message as JSON text."""
    return dumped(written(message))


def written(message: Message) -> Any:
    """The value of JSON that a message is: an object, or what its type has instead."""
    return _of_type(message.DESCRIPTOR)(message)


class _Members(dict[int, tuple[str, Convert | None]]):
    """The fields of a type; each is made when it is first asked for, as types may contain themselves."""

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__()
        self._fields = descriptor.fields_by_number

    def __missing__(self, number: int) -> tuple[str, Convert | None]:
        field = self._fields[number]
        made = self[number] = field.json_name, _of_field(field)
        return made


@cache
def _members_of(descriptor: Descriptor) -> Mapping[int, tuple[str, Convert | None]]:
    """By the number of each field of such a type, its name, and what converts it; None if it stays as it is."""
    return _Members(descriptor)


@cache
def _of_type(descriptor: Descriptor) -> Convert:
    """The converter of messages of a type."""
    name = descriptor.full_name
    if name == f"{_PLAIN_PREFIX}Timestamp":
        return _time
    if name in _AS_TEXT:
        return lambda message: message.ToJsonString()
    if name == f"{_PLAIN_PREFIX}Struct":
        return lambda message: {key: _value(value) for key, value in message.fields.items()}
    if name == f"{_PLAIN_PREFIX}Value":
        return _value
    if name.startswith(_PLAIN_PREFIX):
        return json_format.MessageToDict
    return _object(_members_of(descriptor))


def _object(members: Mapping[int, tuple[str, Convert | None]]) -> Convert:
    """The converter of messages that become objects. A function, as one costs less to call than an object does."""

    def convert_all(message: Any) -> dict[str, Any]:
        found = {}
        for field, value in message.ListFields():
            name, convert = members[field.number]
            found[name] = value if convert is None else convert(value)
        return found

    return convert_all


def _of_field(field: FieldDescriptor) -> Convert | None:
    """The converter of a field's value; None if the value stays unchanged."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        convert = _of_one(field.message_type.fields_by_name["value"])
        return lambda entries: {_key(key): _converted(convert, entries[key]) for key in entries}
    convert = _of_one(field)
    if not field.is_repeated:
        return convert
    return list if convert is None else lambda values: [convert(value) for value in values]


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _of_one(field: FieldDescriptor) -> Convert | None:
    """The converter of one value of a field; None if the value stays unchanged."""
    if field.message_type is not None:
        return _of_type(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        is_null = field.enum_type.full_name == f"{_PLAIN_PREFIX}NullValue"
        return (lambda _: None) if is_null else lambda number: names.get(number, number)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.cpp_type in _INT64:
        return str
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _single
    return _double if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else None


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _single(value: float) -> float | str:
    """The shortest decimal number that is this float of 32 bits."""
    if not math.isfinite(value):
        return _double(value)
    digits = _DIGITS_MIN
    while True:
        short = float(f"{value:.{digits}g}")
        if digits > _DIGITS_MIN + 2 or _FLOAT32.unpack(_FLOAT32.pack(short))[0] == value:
            return short
        digits += 1


def _time(message: Any) -> str:
    """A `google.protobuf.Timestamp`: to the second, or with 3, 6 or 9 digits after it."""
    seconds, nanos = message.seconds, message.nanos
    try:
        begin = _begin(seconds // _HOUR_S)
    except OverflowError:
        begin = ""
    if not begin or not 0 <= nanos < _SECOND_NS:
        return str(message.ToJsonString())  # Which says what is wrong.
    text = f"{begin}{_TWO_DIGITS[seconds // 60 % 60]}:{_TWO_DIGITS[seconds % 60]}"
    if not nanos:
        return f"{text}Z"
    if nanos % 1_000:
        return f"{text}.{nanos:09}Z"
    return f"{text}.{nanos // 1_000:06}Z" if nanos % 1_000_000 else f"{text}.{nanos // 1_000_000:03}Z"


@lru_cache(_HOURS_KEPT)
def _begin(hour: int) -> str:
    """How the times of an hour begin; raises OverflowError outside of the years 1 to 9999."""
    return (_EPOCH + timedelta(hours=hour)).isoformat()[: len("2026-01-31T12:")]


def _value(message: Any) -> Any:
    """The value that a `google.protobuf.Value` holds."""
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "struct_value":
        return {key: _value(value) for key, value in message.struct_value.fields.items()}
    if kind == "list_value":
        return [_value(value) for value in message.list_value.values]
    value = getattr(message, kind)
    if kind == "number_value" and not math.isfinite(value):
        raise ValueError(f"JSON has no number for {value}")
    return value
