"""Converts JSON objects to protobuf messages, which have no whole numbers, and back."""

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

from mnemon._arguments import plain
from mnemon._messages.convert import invalid, text

LEVELS_MAX = 32
WHOLE_MAX = 2**53
"""Doubles are exact for whole numbers up to this one, positive or negative."""


def object_to_pb(field: str, given: object) -> struct_pb2.Struct:
    """A JSON object as a message. Raises InvalidArgumentError, with the path, for an invalid value."""
    message = struct_pb2.Struct()
    _fill_object(message, field, given, LEVELS_MAX)
    return message


def object_from_pb(message: struct_pb2.Struct) -> dict[str, Any]:
    """The JSON object of a message, its keys sorted; a double that is a whole number within 2^53 becomes one."""
    # A message has no order, and a different order each time would defeat prompt caches.
    return {key: _value_from_pb(value) for key, value in sorted(message.fields.items())}


def _fill_object(message: struct_pb2.Struct, place: str, given: object, levels: int) -> None:
    if not isinstance(given, Mapping):
        raise invalid(place, f"must be an object with texts as keys, not {type(given).__name__}")
    if not levels:
        raise invalid(place, f"is too deep: objects and lists go {LEVELS_MAX} levels deep at most")
    # An empty object must be present, too.
    message.SetInParent()
    for key, value in given.items():
        _fill(message.fields[text(f"{place} key", key)], f"{place}.{key}", value, levels - 1)


def _fill(message: struct_pb2.Value, place: str, given: object, levels: int) -> None:
    match given := plain(given):
        case None:
            message.null_value = struct_pb2.NULL_VALUE
        case bool():
            message.bool_value = given
        case int() if not -WHOLE_MAX <= given <= WHOLE_MAX:
            raise invalid(place, "must be within 2^53, either way; write a larger number as text")
        case float() if not math.isfinite(given):
            raise invalid(place, "must be finite")
        case int() | float():
            message.number_value = given
        case str():
            message.string_value = text(place, given)
        case Mapping():
            _fill_object(message.struct_value, place, given, levels)
        case list() | tuple():
            _fill_list(message.list_value, place, given, levels)
        case _:
            raise invalid(place, f"must be what JSON can hold, not {type(given).__name__}")


def _fill_list(
    message: struct_pb2.ListValue, place: str, given: list[object] | tuple[object, ...], levels: int
) -> None:
    if not levels:
        raise invalid(place, f"is too deep: objects and lists go {LEVELS_MAX} levels deep at most")
    message.SetInParent()
    for index, value in enumerate(given):
        _fill(message.values.add(), f"{place}[{index}]", value, levels - 1)


def _value_from_pb(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and -WHOLE_MAX <= number <= WHOLE_MAX else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return object_from_pb(value.struct_value)
        case "list_value":
            return [_value_from_pb(each) for each in value.list_value.values]
    return None
