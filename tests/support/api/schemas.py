"""Messages and enums as JSON Schema: the JSON that protobuf defines for them."""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from mnemon_server.transport.convert.shared.counts import VECTOR_MAX, entries_max

Schema = dict[str, Any]
PACKAGE = "mnemon.v1."

_INT64: Schema = {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"}
_INT64_SENT: Schema = {**_INT64, "type": ["string", "integer"]}
"""Answers have strings, because JavaScript rounds larger numbers. Requests may have either."""
_SCALARS: Mapping[int, Schema] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_STRING: {"type": "string"},
}
_WELL_KNOWN: Mapping[str, Schema] = {
    "google.protobuf.Duration": {
        "type": "string",
        "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
        "examples": ["1.5s"],
    },
    "google.protobuf.FieldMask": {"type": "string", "examples": ["content,scope.user"]},
    "google.protobuf.ListValue": {"type": "array", "items": {}},
    "google.protobuf.Struct": {"type": "object", "additionalProperties": True},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time", "examples": ["2026-01-31T12:00:00Z"]},
    "google.protobuf.Value": {},
}


def short(full_name: str) -> str:
    """The name of a schema."""
    return full_name.removeprefix(PACKAGE)


def reference(full_name: str) -> Schema:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{short(full_name)}"}


class Schemas:
    """The schemas of all messages and enums that methods need."""

    def __init__(
        self, comments: Mapping[str, str], requests: Collection[Descriptor], responses: Collection[Descriptor]
    ) -> None:
        """Those of these requests and responses, and of what is in them."""
        self._comments = comments
        self._sent = {kind.full_name: kind for each in requests for kind in _within(each)}
        self._returned = {kind.full_name: kind for each in responses for kind in _within(each)}

    def all(self) -> dict[str, Schema]:
        """The schemas by name."""
        kinds = {**self._sent, **self._returned}
        return {short(name): self._of(kinds[name]) for name in sorted(kinds)}

    def _of(self, kind: Descriptor | EnumDescriptor) -> Schema:
        return self._of_message(kind) if isinstance(kind, Descriptor) else self._of_enum(kind)

    def _of_enum(self, enum: EnumDescriptor) -> Schema:
        values = [f"- `{each.name}`: {self._comment(f'{enum.full_name}.{each.name}')}" for each in enum.values]
        text = f"{self._comment(enum.full_name)}\n\n" + "\n".join(values)
        return {"type": "string", "description": text, "enum": [each.name for each in enum.values]}

    def _of_message(self, message: Descriptor) -> Schema:
        schema: Schema = {"type": "object", "description": self._comment(message.full_name)}
        schema["properties"] = {field.json_name: self._of_field(field) for field in message.fields}
        if message.full_name not in self._returned:
            # Answers may get further fields within v1; and they leave out what has its default.
            schema["additionalProperties"] = False
            if required := [field.json_name for field in message.fields if self._is_required(field)]:
                schema["required"] = required
        choices = [oneof for oneof in message.oneofs if len(oneof.fields) > 1]
        for oneof in choices:
            names = [field.json_name for field in oneof.fields]
            said = self._comment(oneof.full_name)
            schema["description"] += f"\n\nAt most one of {', '.join(f'`{name}`' for name in names)}. {said}".rstrip()
        if pairs := [pair for oneof in choices for pair in combinations([each.json_name for each in oneof.fields], 2)]:
            schema["not"] = {"anyOf": [{"required": list(pair)} for pair in pairs]}
        return schema

    def _of_field(self, field: FieldDescriptor) -> Schema:
        comment = self._comment(field.full_name)
        schema = self._of_list(field) if field.is_repeated else _of_value(field)
        if schema is _INT64 and not self._is_returned(field):
            schema = _INT64_SENT
        schema = {**schema, "description": comment} if comment else {**schema}
        if comment.startswith("Output only"):
            schema["readOnly"] = True
        if field.GetOptions().deprecated:
            schema["deprecated"] = True
        return schema

    def _of_list(self, field: FieldDescriptor) -> Schema:
        most = self._entries_max(field)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            value = _of_value(kind.fields_by_name["value"])
            return {"type": "object", "additionalProperties": value, **({"maxProperties": most} if most else {})}
        return {"type": "array", "items": _of_value(field), **({"maxItems": most} if most else {})}

    def _entries_max(self, field: FieldDescriptor) -> int:
        """How many entries a request may have; 0 if that is not limited, or the field only occurs in answers."""
        owner: Any = field.containing_type
        if owner.full_name not in self._sent:
            return 0
        most = entries_max(field)
        return most if most < VECTOR_MAX else 0

    def _is_returned(self, field: FieldDescriptor) -> bool:
        owner: Any = field.containing_type
        return owner.full_name in self._returned

    def _is_required(self, field: FieldDescriptor) -> bool:
        return self._comment(field.full_name).startswith(("Required.", "Required,"))

    def _comment(self, full_name: str) -> str:
        return self._comments.get(full_name, "")


def _of_value(field: FieldDescriptor) -> Schema:
    """A field that is set, or one entry of a list."""
    kind = field.message_type or field.enum_type
    if kind is None:
        return _SCALARS[field.type]
    known = _WELL_KNOWN.get(kind.full_name)
    return reference(kind.full_name) if known is None else known


def _within(message: Descriptor) -> Iterator[Descriptor | EnumDescriptor]:
    """A message, and the messages and enums in it."""
    found: dict[str, Descriptor | EnumDescriptor] = {}
    _collect(message, found)
    return iter(found.values())


def _collect(message: Descriptor, found: dict[str, Descriptor | EnumDescriptor]) -> None:
    if message.full_name in found or message.full_name in _WELL_KNOWN:
        return
    if not message.GetOptions().map_entry:
        found[message.full_name] = message
    for field in message.fields:
        if field.message_type is not None:
            _collect(field.message_type, found)
        elif field.enum_type is not None:
            found[field.enum_type.full_name] = field.enum_type
