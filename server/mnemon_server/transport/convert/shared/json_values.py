"""Conversion of JSON objects between messages and the values that Python's `json` reads. Both directions.

A message has no whole numbers. A double that is whole, within 2^53 either way, becomes one, so that 5 comes back as 5.
"""

from collections.abc import Callable, Mapping, Sized
from typing import Any

from google.protobuf import struct_pb2 as pb

from mnemon_server.domain.records import WHOLE_MAX
from mnemon_server.transport.convert.shared.reader import Reader

OBJECT_BYTES_MAX = 3 << 20
"""The size of an object as a message, which an answer has room for: a number takes 11 bytes there, and 2 as JSON."""
VALUES_MAX = 100_000
"""Values of an object, nested ones included: a million empty lists are a small text, but take much memory."""


def object_from_pb(message: pb.Struct, values_max: int = VALUES_MAX) -> dict[str, Any]:
    """The object, its keys sorted. How deep it can be is bounded by what can be read as a message: 33 levels.

    Raises:
        ValueError: it is larger than OBJECT_BYTES_MAX, holds more than `values_max` values, or holds one that is unset;
            the text says which.
    """
    contents = _Contents(values_max)
    # The size of a message with a million entries takes long to compute.
    contents.count(message.fields)
    if message.ByteSize() > OBJECT_BYTES_MAX:
        raise ValueError(f"must be at most {OBJECT_BYTES_MAX:,} bytes as a message")
    return contents.members(message)


def read_object(reader: Reader, field: str, message: pb.Struct) -> dict[str, Any]:
    """The same; empty if it is invalid, and the reader has noted why."""
    try:
        return object_from_pb(message)
    except ValueError as error:
        reader.note(field, str(error))
        return {}


def fill_object(target: pb.Struct, value: Mapping[str, Any]) -> None:
    """Writes an object of JSON values into the field of a message; an empty one is set, too."""
    target.SetInParent()
    fields = target.fields
    for key, item in value.items():
        _fill_value(fields[key], item)


class _Contents:
    """Reads one object; counts the values of each list and object before it reads them."""

    def __init__(self, values_max: int) -> None:
        self._values_max = self._values_left = values_max
        self._readers: Mapping[str | None, Callable[[pb.Value], Any]] = {
            "string_value": lambda value: value.string_value,
            "number_value": _number,
            "struct_value": lambda value: self._object(value.struct_value),
            "list_value": lambda value: self._list(value.list_value),
            "bool_value": lambda value: value.bool_value,
            "null_value": lambda _: None,
            None: _refuse,
        }

    def count(self, values: Sized) -> None:
        """Raises ValueError if these are too many, together with those counted before."""
        self._values_left -= len(values)
        if self._values_left < 0:
            raise ValueError(f"must contain at most {self._values_max:,} values")

    def members(self, message: pb.Struct) -> dict[str, Any]:
        """The object of a message whose members have been counted."""
        # The keys of a message come in another order in every process.
        readers = self._readers
        return {key: readers[value.WhichOneof("kind")](value) for key, value in sorted(message.fields.items())}

    def _object(self, message: pb.Struct) -> dict[str, Any]:
        self.count(message.fields)
        return self.members(message)

    def _list(self, message: pb.ListValue) -> list[Any]:
        self.count(message.values)
        readers = self._readers
        return [readers[item.WhichOneof("kind")](item) for item in message.values]


def _number(value: pb.Value) -> int | float:
    number = value.number_value
    return int(number) if number.is_integer() and -WHOLE_MAX <= number <= WHOLE_MAX else number


def _refuse(_: pb.Value) -> Any:
    raise ValueError("must not contain an unset value; null is a value")


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
