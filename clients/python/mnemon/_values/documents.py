"""The values that callers give and get: plain, frozen, and writable as JSON."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, TypedDict, TypeVar, overload

from mnemon._values.display import html_table, short_repr
from mnemon.shared.errors import MnemonError

_Item = TypeVar("_Item")

MetadataValue: TypeAlias = str | int | float | bool | Sequence[str] | datetime
"""One typed value: 5, 5.0, True and "5" are four different values. Times carry a zone."""

FilterValue: TypeAlias = str | int | float | bool
"""A value that a filter may compare with; numbers are compared by value."""


class SearchMode(StrEnum):
    """How a text finds documents: by meaning, by word, or by both."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


class AckLevel(StrEnum):
    """When a write is acknowledged.

    `durable`: committed and synced to disk, and found by searches through this server. `searchable`: also applied to
    the vector database, so that other clients of that database find it.
    """

    DURABLE = "durable"
    SEARCHABLE = "searchable"


class View(StrEnum):
    """How much of each record is returned: its id and revision, everything but embeddings, or everything."""

    IDS = "ids"
    STANDARD = "standard"
    FULL = "full"


class WriteOutcome(StrEnum):
    """The outcome of a write."""

    UNKNOWN = "unknown"
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    MISSING = "missing"


class HealthStatus(StrEnum):
    """The health of the store. Starting and degraded still serve reads and writes; unhealthy accepts no writes.

    Starting: the vector database is starting. Degraded: it does not answer, or is being rebuilt.
    """

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    STARTING = "starting"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


class JsonValue:
    """The base of all values: they can be written as JSON, and are short in a prompt and a table in a notebook."""

    __slots__ = ()
    _SPREAD = ""
    """The field with the record of a match."""

    def __init_subclass__(cls) -> None:
        # Of a class without this method, dataclasses would write all fields.
        cls.__repr__ = JsonValue.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str | None:
        return html_table(self)

    def to_dict(self) -> dict[str, Any]:
        """The value as what `json` can write; times are ISO 8601."""
        return json.loads(self.to_json())  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """The value as JSON."""
        return json.dumps(self, default=_to_json, ensure_ascii=False)

    def _fields(self) -> dict[str, Any]:
        """The fields as JSON; the fields of a match's record stand beside its own."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        record = found.pop(self._SPREAD, None)
        return {**record._fields(), **found} if record else found


@dataclass(frozen=True, slots=True)
class Scope(JsonValue):
    """The owner and context of a document. In a search, only fields that are set count."""

    user: str = ""
    household: str = ""
    persona: str = ""
    agent: str = ""
    project: str = ""
    origin: str = ""
    """Where it comes from: "user", "agent", "tool", "import" or "web", the most trusted first."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""


SCOPE_FIELDS = tuple(each.name for each in fields(Scope))
ORIGIN_FIELDS = ("origin", "origin_name")


class ScopeFields(TypedDict, total=False):
    """The same as keyword arguments."""

    user: str
    household: str
    persona: str
    agent: str
    project: str
    origin: str
    origin_name: str


@dataclass(frozen=True, slots=True)
class Document(JsonValue):
    """A text with metadata. All fields after `scope` are the server's; they are ignored when a document is indexed."""

    doc_id: str
    content: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    scope: Scope = Scope()
    revision: int = 0
    create_time: datetime | None = None
    update_time: datetime | None = None
    passage_count: int = 0
    embeddings: tuple[tuple[float, ...], ...] = ()
    """One vector of unit length per passage; only in the full view."""


