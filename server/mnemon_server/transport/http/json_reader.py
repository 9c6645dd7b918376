"""Values of JSON as the bytes of protobuf messages: those that protobuf's `json_format` reads, but in steps.

`json_format` asks the descriptor of every field of every message what to do, and searches each text for surrogates with
an expression: a tenth of a second for 2 MiB, during which no other call is served. Here descriptors are asked once for
each type. protobuf itself checks and writes the fields that are no messages; what is inside of a message follows as
bytes, in any order of the fields.

It refuses what `json_format` takes by accident: a field under both of its names, an empty list or text as an object, a
truth value as a number, a fraction as an enum, texts with digits that are no number of JSON or that are not base64,
and a time or a duration in another form than that of the specification.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.convert.shared.counts import entries_read_max
from mnemon_server.transport.convert.shared.wire import field_start
from mnemon_server.transport.http.json_reading import Path, Reading, object_problem, utf8
from mnemon_server.transport.http.json_scalars import DURATION, TIME, UNFIT, conversion, expected, key_conversion
from mnemon_server.transport.http.json_struct import read_list, read_struct, read_value
from mnemon_server.transport.http.json_text import COPIED_MAX, RUN_CHARS, Step, Steps

LEVELS_MAX = 99
"""How deep messages may be inside of each other, so that protobuf reads them."""
_CHUNK = 256
"""Values of a list that are converted together."""

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
Read = Callable[[Reading, Any, Path, int], Steps[bytes]]
"""Reads a value as a message that has so many levels below it."""
ReadField = Callable[[Reading, Any, Any, Path, int], Steps[list[bytes]]]
"""Reads a value as a field: into the message that is given, or as bytes that follow it."""

_ANY_JSON: Mapping[str, Read] = {
    f"{_GOOGLE}Struct": read_struct,
    f"{_GOOGLE}Value": read_value,
    f"{_GOOGLE}ListValue": read_list,
}


def message_bytes(kind: Descriptor, value: Any, step: Step) -> Steps[bytes]:
    """The message of a type that a value describes.

    Raises:
        InvalidArgumentError: fields are unknown, or have no value of their type; it names up to VIOLATIONS_MAX.
    """
    reading = Reading(step)
    data = yield from _of_type(kind)(reading, value, None, LEVELS_MAX)
    if reading.violations:
        raise InvalidArgumentError(reading.violations)
    return data


@cache
def _of_type(kind: Descriptor) -> Read:
    """What reads messages of a type."""
    if (known := _ANY_JSON.get(kind.full_name)) is not None:
        return known
    return partial(_other, kind) if kind.full_name.startswith(_GOOGLE) else _Object(kind)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: one value is converted and put into its message, or `read` has more to do."""

    name: str
    oneof: str
    takes_null: bool
    is_text: bool
    number: int
    expected: str
    convert: Callable[[Any], Any]
    read: ReadField | None


class _Object:
    """Reads messages that are objects in JSON."""

    def __init__(self, kind: Descriptor) -> None:
        self._kind, self._make = kind, GetMessageClass(kind)

    @cached_property
    def _fields(self) -> Mapping[str, _Field]:
        """By both of their names. Made late: types may contain themselves."""
        return {name: field for each in self._kind.fields for field in (_field(each),) for name in _names(each)}

    @cached_property
    def _choice(self) -> str:
        """The fields of a message that is one of them, such as the type of a value of metadata; else empty."""
        is_choice = len(self._kind.oneofs) == 1 and len(self._kind.oneofs[0].fields) == len(self._kind.fields)
        return f" with one of {', '.join(each.json_name for each in self._kind.fields)}" if is_choice else ""

    def __call__(self, reading: Reading, value: Any, path: Path, levels: int) -> Steps[bytes]:
        """Reads one message."""
        if not isinstance(value, dict) or levels < 0:
            reading.note(path, object_problem(value) + ("" if isinstance(value, dict) else self._choice))
            return b""
        own, pieces, given, fields = self._make(), [b""], dict[str, str](), self._fields
        for name, item in value.items():
            if (field := fields.get(name)) is None:
                names = ", ".join(sorted(each.json_name for each in self._kind.fields))
                reading.note((path, f".{name}"), f"is unknown; the fields here are {names}")
            elif item is None and not field.takes_null:
                continue
            elif (other := given.setdefault(field.oneof, name)) != name:
                reading.note((path, f".{field.name}"), f"must not be given together with {other}")
            elif field.read is not None:
                pieces += yield from field.read(reading, own, item, (path, f".{field.name}"), levels)
            elif field.is_text and type(item) is str and len(item) > RUN_CHARS:
                text = yield from utf8(reading, item, (path, f".{field.name}"))
                pieces += (field_start(field.number, len(text)), text)
            else:
                _put(reading, field, own, item, path)
        pieces[0] = own.SerializeToString()
        if is_long := sum(map(len, pieces)) > COPIED_MAX:
            yield
        content = b"".join(pieces)
        if is_long:
            yield
        return content


def _put(reading: Reading, field: _Field, own: Any, item: Any, path: Path) -> None:
    try:
        setattr(own, field.name, field.convert(item))
    except UNFIT:
        reading.note((path, f".{field.name}"), f"must be {field.expected}")


def _names(field: FieldDescriptor) -> tuple[str, str]:
    return field.json_name, field.name


