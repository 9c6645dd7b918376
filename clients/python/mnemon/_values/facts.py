"""The values of facts that callers give and get."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from mnemon._values.documents import Answer, JsonValue, MetadataValue, SearchDiagnostics, WriteReceipt
from mnemon._values.filters import Filter
from mnemon._values.history import VersionInfo
from mnemon.shared.errors import MnemonError

Namespace: TypeAlias = tuple[str, ...]
"""Where a fact is: 1 to 16 labels, compared one by one. A label is text of 1 to 256 bytes."""

FactIndex: TypeAlias = Sequence[str] | Literal[False] | None
"""Which texts of a value are searched: those at paths such as "title" or "messages[*].text"; False means no text.

None means the text under "content" if it exists, otherwise every text of the value.
"""


FactWhere: TypeAlias = Filter | Mapping[str, Any]
"""A condition on facts: an expression of `F`, whose fields are key, create_time, update_time, expire_time, and
"value." or "metadata." with a key; or keys of the value or the metadata, each with what it must equal, or with
operators: `{"category": "drinks", "score": {"$gte": 3}}`."""


class PutMode(StrEnum):
    """The condition for storing a fact: anything, no fact, or an existing fact."""

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
    """A JSON object under a key of a namespace. The fields from `revision` to `embeddings` are the server's; a put
    ignores them.

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
    origin: str = ""
    """"user", "agent", "tool", "import" or "web", the most trusted first; empty counts like "agent"."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""

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
        return {**JsonValue._fields(self), "key": self.key}


@dataclass(frozen=True, slots=True)
class RenewResult(JsonValue):
    """The result of one fact of `renew`: when it ends now, or the error that `get` would have raised."""

    namespace: Namespace
    key: str
    expire_time: datetime | None = None
    """None also for a fact without a ttl, which never expires."""
    error: MnemonError | None = None


@dataclass(frozen=True, slots=True)
class FactMatch(JsonValue):
    """One fact found. `score` is its relevance, 0 to 1, which orders results; None if nothing was searched for."""

    _SPREAD = "fact"

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


@dataclass(frozen=True, slots=True)
class FactAnswer(Answer[FactMatch]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    results: tuple[FactMatch, ...]
    diagnostics: SearchDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""


@dataclass(frozen=True, slots=True)
class FactPage(JsonValue):
    """A page of facts; `next_page_token` is empty after the last one."""

    facts: tuple[Fact, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class PastFact(JsonValue):
    """An earlier version of a fact."""

    _SPREAD = "fact"

    fact: Fact
    version: VersionInfo


@dataclass(frozen=True, slots=True)
class PastFactPage(JsonValue):
    """A page of versions, newest first; `next_page_token` is empty after the last one."""

    versions: tuple[PastFact, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class NamespacePage(JsonValue):
    """A page of namespaces; `next_page_token` is empty after the last one."""

    namespaces: tuple[Namespace, ...]
    next_page_token: str
