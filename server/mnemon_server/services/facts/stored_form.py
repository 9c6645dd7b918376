"""Facts as stored documents, in both directions."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from mnemon_server.domain.clock import EPOCH, from_microseconds, to_microseconds
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.encoding import decode_metadata, encode_metadata
from mnemon_server.domain.facts import Fact, FactIndex, FactValue, FactVersion, filterable, record_id
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.namespaces import Namespace, decode_namespace, encode_namespace
from mnemon_server.domain.validation import normalised_metadata

NAME = frozenset({"namespace", "fact_key"})
"""The fields that identify the fact."""
VERSIONS_MAX = 10
VERSIONS_BYTES_MAX = 65_536

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def to_document(fact: Fact, content: str, *, embedding: str = "") -> Document:
    """The stored document of a fact, without earlier versions; `with_version` makes these.

    `embedding` identifies the vector that the caller gave; empty if the texts were embedded.
    """
    own = normalised_metadata(fact.metadata)
    return Document(
        record_id(fact.namespace, fact.key),
        content,
        normalised_metadata(filterable(fact.value, own)),
        scope=fact.source,
        fields={
            "namespace": encode_namespace(fact.namespace),
            "fact_key": fact.key,
            "fact_value": value_text(fact.value),
            "own_metadata": encode_metadata(own),
            "indexing": _encode_index(fact.index, embedding),
            "created_at": fact.created_at,
            "updated_at": fact.updated_at,
            "ttl_s": None if fact.ttl is None else fact.ttl.total_seconds(),
            "expire_time": fact.expires_at,
            "versions": "",
        },
    )


@reads(FACTS)
def to_fact(document: Document, *, versions: bool = False, as_text: bool = False) -> Fact:
    """The fact of a stored document; with `as_text`, its values are JsonTexts."""
    fields = document.fields
    value = str(fields["fact_value"])
    value_of = partial(JsonText, collection=FACTS.name, record_id=document.doc_id) if as_text else json.loads
    ttl_s = fields.get("ttl_s")
    return Fact(
        namespace=decode_namespace(str(fields["namespace"])),
        key=str(fields["fact_key"]),
        value=value_of(value),
        metadata=decode_metadata(str(fields["own_metadata"])),
        created_at=time_field(fields.get("created_at")) or EPOCH,
        updated_at=time_field(fields.get("updated_at")) or EPOCH,
        revision=document.revision,
        # In an archive that another tool has rewritten, 60.0 may have become 60.
        ttl=timedelta(seconds=ttl_s) if isinstance(ttl_s, int | float) else None,
        expires_at=time_field(fields.get("expire_time")),
        index=_decode_index(str(fields["indexing"])),
        versions=tuple(_versions(str(fields["versions"]), value_of)) if versions else (),
        embeddings=tuple(passage.embedding for passage in document.passages if passage.embedding),
        source=document.scope,
    )


@reads(FACTS)
def to_name(document: Document) -> Fact:
    """The fact of a document that was read with only the fields NAME; its value and other fields are empty."""
    fields = document.fields
    namespace = decode_namespace(str(fields["namespace"]))
    return Fact(namespace, str(fields["fact_key"]), {}, EPOCH, EPOCH, revision=document.revision)


def is_fact(document: Document | None, namespace: Namespace, key: str, now: datetime) -> bool:
    """Whether the document is the fact of this name, and has not expired."""
    return (
        document is not None
        and document.fields.get("namespace") == encode_namespace(namespace)
        and document.fields.get("fact_key") == key
        and not has_expired(document, now)
    )


def has_expired(document: Document, now: datetime) -> bool:
    """Whether the fact has expired."""
    end = time_field(document.fields.get("expire_time"))
    return end is not None and end <= now


def with_version(document: Document) -> str:
    """The earlier versions of the document that replaces this one: this one and its own earlier versions.

    One JSON text per line, newest first, within VERSIONS_MAX and VERSIONS_BYTES_MAX. If a version does not fit, all
    older ones are dropped with it, so that the history has no gaps.
    """
    fields = document.fields
    updated = to_microseconds(time_field(fields.get("updated_at")) or EPOCH)
    lines = [f"[{document.revision},{updated},{fields['fact_value']}]", *_lines(str(fields["versions"]))]
    kept, size = 0, 0
    for line in lines[:VERSIONS_MAX]:
        size += len(line.encode())
        if size > VERSIONS_BYTES_MAX:
            break
        kept += 1
    return "\n".join(lines[:kept])


def with_fields(document: Document, **changes: FieldValue) -> Document:
    """The document with these fields changed."""
    return replace(document, fields={**document.fields, **changes})


def time_field(value: FieldValue) -> datetime | None:
    """The value of a field, if it is a time."""
    return value if isinstance(value, datetime) else None


def value_text(value: FactValue) -> str:
    """The value as it is stored."""
    return value.text if isinstance(value, JsonText) else _JSON.encode(dict(value))


def _versions(text: str, value_of: Callable[[str], FactValue]) -> Iterator[FactVersion]:
    for line in _lines(text):
        if not line.startswith("[") or not line.endswith("]"):
            raise ValueError("an earlier version must be a list")
        # Two numbers come first; the rest of the list is the value, a JSON object.
        revision, updated, value = line[1:-1].split(",", 2)
        yield FactVersion(int(revision), value_of(value), from_microseconds(int(updated)))


def _encode_index(index: FactIndex, embedding: str) -> str:
    values = {"off": index.off, "paths": list(index.paths), "embedding": embedding}
    return _JSON.encode({key: value for key, value in values.items() if value})


def _decode_index(text: str) -> FactIndex:
    values = json.loads(text)
    return FactIndex(values.get("off", False), tuple(values.get("paths", ())))


def _lines(text: str) -> list[str]:
    # Not `splitlines`: JSON does not escape all characters that end a line there, such as U+2028.
    return text.split("\n") if text else []
