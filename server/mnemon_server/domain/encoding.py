"""Metadata as JSON that keeps types, and digests that tell whether two documents or requests are equal."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from json.encoder import encode_basestring
from typing import Any

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.filters import METADATA_PREFIX, FieldReader, RecordFilter, matches
from mnemon_server.domain.records import MetadataValue, Scope

DIGEST_BYTES = 32
OWNER_FIELDS = ("user", "household", "persona", "agent", "project")
"""The fields of a scope that say whose a record is: only these tell whether two records are the same."""
ORIGIN_FIELDS = ("origin", "origin_name")
SCOPE_FIELDS = (*OWNER_FIELDS, *ORIGIN_FIELDS)


def encode_metadata(metadata: Mapping[str, MetadataValue]) -> str:
    """Encodes metadata as JSON that decodes to the same types; a time becomes {"time": microseconds}."""
    return _METADATA_JSON.encode(dict(metadata)) if metadata else "{}"


def decode_metadata(text: str) -> dict[str, MetadataValue]:
    """The metadata that `encode_metadata` wrote."""
    return {key: _decode_value(value) for key, value in json.loads(text).items()} if text != "{}" else {}


def text_digest(text: str) -> bytes:
    """Digest of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def document_digest(document: Document) -> bytes:
    """Digest of a document: id, content, metadata, scope, fields, and whether it is hidden."""
    scope = document.scope
    parts = [document.doc_id, document.content, encode_metadata(document.metadata), *owner_values(scope)]
    if scope.origin:
        parts += [scope.origin, scope.origin_name]
    if document.fields:
        parts.append(_FIELDS_JSON.encode({name: stored_field(value) for name, value in document.fields.items()}))
    if document.hidden:
        parts.append("hidden")
    # The texts as a JSON list. The encoder would take three times as long.
    return text_digest(f"[{', '.join(map(encode_basestring, parts))}]")


def stored_field(value: FieldValue) -> FieldValue:
    """A field's value as the engines return it: numbers as floats, and zero without a sign."""
    return value + 0.0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def request_digest(*parts: Any) -> bytes:
    """Digest of the content of a request."""
    return text_digest(json.dumps(parts, default=_encode_part, ensure_ascii=False, sort_keys=True))


def scope_values(scope: Scope) -> tuple[str, ...]:
    """The fields of a scope in the order of SCOPE_FIELDS."""
    return (*owner_values(scope), scope.origin, scope.origin_name)


def owner_values(scope: Scope) -> tuple[str, ...]:
    """The fields of a scope in the order of OWNER_FIELDS."""
    return (scope.user, scope.household, scope.persona, scope.agent, scope.project)


def _encode_part(value: object) -> Any:
    if isinstance(value, Mapping):
        return encode_metadata(value)
    if isinstance(value, Scope):
        return scope_values(value)
    if isinstance(value, bytes):
        return value.hex()
    return _encode_time(value)


def _encode_time(value: object) -> dict[str, int]:
    if isinstance(value, datetime):
        return {"time": to_microseconds(value)}
    raise TypeError(f"{type(value).__name__} is not a metadata value")


# Created once: `json.dumps` creates a new encoder on each call with non-default options.
_METADATA_JSON = json.JSONEncoder(default=_encode_time, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_FIELDS_JSON = json.JSONEncoder(default=_encode_time, ensure_ascii=False, sort_keys=True)


def _decode_value(value: Any) -> MetadataValue:
    match value:
        case dict():
            return from_microseconds(value["time"])
        case list():
            return tuple(value)
        case _:
            return value  # type: ignore[no-any-return]


# Fields of documents by name, for filters and for the list of changed fields.


def field_reader(document: Document) -> FieldReader:
    """Returns a function that reads fields of the stored document by the names that filters use."""

    def read(name: str) -> MetadataValue | None:
        if name.startswith(METADATA_PREFIX):
            return document.metadata.get(name.removeprefix(METADATA_PREFIX))
        if name in SCOPE_FIELDS:
            return str(getattr(document.scope, name))
        match name:
            case "id":
                return document.doc_id
            case "content":
                return document.content
            case "create_time":
                return document.create_time
            case "update_time":
                return document.update_time
            case _:
                return document.fields.get(name)

    return read


def document_matches(document: Document, where: RecordFilter) -> bool:
    """Whether the filter selects a stored document."""
    read = field_reader(document)
    return (
        where.hidden in (None, document.hidden)
        and all(
            getattr(document.scope, name) == wanted
            for name, wanted in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True)
            if wanted
        )
        and all(matches(part, read) for part in where.parts)
    )


def changed_fields(old: Document, new: Document) -> tuple[str, ...]:
    """Names of the fields that differ: "content", "metadata.key", "scope.name", and the collection's own fields."""
    return tuple(_changed(old, new))


def identical(left: object, right: object) -> bool:
    """Equal in type and value: 1, 1.0 and True are three values."""
    return type(left) is type(right) and left == right


def _changed(old: Document, new: Document) -> Iterator[str]:
    if old.content != new.content:
        yield "content"
    for name, before, after in zip(SCOPE_FIELDS, scope_values(old.scope), scope_values(new.scope), strict=True):
        if before != after:
            yield f"scope.{name}"
    yield from _differing(_stored_fields(old), _stored_fields(new))
    for key in _differing(old.metadata, new.metadata):
        yield METADATA_PREFIX + key


def _stored_fields(document: Document) -> Mapping[str, object]:
    return {name: stored_field(value) for name, value in document.fields.items()}


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [name for name in sorted(old.keys() | new.keys()) if not identical(old.get(name), new.get(name))]


def is_replaced(old: Document, new: Document) -> bool:
    """Whether storing `new` in place of `old` would remove data that a client wrote."""
    return (old.content, old.metadata, old.scope) != (new.content, new.metadata, new.scope)
