"""Messages and enums as JSON Schema: the JSON that protobuf defines for them."""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from mnemon_server.transport.convert.shared.counts import VECTOR_MAX, entries_max
from mnemon_server.transport.http.json_scalars import BASE64, DURATION, FLOAT_MAX, TIME

from tests.support.api import demands
from tests.support.api.demands import ONE_OF, naturals, whole

Schema = dict[str, Any]
PACKAGE = "mnemon.v1."
_SENT = "Input"
"""Ends the name of a message in requests, if answers have it, too."""

_INT64: Schema = {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"}
_INT64_SENT: Schema = {
    "type": ["string", "integer"],
    "format": "int64",
    "pattern": whole(f"0|-?(?:{naturals(2**63 - 1)})|-{2**63}"),
    "minimum": -(2**63),
    "maximum": 2**63 - 1,
}
"""Answers have strings, because JavaScript rounds larger numbers. Requests may have either."""
_BYTES_SENT: Schema = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": whole(BASE64),
}
_TIME_SENT: Schema = {"pattern": whole(TIME)}
_SCALARS: Mapping[int, Schema] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float", "minimum": -FLOAT_MAX, "maximum": FLOAT_MAX},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_STRING: {"type": "string"},
}
_WELL_KNOWN: Mapping[str, Schema] = {
    "google.protobuf.Duration": {
        "type": "string",
        "pattern": whole(DURATION),
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
    """The schemas of all messages and enums that methods need.

    A message that is both sent and returned has two: answers may get further fields within v1, and leave out what has
    its default; a request must be as the server demands.
    """

    def __init__(
        self, comments: Mapping[str, str], requests: Collection[Descriptor], responses: Collection[Descriptor]
    ) -> None:
        """Those of these requests and responses, and of what is in them."""
        self._comments = comments
        self._sent = {kind.full_name: kind for each in requests for kind in _within(each)}
        self._returned = {kind.full_name: kind for each in responses for kind in _within(each)}

    def all(self) -> dict[str, Schema]:
        """The schemas by name."""
        enums = {**self._sent, **self._returned}.values()
        found = {short(each.full_name): self._of_enum(each) for each in enums if isinstance(each, EnumDescriptor)}
        for each in self._returned.values():
            if isinstance(each, Descriptor):
                found[short(each.full_name)] = self._of_answer(each)
        for each in self._sent.values():
            if isinstance(each, Descriptor):
                found[self.name_of_sent(each)] = self._of_request(each)
        return dict(sorted(found.items()))

    def name_of_sent(self, message: Descriptor) -> str:
        """The name of the schema of a message in a request."""
        return short(message.full_name) + (_SENT if message.full_name in self._returned else "")

    def _of_enum(self, enum: EnumDescriptor) -> Schema:
        values = [f"- `{each.name}`: {self._comment(f'{enum.full_name}.{each.name}')}" for each in enum.values]
        text = f"{self._comment(enum.full_name)}\n\n" + "\n".join(values)
        return {"type": "string", "description": text, "enum": [each.name for each in enum.values]}

    def _of_answer(self, message: Descriptor) -> Schema:
        schema = self._of_message(message)
        schema["properties"] = {field.json_name: self._told(field, _of_answer(field)) for field in message.fields}
        pairs = [{"required": list(pair)} for names in _choices(message) for pair in combinations(names, 2)]
        return {**schema, **({"not": {"anyOf": pairs}} if pairs else {})}

    def _of_request(self, message: Descriptor) -> Schema:
        schema = self._of_message(message)
        required = [field.json_name for field in message.fields if self._is_required(field)]
        chosen = [name for names in _choices(message) for name in names]
        schema["properties"] = {
            field.json_name: self._told(field, self._of_sent(field, is_required=field.json_name in required))
            for field in message.fields
        }
        schema["additionalProperties"] = False
        if required:
            schema["required"] = required
        if message.name in ONE_OF:
            return {**schema, "oneOf": [_given(name) for name in chosen]}
        pairs = [pair for names in _choices(message) for pair in combinations(names, 2)]
        given = {"not": {"anyOf": [_given(*pair) for pair in pairs]}} if pairs else {}
        return {**schema, **given, **demands.WHOLE_MESSAGES.get(message.name, {})}

    def _of_message(self, message: Descriptor) -> Schema:
        schema: Schema = {"type": "object", "description": self._comment(message.full_name)}
        for oneof in message.oneofs:
            if len(oneof.fields) > 1:
                names = ", ".join(f"`{field.json_name}`" for field in oneof.fields)
                most = "Exactly" if message.name in ONE_OF else "At most"
                said = f"{most} one of {names}. {self._comment(oneof.full_name)}".rstrip()
                schema["description"] += f"\n\n{said}"
        return schema

    def _told(self, field: FieldDescriptor, schema: Schema) -> Schema:
        """The schema of a field, with what is said about the field."""
        comment = self._comment(field.full_name)
        schema = {**schema, "description": comment} if comment else {**schema}
        if comment.startswith("Output only"):
            schema["readOnly"] = True
        if field.GetOptions().deprecated:
            schema["deprecated"] = True
        return schema

    def _of_sent(self, field: FieldDescriptor, *, is_required: bool) -> Schema:
        """A field of a request. Null leaves a field out, except for one that is required."""
        if field.is_repeated:
            schema = self._of_sent_list(field, required=is_required)
        else:
            schema = {**self._of_sent_value(field), **demands.of_value(field)}
        if is_required or schema == {}:
            return schema
        if "type" not in schema or "const" in schema:
            return {"anyOf": [schema, {"type": "null"}]}
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*kinds, "null"]}

    def _of_sent_list(self, field: FieldDescriptor, *, required: bool) -> Schema:
        most, kind = entries_max(field), field.message_type
        whole = demands.of_list(field, required=required)
        if kind is not None and kind.GetOptions().map_entry:
            value = {**self._of_sent_value(kind.fields_by_name["value"]), **demands.of_value(field)}
            return {"type": "object", "additionalProperties": value, "maxProperties": most, **whole}
        items = {**self._of_sent_value(field), **demands.of_value(field)}
        return {"type": "array", "items": items, **({"maxItems": most} if 0 < most < VECTOR_MAX else {}), **whole}

    def _of_sent_value(self, field: FieldDescriptor) -> Schema:
        kind = field.message_type
        if kind is not None and kind.full_name not in _WELL_KNOWN:
            return {"$ref": f"#/components/schemas/{self.name_of_sent(kind)}"}
        if field.type == FieldDescriptor.TYPE_INT64:
            return _INT64_SENT
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _BYTES_SENT
        if kind is not None and kind.full_name == "google.protobuf.Timestamp":
            return {**_of_value(field), **_TIME_SENT}
        return _of_value(field)

    def _is_required(self, field: FieldDescriptor) -> bool:
        owner: Any = field.containing_type
        told = self._comment(field.full_name).startswith(("Required.", "Required,"))
        return told or field.name in demands.REQUIRED.get(owner.name, ())

    def _comment(self, full_name: str) -> str:
        return self._comments.get(full_name, "")


def _choices(message: Descriptor) -> list[list[str]]:
    """The names of the fields of which at most one is set, for each choice."""
    return [[field.json_name for field in each.fields] for each in message.oneofs if len(each.fields) > 1]


def _given(*names: str) -> Schema:
    """Holds for an object that has these members, all of them other than null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


def _of_answer(field: FieldDescriptor) -> Schema:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_value(kind.fields_by_name["value"])}
    return {"type": "array", "items": _of_value(field)} if field.is_repeated else _of_value(field)


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
