"""Boundary values of numeric types for every field of a message: fields, maps, and JSON inside texts.

The fields come from the descriptors, so a field that is added later is covered automatically.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

INT64 = (-(2**63), -1, 2**31, 2**53 - 1, 2**53, 2**63 - 1)
INT32 = (-(2**31), -1, 2**31 - 1)
FLOATS = (-1e308, 5e-324, 1e308, float("inf"), float("nan"))
SECONDS = (-62_135_596_801, -62_135_596_800, 253_402_300_799, 253_402_300_800, 2**63 - 1)
NANOS = (-1, 999_999_999, 10**9)
JSON = (*INT64, 10**400, 1e308)

_BORDERS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_DOUBLE: FLOATS,
    FieldDescriptor.TYPE_FLOAT: FLOATS,
}
_OTHERS = {
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_ENUM,
    FieldDescriptor.TYPE_MESSAGE,
}

Change = Callable[[Any], None]


def border_changes(message: Any) -> Iterator[tuple[str, Change]]:
    """A change for each boundary value of each number in a message, with its path. It can be applied to any copy.

    Unset messages are included. Of a list the first item is changed, of a map its entries.
    """
    for field in message.DESCRIPTOR.fields:
        assert field.type in _BORDERS or field.type in _OTHERS, f"{field.full_name} has a type without boundary values"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield from _of_map(message, field.name)
        elif field.is_repeated:
            if field.message_type is not None and len(getattr(message, field.name)):
                first = getattr(message, field.name)[0]
                yield from _inside(f"{field.name}[0]", first, lambda owner, name=field.name: getattr(owner, name)[0])
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            yield from _inside(field.name, inner, lambda owner, name=field.name: getattr(owner, name))
        elif field.type in _BORDERS:
            for value in _borders(message, field):
                yield f"{field.name} = {value}", lambda owner, n=field.name, v=value: setattr(owner, n, v)
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield from _of_text(message, field.name)


def _borders(message: Any, field: FieldDescriptor) -> tuple[Any, ...]:
    if isinstance(message, Timestamp):
        return SECONDS if field.name == "seconds" else NANOS
    return _BORDERS[field.type]


def _inside(place: str, inner: Any, find: Callable[[Any], Any]) -> Iterator[tuple[str, Change]]:
    for name, change in border_changes(inner):
        yield f"{place}.{name}", lambda owner, change=change: change(find(owner))


def _of_map(message: Any, name: str) -> Iterator[tuple[str, Change]]:
    for key, value in getattr(message, name).items():
        if hasattr(value, "DESCRIPTOR"):
            yield from _inside(f"{name}[{key}]", value, lambda owner, key=key: getattr(owner, name)[key])


def _of_text(message: Any, name: str) -> Iterator[tuple[str, Change]]:
    """The numbers of a text that is JSON, or in the first of several lines of JSON."""
    lines = getattr(message, name).split("\n")
    try:
        read = [json.loads(line) for line in lines]
    except ValueError:
        return
    for path in _numbers(read[0]):
        for value in JSON:
            place = "".join(f"[{step!r}]" for step in path)
            yield (
                f"{name}{place} = {str(value)[:30]}",
                lambda owner, path=path, value=value: _set(owner, name, path, value),
            )


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    # A value that is null in a sample may be a number elsewhere.
    if (value is None or isinstance(value, int | float)) and not isinstance(value, bool) and path:
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(item, (*path, key))


def _set(owner: Any, name: str, path: tuple[Any, ...], value: Any) -> None:
    first, *rest = getattr(owner, name).split("\n")
    read = inner = json.loads(first)
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    setattr(owner, name, "\n".join((json.dumps(read, ensure_ascii=False, separators=(",", ":")), *rest)))
