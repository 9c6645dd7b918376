"""Conversions for Chroma: passages to records, filters to `where`, and distances to similarities."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import FieldValue
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.engines.promises.vector_index import IndexEntry

DOC_ID_KEY = "mnemon:doc_id"
PASSAGE_KEY = "mnemon:passage"
PASSAGE_ID_KEY = "mnemon:passage_id"
MODEL_KEY = "mnemon:model"
DIMENSION_KEY = "mnemon:dimension"
_PREFIX = "mnemon:"  # a document's keys contain no colon
_PASSAGE_SEPARATOR = "\x1f"  # document ids contain no control characters


def to_record(entry: IndexEntry) -> dict[str, Any]:
    """The record of a passage without its vector. Any Chroma client can read it."""
    own = {key: _to_chroma(value) for key, value in entry.document.metadata.items()}
    marks = {DOC_ID_KEY: entry.doc_id, PASSAGE_KEY: entry.index, PASSAGE_ID_KEY: entry.passage_id}
    fields = _field_keys(entry.document.fields)
    return {
        "id": record_id(entry.doc_id, entry.index),
        "document": entry.text,
        "metadata": own | _scope_keys(entry.document.scope) | fields | marks,
    }


def record_id(doc_id: str, index: int) -> str:
    """For the first passage, the document's own id, so that users find most records by the ids that they know."""
    return doc_id if index == 0 else f"{doc_id}{_PASSAGE_SEPARATOR}{index}"


def to_where(equal: RecordFilter) -> dict[str, Any] | None:
    """The filter for Chroma, which compares numbers by value, too; None for everything."""
    conditions: list[dict[str, Any]] = [{key: value} for key, value in equal.equal.items()]
    conditions += [{key: value} for key, value in _scope_keys(equal.scope).items()]
    if len(conditions) > 1:
        return {"$and": conditions}
    return conditions[0] if conditions else None


def to_similarity(distances: NDArray[np.float32], space: str) -> NDArray[np.float64]:
    """Cosine similarity, -1 to 1, from the distances of vectors of unit length. For l2, the distance is squared."""
    halves = 2.0 if space == "l2" else 1.0
    return np.clip(1.0 - distances.astype(np.float64) / halves, -1.0, 1.0)


def chunks(entries: Sequence[IndexEntry], size: int) -> Iterator[Sequence[IndexEntry]]:
    """The entries in groups of about `size`. A document is never divided."""
    start = 0
    for position in range(1, len(entries) + 1):
        ends_document = position == len(entries) or entries[position].doc_id != entries[position - 1].doc_id
        if ends_document and (position - start >= size or position == len(entries)):
            yield entries[start:position]
            start = position


def _scope_keys(scope: Scope) -> dict[str, str]:
    return {_PREFIX + name: value for name, value in asdict(scope).items() if value}


def _field_keys(fields: Mapping[str, FieldValue]) -> dict[str, Any]:
    """The collection's own fields. Missing ones have no key."""
    return {_PREFIX + name: _to_chroma(value) for name, value in fields.items() if value is not None and value != ""}


def _to_chroma(value: MetadataValue) -> str | int | float | bool | list[str]:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return list(value) or "[]"  # Chroma refuses empty lists
    return value
