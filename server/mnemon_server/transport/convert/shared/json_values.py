"""Conversion of JSON objects: between messages and what Python makes of JSON. Both directions.

A message knows no whole numbers; a double that is one within 2^53 either way becomes one, so that 5 comes back as 5.
"""

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import struct_pb2 as pb

OBJECT_BYTES_MAX = 6 << 20
"""Of a message: a number takes 11 bytes instead of 2, and nothing grows more, so that no object of 1 MiB is larger."""
_WHOLE_MAX = 2**53


def object_from_pb(message: pb.Struct) -> dict[str, Any]:
    """The object, its keys sorted. How deep it can be is bounded by what can be read as a message: 33 levels.

    Raises:
        ValueError: it is larger than OBJECT_BYTES_MAX, or a value in it is unset; the text says which.
    """
    if message.ByteSize() > OBJECT_BYTES_MAX:
        raise ValueError(f"must be at most {OBJECT_BYTES_MAX:,} bytes as a message")
    return _object(message)


def fill_object(target: pb.Struct, value: Mapping[str, Any]) -> None:
    """Writes an object of JSON values into the field of a message, also where it is empty."""
    target.SetInParent()
    fields = target.fields
    for key, item in value.items():
        _fill_value(fields[key], item)


def _object(message: pb.Struct) -> dict[str, Any]:
    # A message has no order, and reads in another one in every process.
    return {key: _READERS[value.WhichOneof("kind")](value) for key, value in sorted(message.fields.items())}


def _number(value: pb.Value) -> int | float:
    number = value.number_value
    return int(number) if number.is_integer() and -_WHOLE_MAX <= number <= _WHOLE_MAX else number


def _refuse(_: pb.Value) -> Any:
    raise ValueError("must hold no value that is unset; null is a value of its own")


_READERS: Mapping[str | None, Callable[[pb.Value], Any]] = {
    "string_value": lambda value: value.string_value,
    "number_value": _number,
    "struct_value": lambda value: _object(value.struct_value),
    "list_value": lambda value: [_READERS[item.WhichOneof("kind")](item) for item in value.list_value.values],
    "bool_value": lambda value: value.bool_value,
    "null_value": lambda _: None,
    None: _refuse,
}


def _fill_value(target: pb.Value, value: Any) -> None:
    match value:
        case str():
            target.string_value = value
        case bool():  # before int, which it also is
            target.bool_value = value
        case int() | float():
            target.number_value = value
        case None:
            target.null_value = pb.NULL_VALUE
        case Mapping():
            fill_object(target.struct_value, value)
        case _:
            target.list_value.SetInParent()
            add = target.list_value.values.add
            for item in value:
                _fill_value(add(), item)