@dataclass(frozen=True, slots=True)
class Passage(JsonValue):
    """A part of a document's content; `start` and `end` count characters, the end excluded."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SearchResult(JsonValue):
    """One document found. `score` is its relevance, 0 (none) to 1 (the query's own text)."""

    _SPREAD = "document"

    document: Document
    score: float
    source: str
    """`metadata["source"]` if that is text, otherwise the name of the backend."""
    vector_score: float | None = None
    keyword_score: float | None = None
    passage: Passage | None = None
    """The passage that scored best."""

    @property
    def doc_id(self) -> str:
        """The document's id."""
        return self.document.doc_id

    @property
    def content(self) -> str:
        """The document's text; empty in the view "ids"."""
        return self.document.content

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The document's metadata."""
        return self.document.metadata

    @property
    def passage_text(self) -> str:
        """The text of the passage that scored best; the whole content if there is no such passage."""
        return self.content[self.passage.start : self.passage.end] if self.passage else self.content


@dataclass(frozen=True, slots=True)
class IgnoredFilter(JsonValue):
    """A filter that was not applied, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnmatchedFilter(JsonValue):
    """A filter that finds nothing, because documents have its key only with values of other types, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance(JsonValue):
    """How well the best match of a search fits the query."""

    best_relevance: float | None = None
    """Its relevance, 0 to 1, before any minimum; 0 if nothing was found, None without a query."""
    relevance_floor: float | None = None
    """The relevance below which matches are mostly unrelated to the query; None if the server cannot tell."""
    nothing_relevant: bool = False
    """True if nothing was found, or if even the best match is below the floor and not near by its meaning alone."""


class RelevanceOfBest:
    """How relevant the best match of a search is."""

    __slots__ = ()
    diagnostics: Relevance

    @property
    def best_relevance(self) -> float | None:
        """The relevance of the best match, 0 to 1, before any minimum; None without a query."""
        return self.diagnostics.best_relevance

    @property
    def nothing_relevant(self) -> bool:
        """Whether nothing was found, or nothing that is likely to have to do with the query."""
        return self.diagnostics.nothing_relevant


@dataclass(frozen=True, slots=True)
class SearchDiagnostics(Relevance):
    """How an answer was found."""

    mode: SearchMode | None
    exact: bool
    """True if every candidate was compared, so that no result can be missing."""
    total_candidates: int
    scanned: int
    pending: int
    degraded: str
    """Why the vector database could not be queried, else empty. The answer is complete in either case."""
    duration_s: float


class Items(JsonValue, Sequence[_Item]):
    """A value that is itself a sequence of its items."""

    __slots__ = ()

    @property
    @abstractmethod
    def _items(self) -> tuple[_Item, ...]: ...

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> _Item: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_Item, ...]: ...

    def __getitem__(self, index: int | slice) -> _Item | tuple[_Item, ...]:
        return self._items[index]


class Answer(RelevanceOfBest, Items[_Item]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    __slots__ = ()
    results: tuple[Any, ...]

    @property
    def _items(self) -> tuple[_Item, ...]:
        return self.results


@dataclass(frozen=True, slots=True)
class SearchAnswer(Answer[SearchResult]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    results: tuple[SearchResult, ...]
    ignored_filters: tuple[IgnoredFilter, ...]
    diagnostics: SearchDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""
    unmatched_filters: tuple[UnmatchedFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentPage(JsonValue):
    """A page of documents; `next_page_token` is empty after the last one."""

    documents: tuple[Document, ...]
    next_page_token: str
    ignored_filters: tuple[IgnoredFilter, ...]
    unmatched_filters: tuple[UnmatchedFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteReceipt(JsonValue):
    """The server's receipt for one write."""

    id: str
    outcome: WriteOutcome
    revision: int
    """The document's revision after the write; of a deleted document, the last one."""
    commit_time: datetime | None
    replayed: bool
    """True if this is the stored answer to a request_id that was used before."""


@dataclass(frozen=True, slots=True)
class IndexResult(JsonValue):
    """The result of one document of `put_many`: a receipt, or the error that `put` would have raised."""

    doc_id: str
    receipt: WriteReceipt | None = None
    error: MnemonError | None = None


@dataclass(frozen=True, slots=True)
class BulkDeleteReceipt(JsonValue):
    """The result of a delete by filter, or of its dry run."""

    deleted_count: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class RebuildProgress(JsonValue):
    """The progress of a rebuild of the vector database, in documents."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class EmbeddingModel(JsonValue):
    """The model that makes the vectors."""

    name: str
    revision: str
    precision: str
    dimension: int


@dataclass(frozen=True, slots=True)
class StoreHealth(JsonValue):
    """The health of the store and of what it depends on."""

    status: HealthStatus
    message: str
    """In a sentence; empty if healthy."""
    backend: str
    host: str
    collection: str
    embedding_model: EmbeddingModel
    document_count: int
    passage_count: int
    pending: int
    """Committed changes that the vector database does not yet have."""
    latency_s: float | None
    """Response time of the vector database; None if it did not answer, and for the local index."""
    removal_pending_count: int = 0
    """Records that were deleted or replaced, whose bytes may still be in the server's files."""
    removal_out_of_reach_count: int = 0
    """Records deleted on a ChromaDB server: only its operator can remove what it still keeps of them."""


def _to_json(value: object) -> Any:
    match value:
        case JsonValue():
            return value._fields()
        case MnemonError():
            return value.to_dict()
        case datetime():
            return value.isoformat()
        case Mapping():
            return dict(value)
    raise TypeError(f"{type(value).__name__} is not a value of a document")
