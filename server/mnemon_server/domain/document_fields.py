"""Access to a document's fields by name, for filters and for the list of changed fields."""

from collections.abc import Iterator, Mapping

from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values, stored_field
from mnemon_server.domain.filters import METADATA_PREFIX, FieldReader, RecordFilter, matches
from mnemon_server.domain.records import MetadataValue


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