def _field(field: FieldDescriptor) -> _Field:
    kind, oneof = field.message_type, field.containing_oneof
    is_null = field.enum_type is not None and field.enum_type.full_name == f"{_GOOGLE}NullValue"
    return _Field(
        name=field.name,
        oneof=f"oneof {oneof.name}" if oneof is not None else field.name,
        takes_null=is_null or (kind is not None and kind.full_name == f"{_GOOGLE}Value" and not field.is_repeated),
        is_text=field.type == FieldDescriptor.TYPE_STRING,
        number=field.number,
        expected=expected(field),
        convert=(lambda _: 0) if is_null else conversion(field),
        read=_reader(field),
    )


def _reader(field: FieldDescriptor) -> ReadField | None:
    """What reads a field that is a message, a list or a map."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"]
        return (_MapOfMessages if value.message_type is not None else _Map)(field).read
    if field.is_repeated:
        return (_Messages if kind is not None else _List)(field).read
    return _Message(field).read if kind is not None else None


class _Message:
    """Reads the message of a field."""

    def __init__(self, field: FieldDescriptor) -> None:
        self._kind: Any = field.message_type
        self._number = field.number

    @cached_property
    def _read(self) -> Read:
        return _of_type(self._kind)

    def read(self, reading: Reading, own: Any, item: Any, path: Path, levels: int) -> Steps[list[bytes]]:
        """Its bytes, in pieces: of a megabyte, each copy takes as long as a step."""
        content = yield from self._read(reading, item, path, levels - 1)
        return [field_start(self._number, len(content)), content]


class _Messages(_Message):
    """Reads a list of messages."""

    def __init__(self, field: FieldDescriptor) -> None:
        super().__init__(field)
        self._entries_max = entries_read_max(field)

    def read(self, reading: Reading, own: Any, item: Any, path: Path, levels: int) -> Steps[list[bytes]]:
        """The bytes of all."""
        if not isinstance(item, list):
            reading.note(path, "must be a list")
            return []
        pieces: list[bytes] = []
        for index, one in enumerate(item[: self._entries_max]):
            pieces += yield from super().read(reading, own, one, (path, f"[{index}]"), levels)
            if reading.step.is_over():
                yield
        return pieces


class _List:
    """Reads a list of values."""

    def __init__(self, field: FieldDescriptor) -> None:
        self._name, self._expected = field.name, expected(field)
        self._convert, self._entries_max = conversion(field), entries_read_max(field)

    def read(self, reading: Reading, own: Any, item: Any, path: Path, levels: int) -> Steps[list[bytes]]:
        """Puts them into the message."""
        if not isinstance(item, list):
            reading.note(path, "must be a list")
            return []
        convert, target, item = self._convert, getattr(own, self._name), item[: self._entries_max]
        for start in range(0, len(item), _CHUNK):
            chunk = item[start : start + _CHUNK]
            try:
                target.extend([convert(one) for one in chunk])
            except UNFIT:
                self._note(reading, type(own)(), chunk, path, start)
            if reading.step.is_over():
                yield
        return []

    def _note(self, reading: Reading, scratch: Any, chunk: list[Any], path: Path, start: int) -> None:
        target = getattr(scratch, self._name)
        for index, one in enumerate(chunk, start):
            try:
                target.append(self._convert(one))
            except UNFIT:
                reading.note((path, f"[{index}]"), f"must be {self._expected}")


class _Map:
    """Reads a map of values."""

    def __init__(self, field: FieldDescriptor) -> None:
        kind: Any = field.message_type
        value = kind.fields_by_name["value"]
        self._name, self._expected, self._convert = field.name, expected(value), conversion(value)
        self._convert_key, self._entries_max = key_conversion(kind.fields_by_name["key"]), entries_read_max(field)

    def read(self, reading: Reading, own: Any, item: Any, path: Path, levels: int) -> Steps[list[bytes]]:
        """Puts them into the message."""
        if not isinstance(item, dict):
            reading.note(path, "must be an object")
            return []
        target = getattr(own, self._name)
        for name, one in islice(item.items(), self._entries_max):
            try:
                target[self._convert_key(name)] = self._convert(one)
            except UNFIT:
                reading.note((path, f".{name}"), f"must be {self._expected}")
            if reading.step.is_over():
                yield
        return []


class _MapOfMessages:
    """Reads a map of messages."""

    def __init__(self, field: FieldDescriptor) -> None:
        kind: Any = field.message_type
        self._number, self._entry = field.number, GetMessageClass(kind)
        self._value = _Message(kind.fields_by_name["value"])
        self._convert_key, self._entries_max = key_conversion(kind.fields_by_name["key"]), entries_read_max(field)

    def read(self, reading: Reading, own: Any, item: Any, path: Path, levels: int) -> Steps[list[bytes]]:
        """The bytes of all entries."""
        if not isinstance(item, dict):
            reading.note(path, "must be an object")
            return []
        pieces: list[bytes] = []
        for name, one in islice(item.items(), self._entries_max):
            at = path, f".{name}"
            try:
                key = self._entry(key=self._convert_key(name)).SerializeToString()
            except UNFIT:
                reading.note(at, "must have another name")
                continue
            content = [key, *(yield from self._value.read(reading, own, one, at, levels - 1))]
            pieces += (field_start(self._number, sum(map(len, content))), *content)
            if reading.step.is_over():
                yield
        return pieces


def _other(kind: Descriptor, reading: Reading, value: Any, path: Path, levels: int) -> Steps[bytes]:
    """A type that protobuf itself reads."""
    yield from ()
    pattern, wanted = _IN_A_TEXT.get(kind.full_name, (None, "a value of its type"))
    message: Any = GetMessageClass(kind)()
    try:
        if pattern is not None and not pattern.fullmatch(value):
            raise ValueError
        json_format.ParseDict(value, message)
    except (*UNFIT, json_format.ParseError):
        reading.note(path, f"must be {wanted}")
    data: bytes = message.SerializeToString()
    return data
