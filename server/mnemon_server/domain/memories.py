"""Memories: statements whose confidence decays by a policy, and the requests and answers of the memory service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.documents import HealthStatus, Passage
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.filters import Expression, FilterFields
from mnemon_server.domain.records import (
    AckLevel,
    FilterValue,
    MetadataValue,
    RecordUpdate,
    Scope,
    SearchDiagnostics,
    TextQuery,
    WriteReceipt,
)

LIMIT_DEFAULT, LIMIT_MAX = 10, 1_000
MIN_CONFIDENCE_DEFAULT = 0.3
TAGS, TAG_BYTES_MAX = ("personality", "type"), 256
"""The short texts of a memory beside its scope: stored, changed, filtered by and answered under these names."""


class DecayPolicy(StrEnum):
    """How confidence decays."""

    STABLE = "stable"
    REINFORCEABLE = "reinforceable"
    CONTEXTUAL = "contextual"


FILTER_FIELDS = FilterFields(
    "memory",
    {
        **dict.fromkeys(("memory_id", "content", *SCOPE_FIELDS, *TAGS), FieldType.TEXT),
        "is_global": FieldType.BOOLEAN,
        "decay_policy": DecayPolicy,
        **dict.fromkeys(("create_time", "update_time", "reinforce_time"), FieldType.TIME),
    },
    {"memory_id": "id", "is_global": "global"},
)
"""The fields that a filter can name, in addition to "metadata." with a key."""


class DecayCurve(StrEnum):
    """The shape of the decay. Both curves reach 0.5 at the half-life."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class Decay:
    """A decay curve with its half-life."""

    half_life: timedelta
    curve: DecayCurve = DecayCurve.EXPONENTIAL

    def __post_init__(self) -> None:
        if self.half_life <= timedelta(0):
            raise ConfigurationError(f"a half-life must be more than 0, not {self.half_life}")

    def confidence(self, age: timedelta) -> float:
        """Confidence at an age, 0 to 1; a negative age counts as 0."""
        halves = max(age / self.half_life, 0.0)
        return 0.5**halves if self.curve is DecayCurve.EXPONENTIAL else max(1.0 - halves / 2.0, 0.0)


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory. `confidence` is the value at the time of reading."""

    memory_id: str
    content: str
    scope: Scope = Scope()
    personality: str = ""
    type: str = ""
    is_global: bool = False
    decay_policy: DecayPolicy = DecayPolicy.STABLE
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    confidence: float = 1.0
    revision: int = 0
    create_time: datetime = EPOCH
    update_time: datetime = EPOCH
    reinforce_time: datetime | None = None
    delete_time: datetime | None = None
    embeddings: tuple[tuple[float, ...], ...] = ()
    """Vectors of its passages, present only on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """Selects memories; all fields that are set must match. See `MemoryFilter` in the protos."""

    scope: Scope = Scope()
    personality: str = ""
    type: str = ""
    is_global: bool | None = None
    metadata: Mapping[str, FilterValue] = field(default_factory=dict)
    created_from: datetime | None = None
    created_to: datetime | None = None
    reinforced_from: datetime | None = None
    reinforced_to: datetime | None = None
    min_confidence: float | None = None
    """If None: the minimum that the request uses by default."""
    expression: Expression | None = None

    def __bool__(self) -> bool:
        """False if it selects everything."""
        return replace(self, min_confidence=self.min_confidence or None) != MemoryFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMemory:
    """A memory to store. Values that only the server sets are ignored. `embedding` has the model's dimension; if it is
    None, the server computes it.
    """

    memory: Memory
    embedding: Sequence[float] | None = None
    request_id: str = ""
    ack: AckLevel = AckLevel.DURABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMemory(RecordUpdate):
    """An update of a memory; see `UpdateMemoryRequest`."""

    memory: Memory
    embedding: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery(TextQuery):
    """A search of memories.

    Unless `where` sets a minimum confidence, memories below MIN_CONFIDENCE_DEFAULT are left out.
    """

    limit: int = LIMIT_DEFAULT
    where: MemoryFilter = MemoryFilter()
    min_score: float = 0.0
    explain: bool = False


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One term of a score: `score` (0 to 1) times `weight`. A ranker's deduction has the weight -1."""

    name: str
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The terms of a result's score."""

    parts: tuple[ScorePart, ...]
    matched_terms: tuple[str, ...]
    confidence: str


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A memory that a search found. Results are ordered by `score`. `similarity` is 0 to 1; `distance` is the raw
    cosine distance, 0 to 2.
    """

    memory: Memory
    score: float
    similarity: float | None = None
    distance: float | None = None
    keyword_score: float | None = None
    passage: Passage | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class MemorySearchAnswer:
    """The complete answer of a search, best match first."""

    results: tuple[MemoryMatch, ...]
    diagnostics: SearchDiagnostics


@dataclass(frozen=True, slots=True)
class MemoryReceipt:
    """The result of a write, and the memory in its current state; None if it has been deleted."""

    receipt: WriteReceipt
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """A decaying memory: its confidence at the requested time, and when it falls below the bound."""

    memory: Memory
    confidence_then: float
    fade_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatus:
    """Status of the memory service. `error` is empty if healthy; otherwise it is written for clients. Counts are of
    memories.
    """

    status: HealthStatus
    error: str = ""
    backend: str
    host: str
    collection: str
    memory_count: int = 0
    deleted_count: int = 0
    flat_count: int = 0
    graph_count: int = 0
    dead_count: int = 0
    index_bytes: int = 0
    snapshot_time: datetime | None = None
    pending: int = 0
    removal_pending_count: int = 0
    removal_out_of_reach_count: int = 0
