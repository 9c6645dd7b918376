"""Documents of the knowledge store, and the requests and results of a search."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.filters import Expression, FilterFields
from mnemon_server.domain.records import (
    AckLevel,
    FilterNotes,
    MetadataValue,
    RecordUpdate,
    Scope,
    SearchDiagnostics,
    TextQuery,
)

CONTENT_BYTES_MAX = 1 << 20
DOC_ID_BYTES_MAX = 512
QUERY_BYTES_MAX = 65_536
TOP_K_DEFAULT = 5
TOP_K_MAX = 100
FILTER_FIELDS = FilterFields(
    "document",
    {
        **dict.fromkeys(("doc_id", "content", *(each.name for each in fields(Scope))), FieldType.TEXT),
        **dict.fromkeys(("create_time", "update_time"), FieldType.TIME),
    },
    {"doc_id": "id"},
)
"""The fields that a filter can name, in addition to "metadata." with a key."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document that is short enough for the embedding model. `start` and `end` count code points."""

    index: int
    start: int
    end: int
    embedding: tuple[float, ...] | None = None


FieldValue = str | bool | float | tuple[str, ...] | datetime | None
"""The value of a collection's own field."""


class JsonValue:
    """A value that can be written as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Its fields as values that `json` can serialise. Times are ISO 8601."""
        return json.loads(self.to_json())  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Its fields as JSON, for debugging and logging."""
        return json.dumps(asdict(self), default=_to_json, ensure_ascii=False)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Document(JsonValue):
    """A text with metadata. `embedding` is the first passage's, and is present only on request.

    `fields` has all fields of its collection. Searches never return a `hidden` document; lists do so only on request.
    """

    doc_id: str
    content: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    embedding: tuple[float, ...] | None = None
    scope: Scope = Scope()
    revision: int = 0
    create_time: datetime | None = None
    update_time: datetime | None = None
    passages: tuple[Passage, ...] = ()
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult(JsonValue):
    """A document that a search found. `score` is its relevance, 0 to 1."""

    doc_id: str
    content: str
    metadata: Mapping[str, MetadataValue]
    score: float
    source: str
    vector_score: float | None = None
    keyword_score: float | None = None
    passage: Passage | None = None
    document: Document | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRequest:
    """A document to store, with the options of the write."""

    document: Document
    request_id: str = ""
    expected_revision: int | None = None
    ack: AckLevel = AckLevel.DURABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateDocument(RecordUpdate):
    """An update of a document."""

    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFilter:
    """Selects documents; all fields must match. A key of `filters` that no document has is ignored. The answer says so,
    and names entries whose type no document has under the key.
    """

    filters: Mapping[str, Any] = field(default_factory=dict)
    scope: Scope = Scope()
    expression: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery(TextQuery):
    """A search of documents."""

    top_k: int = TOP_K_DEFAULT
    where: DocumentFilter = DocumentFilter()
    min_score: float = 0.0


@dataclass(frozen=True, slots=True)
class RebuildProgress:
    """Progress of a rebuild of the vector index, in documents."""

    done: int
    total: int


class HealthStatus(StrEnum):
    """Health of the store. A starting or degraded store serves reads and writes; an unhealthy one refuses writes.

    Starting: an optional vector database is coming up. Degraded: the vector database does not answer or is being
    rebuilt.
    """

    HEALTHY = "healthy"
    STARTING = "starting"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """Health of the store and of its parts. `message` is empty if healthy; otherwise it is written for clients."""

    status: HealthStatus
    message: str = ""
    backend: str
    host: str = ""
    collection: str = ""
    model_name: str = ""
    model_revision: str = ""
    model_precision: str = ""
    dimension: int = 0
    document_count: int = 0
    passage_count: int = 0
    pending: int = 0
    latency_s: float | None = None
    removal_pending_count: int = 0
    removal_out_of_reach_count: int = 0

    @property
    def is_serving(self) -> bool:
        """Whether the store answers, and its backend answers or is starting."""
        return self.status in (HealthStatus.HEALTHY, HealthStatus.STARTING)


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The complete answer of a search."""

    results: tuple[SearchResult, ...]
    filters: FilterNotes
    diagnostics: SearchDiagnostics


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of documents. `next_position` is None after the last page."""

    documents: tuple[Document, ...]
    next_position: int | None
    filters: FilterNotes


def _to_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be a value in a document")
