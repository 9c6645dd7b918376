"""Values of JSON as values of the fields that are no messages, as protobuf's JSON mapping lays down."""

import base64
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from mnemon_server.domain.records import WHOLE_MAX
from mnemon_server.transport.convert.shared.json_wire import NO_SURROGATES, exact

Convert = Callable[[Any], Any]
"""Returns what protobuf takes, or raises one of UNFIT; protobuf itself then checks ranges."""
TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
DURATION = r"-?(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,9})?s"
BASE64 = r"(?:[A-Za-z0-9+/_-]{4})*(?:[A-Za-z0-9+/_-]{2}(?:==)?|[A-Za-z0-9+/_-]{3}=?)?"
"""Both alphabets, with or without the padding."""

_DIGITS_MAX = 400
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_BASE64 = re.compile(BASE64)
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
FLOAT_MAX = 3.4028234663852886e38
"""The largest float of 32 bits."""

_WHOLE_NUMBER = "a whole number"
_NATURAL_NUMBER = "a whole number that is not negative"
_EXPECTED: Mapping[int, str] = {
    FieldDescriptor.CPPTYPE_INT32: _WHOLE_NUMBER,
    FieldDescriptor.CPPTYPE_INT64: _WHOLE_NUMBER,
    FieldDescriptor.CPPTYPE_UINT32: _NATURAL_NUMBER,
    FieldDescriptor.CPPTYPE_UINT64: _NATURAL_NUMBER,
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number that a double holds exactly",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
}
_RANGES: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


def conversion(field: FieldDescriptor) -> Convert:
    """The converter of one value of a field that is no message."""
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _single
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return _double
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _bool
    return _text if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else _whole


def key_conversion(field: FieldDescriptor) -> Callable[[str], Any]:
    """The converter of the names of an object that is a map, by the field of its keys."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _flag
    return _text if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else _whole


def expected(field: FieldDescriptor) -> str:
    """The values of such a field, in words."""
    if field.enum_type is not None:
        names = ", ".join(value.name for value in field.enum_type.values if value.number)
        return f"one of {names}"
    return "bytes in base64" if field.type == FieldDescriptor.TYPE_BYTES else _EXPECTED.get(field.cpp_type, "a text")


def problem(field: FieldDescriptor, error: Exception) -> str:
    """Says what is wrong with a value of such a field, from the error of its conversion or of protobuf."""
    if isinstance(error, UnicodeEncodeError):
        return NO_SURROGATES
    if (range_ := _RANGES.get(field.cpp_type)) and field.enum_type is None and not isinstance(error, TypeError):
        return f"must be {expected(field)}, {range_[0]:,} to {range_[1]:,}"
    return f"must be {expected(field)}"


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise TypeError
    return value


def _flag(name: str) -> bool:
    if name not in ("true", "false"):
        raise ValueError
    return name == "true"


def _bool(value: Any) -> Any:
    if type(value) is not bool:
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= _DIGITS_MAX:
        if _WHOLE.fullmatch(value):
            return int(value)
        if not _NUMBER.fullmatch(value):
            raise TypeError
        value = _double(value)
    if type(value) is not float or not value.is_integer():
        raise TypeError
    # From there on, a double may have been rounded from another number.
    if abs(value) >= WHOLE_MAX:
        raise OverflowError
    return int(value)


def _double(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return exact(value)
    if type(value) is not str or len(value) > _DIGITS_MAX:
        raise TypeError
    if (named := _NAMED.get(value)) is not None:
        return named
    if not _NUMBER.fullmatch(value):
        raise ValueError
    return exact(int(value) if _WHOLE.fullmatch(value) else float(value))


def _single(value: Any) -> float:
    # Rounded anyway.
    number = float(value) if type(value) is int else _double(value)
    if abs(number) > FLOAT_MAX and value not in _NAMED:
        raise ValueError
    return number


def _bytes(value: Any) -> bytes:
    if not _BASE64.fullmatch(_text(value)):
        raise ValueError
    return base64.urlsafe_b64decode(value.translate({43: "-", 47: "_"}) + "==")


def _enum(kind: EnumDescriptor) -> Convert:
    numbers = {value.name: value.number for value in kind.values}

    def convert(value: Any) -> int:
        number = numbers.get(value) if type(value) is str else None
        return _whole(value) if number is None else number

    return convert
