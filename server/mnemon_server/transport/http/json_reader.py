"""JSON values as the bytes of protobuf messages, as `json_format` reads them, but with all violations at once.

`json_format` names the first fault only, and takes some by accident: a field under both of its names, an empty list or
text as an object, a truth value as a number, a fraction as an enum, texts with digits that are no number of JSON or
that are not base64, and a time or a duration in another form than that of the specification. It also asks the
descriptor of every field of every message what to do; here, each type is asked once. protobuf itself checks and writes
the scalar fields; message fields follow as bytes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.transport.convert.shared.counts import entries_read_max
from mnemon_server.transport.convert.shared.json_wire import (
    UNFIT,
    Note,
    Path,
    list_bytes,
    object_bytes,
    object_problem,
    value_bytes,
)
from mnemon_server.transport.convert.shared.wire import field_start
from mnemon_server.transport.http.json_scalars import DURATION, TIME, conversion, key_conversion, problem

VIOLATIONS_MAX = 100
"""So many faults are named."""
LEVELS_MAX = 99
"""How deep messages may be inside of each other, so that protobuf reads them."""
_NAME_CHARS_MAX = 128
"""The characters of a name that are shown."""

_GOOGLE = "google.protobuf."
"""Types with a form of their own in JSON."""
_IN_A_TEXT = {
    f"{_GOOGLE}Timestamp": (re.compile(TIME), 'a time such as "2026-01-31T12:00:00Z"'),
    f"{_GOOGLE}Duration": (re.compile(DURATION), 'a duration in seconds, such as "1.5s"'),
    f"{_GOOGLE}FieldMask": (
        re.compile(r"(?s:.{0,16384})"),
        'names of fields, separated by commas, such as "content,metadata"',
    ),
}
"""The types that are texts, with their pattern, and what is expected in words."""
Read = Callable[[Note, Any, Path, int], bytes]
"""Reads a value as a message that has so many levels below it."""
ReadField = Callable[[Note, Any, Any, Path, int], list[bytes]]
"""Reads a value as a field: into the message that is given, or as bytes that follow it."""

_ANY_JSON: Mapping[str, Read] = {
    f"{_GOOGLE}Struct": object_bytes,
    f"{_GOOGLE}Value": value_bytes,
    f"{_GOOGLE}ListValue": list_bytes,
}


def message_bytes(kind: Descriptor, value: Any) -> bytes:
    """The message of a type that a value describes.

    Raises:
        InvalidArgumentError: fields are unknown, or have no value of their type; it names up to VIOLATIONS_MAX.
    """
    violations: list[FieldViolation] = []

    def note(path: Path, problem: str) -> None:
        violations.append(FieldViolation(_shown(path), problem))
        if len(violations) == VIOLATIONS_MAX:
            raise InvalidArgumentError(violations)

    data = _of_type(kind)(note, value, None, LEVELS_MAX)
    if violations:
        raise InvalidArgumentError(violations)
    return data


def _shown(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part[:_NAME_CHARS_MAX])
    # A name may have halves of surrogate pairs, which no answer can hold.
    return "".join(reversed(parts)).removeprefix(".").encode(errors="replace").decode()


@cache
def _of_type(kind: Descriptor) -> Read:
    """The reader of messages of a type."""
    if (known := _ANY_JSON.get(kind.full_name)) is not None:
        return known
    return partial(_read_other if kind.full_name.startswith(_GOOGLE) else _read_object, kind)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field; `read` puts its value into a message."""

    name: str
    oneof: str
    takes_null: bool
    read: ReadField


@cache
def _fields(kind: Descriptor) -> Mapping[str, _Field]:
    """The fields of a type, by both of their names."""
    return {name: field for each in kind.fields for field in (_field(each),) for name in (each.json_name, each.name)}


def _field(field: FieldDescriptor) -> _Field:
    kind, oneof = field.message_type, field.containing_oneof
    is_value = kind is not None and kind.full_name == f"{_GOOGLE}Value" and not field.is_repeated
    return _Field(
        name=field.name,
        oneof=f"oneof {oneof.name}" if oneof is not None else field.name,
        takes_null=is_value or _is_null(field),
        read=partial(_reader(field), field),
    )


def _is_null(field: FieldDescriptor) -> bool:
    return field.enum_type is not None and field.enum_type.full_name == f"{_GOOGLE}NullValue"


def _reader(field: FieldDescriptor) -> Callable[..., list[bytes]]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _read_map
    if field.is_repeated:
        return _read_values if kind is None else _read_messages
    return _read_value if kind is None else _read_message


