"""The values of facts that callers give and get."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias, overload

from mnemon._errors import MnemonError
from mnemon._values.documents import JsonValue, MetadataValue, RelevanceOfBest, SearchDiagnostics, WriteReceipt
from mnemon._values.filters import Filter

Namespace: TypeAlias = tuple[str, ...]
"""Where a fact is: 1 to 16 labels, compared one by one. A label is text of 1 to 256 bytes."""

FactIndex: TypeAlias = Sequence[str] | Literal[False] | None
"""Which texts of a value are searched: those at paths such as "title" or "messages[*].text"; False means no text.

None means the text under "content" if it exists, otherwise every text of the value.
"""


FactWhere: TypeAlias = Filter | Mapping[str, Any]
"""What must hold of facts: an expression of `F`, whose fields are key, create_time, update_time, expire_time, and
"value." or "metadata." with a key; or keys of the value or the metadata, each with what it must equal, or with
operators: `{"category": "drinks", "score": {"$gte": 3}}`."""


class PutMode(StrEnum):
    """What must exist before a fact is stored: anything, no fact, or a fact."""

    UPSERT = "upsert"
    CREATE = "create"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class FactVersion(JsonValue):
    """An earlier version of a fact."""

    revision: int
    value: Mapping[str, Any]
    update_time: datetime | None
    """When this version was written."""


@dataclass(frozen=True, slots=True)
class Fact(JsonValue):
    """A JSON object under a key of a namespace. All fields after `index` are the server's, and ignored in a put.

    Whole numbers of a value come back exactly up to 2^53. If the key is empty, the server chooses one. Times that are
    None mean now; an import may set when a fact was created and changed.
    """

    namespace: Namespace
    key: str
    value: Mapping[str, Any]
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    create_time: datetime | None = None
    update_time: datetime | None = None
    ttl: timedelta | None = None
    """How long it lives after its last change or renewal; None means for ever."""
    index: FactIndex = None
    revision: int = 0
    expire_time: datetime | None = None
    versions: tuple[FactVersion, ...] = ()
    """Earlier versions, newest first, if requested."""
    embeddings: tuple[tuple[float, ...], ...] = ()
    """Of the texts that are searched, in their order; in the results of a search with the view "full"."""

    def _fields(self) -> dict[str, Any]:
        found = asdict(self)
        ttl = found.pop("ttl")
        return {**found, "ttl_s": None if ttl is None else ttl.total_seconds()}


FactLike: TypeAlias = Fact | tuple[Fact, Sequence[float]]
"""A fact for `put_many`: alone, or with the vector of its searched texts."""


@dataclass(frozen=True, slots=True)
class FactReceipt(JsonValue):
    """The server's receipt for a put, and the fact as it is now; None if it has been removed since."""

    receipt: WriteReceipt
    fact: Fact | None

    @property
    def key(self) -> str:
        """The key, also where the server chose it."""
        return self.receipt.id

    def _fields(self) -> dict[str, Any]:
        return {"receipt": asdict(self.receipt), "fact": self.fact._fields() if self.fact else None}


@dataclass(frozen=True, slots=True)
class PutResult(JsonValue):
    """The result of one fact of `put_many`: a receipt, or the error that `put` would have raised."""

    position: int
    """Its position among all items, from 0."""
    receipt: WriteReceipt | None = None
    error: MnemonError | None = None

    @property
    def key(self) -> str:
        """Its key; empty if it is not stored."""
        return self.receipt.id if self.receipt else ""

    def _fields(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "key": self.key,
            "receipt": asdict(self.receipt) if self.receipt else None,
            "error": self.error.to_dict() if self.error else None,
        }


@dataclass(frozen=True, slots=True)
class RenewResult(JsonValue):
    """The result of one fact of `renew`: when it ends now, or the error that `get` would have raised."""

    namespace: Namespace
    key: str
    expire_time: datetime | None = None
    """None also for a fact without a ttl, which never expires."""
    error: MnemonError | None = None

    def _fields(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "key": self.key,
            "expire_time": self.expire_time,
            "error": self.error.to_dict() if self.error else None,
        }


@dataclass(frozen=True, slots=True)
class FactMatch(JsonValue):
    """One fact found. `score` is its relevance, 0 to 1, which orders results; None if nothing was searched for."""

    fact: Fact
    score: float | None = None
    similarity: float | None = None
    """Cosine similarity to the query, 0 to 1; None if no vectors were compared."""
    keyword_score: float | None = None

    @property
    def namespace(self) -> Namespace:
        """Where the fact is."""
        return self.fact.namespace

    @property
    def key(self) -> str:
        """The fact's key."""
        return self.fact.key

    @property
    def value(self) -> Mapping[str, Any]:
        """The fact's value."""
        return self.fact.value

    def _fields(self) -> dict[str, Any]:
        scores = {"score": self.score, "similarity": self.similarity, "keyword_score": self.keyword_score}
        return {**self.fact._fields(), **scores}


@dataclass(frozen=True, slots=True)
class FactAnswer(RelevanceOfBest, JsonValue, Sequence[FactMatch]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    results: tuple[FactMatch, ...]
    diagnostics: SearchDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[FactMatch]:
        return iter(self.results)

    @overload
    def __getitem__(self, index: int) -> FactMatch: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[FactMatch, ...]: ...

    def __getitem__(self, index: int | slice) -> FactMatch | tuple[FactMatch, ...]:
        return self.results[index]

    def _fields(self) -> dict[str, Any]:
        return {
            "results": [result._fields() for result in self.results],
            "diagnostics": asdict(self.diagnostics),
            "truncated": self.truncated,
        }


@dataclass(frozen=True, slots=True)
class FactPage(JsonValue):
    """A page of facts; `next_page_token` is empty after the last one."""

    facts: tuple[Fact, ...]
    next_page_token: str

    def _fields(self) -> dict[str, Any]:
        return {"facts": [fact._fields() for fact in self.facts], "next_page_token": self.next_page_token}


@dataclass(frozen=True, slots=True)
class NamespacePage(JsonValue):
    """A page of namespaces; `next_page_token` is empty after the last one."""

    namespaces: tuple[Namespace, ...]
    next_page_token: str