def _read_object(kind: Descriptor, note: Note, value: Any, path: Path, levels: int) -> bytes:
    """A message that is an object in JSON."""
    if not isinstance(value, dict) or levels < 0:
        note(path, object_problem(value) + ("" if isinstance(value, dict) else _choice(kind)))
        return b""
    own, pieces, given, fields = GetMessageClass(kind)(), list[bytes](), dict[str, str](), _fields(kind)
    for name, item in value.items():
        if (field := fields.get(name)) is None:
            names = ", ".join(sorted(each.json_name for each in kind.fields))
            note((path, f".{name}"), f"is unknown; the fields here are {names}")
        elif item is None and not field.takes_null:
            continue
        elif (other := given.setdefault(field.oneof, name)) != name:
            note((path, f".{field.name}"), f"must not be given together with {other}")
        else:
            pieces += field.read(note, own, item, (path, f".{field.name}"), levels)
    return b"".join([own.SerializeToString(), *pieces])


def _choice(kind: Descriptor) -> str:
    """The fields of a message that is one of them, such as the type of a value of metadata; else empty."""
    is_choice = len(kind.oneofs) == 1 and len(kind.oneofs[0].fields) == len(kind.fields)
    return f" with one of {', '.join(each.json_name for each in kind.fields)}" if is_choice else ""


def _read_other(kind: Descriptor, note: Note, value: Any, path: Path, levels: int) -> bytes:
    """A message of a type that protobuf itself reads."""
    pattern, wanted = _IN_A_TEXT.get(kind.full_name, (None, "a value of its type"))
    message: Any = GetMessageClass(kind)()
    try:
        if pattern is not None and not pattern.fullmatch(value):
            raise ValueError
        json_format.ParseDict(value, message)
    except (*UNFIT, json_format.ParseError):
        note(path, f"must be {wanted}")
    data: bytes = message.SerializeToString()
    return data


def _read_value(field: FieldDescriptor, note: Note, own: Any, item: Any, path: Path, levels: int) -> list[bytes]:
    try:
        setattr(own, field.name, _conversion(field)(item))
    except UNFIT as error:
        note(path, problem(field, error))
    return []


def _read_message(field: FieldDescriptor, note: Note, own: Any, item: Any, path: Path, levels: int) -> list[bytes]:
    content = _of_type(_kind(field))(note, item, path, levels - 1)
    return [field_start(field.number, len(content)), content]


def _read_messages(field: FieldDescriptor, note: Note, own: Any, item: Any, path: Path, levels: int) -> list[bytes]:
    pieces: list[bytes] = []
    for index, one in enumerate(_entries(field, item, note, path)):
        pieces += _read_message(field, note, own, one, (path, f"[{index}]"), levels)
    return pieces


def _read_values(field: FieldDescriptor, note: Note, own: Any, item: Any, path: Path, levels: int) -> list[bytes]:
    convert, items, target = _conversion(field), _entries(field, item, note, path), getattr(own, field.name)
    try:
        target.extend([convert(one) for one in items])
    except UNFIT:
        target = getattr(type(own)(), field.name)
        for index, one in enumerate(items):
            try:
                target.append(convert(one))
            except UNFIT as error:
                note((path, f"[{index}]"), problem(field, error))
    return []


def _entries(field: FieldDescriptor, item: Any, note: Note, path: Path) -> list[Any]:
    """The entries of a list, no more than one too many."""
    if not isinstance(item, list):
        note(path, "must be a list")
        return []
    return item[: entries_read_max(field)]


def _read_map(field: FieldDescriptor, note: Note, own: Any, item: Any, path: Path, levels: int) -> list[bytes]:
    if not isinstance(item, dict):
        note(path, "must be an object")
        return []
    kind = _kind(field)
    make, value = GetMessageClass(kind), kind.fields_by_name["value"]
    convert_key, read = key_conversion(kind.fields_by_name["key"]), _reader(value)
    pieces: list[bytes] = []
    for name, one in islice(item.items(), entries_read_max(field)):
        at, entry = (path, f".{name}"), make()
        try:
            entry.key = convert_key(name)  # type: ignore[attr-defined] # as entries of maps have it
        except UNFIT:
            note(at, "must have another name")
            continue
        content = read(value, note, entry, one, at, levels - 1)
        content.insert(0, entry.SerializeToString())
        pieces += (field_start(field.number, sum(map(len, content))), *content)
    return pieces


@cache
def _conversion(field: FieldDescriptor) -> Callable[[Any], Any]:
    return (lambda _: 0) if _is_null(field) else conversion(field)


def _kind(field: FieldDescriptor) -> Any:
    return field.message_type
