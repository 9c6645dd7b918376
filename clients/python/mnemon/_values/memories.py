"""The values of memories that callers give and get."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, TypedDict

from mnemon._local_time import Moment
from mnemon._values.documents import (
    SCOPE_FIELDS,
    Answer,
    FilterValue,
    HealthStatus,
    JsonValue,
    MetadataValue,
    Scope,
    ScopeFields,
    SearchDiagnostics,
    WriteReceipt,
)
from mnemon._values.filters import FilterLike
from mnemon._values.history import VersionInfo
from mnemon.shared.errors import MnemonError

TAGS = {
    "type": 'The kind of memory, such as "preference".',
    "user": "The end user.",
    "household": "The group of users that shares it.",
    "persona": "The persona that an agent speaks as.",
    "agent": "The agent that wrote it.",
    "project": "The project or workspace.",
    "personality": "The personality that it belongs to.",
    "origin": "Where it comes from: user, agent, tool, import or web.",
    "origin_name": "Which tool, file or site; only with the origin.",
}
"""The short texts that describe a memory, with their meanings."""
TEXTS = ("memory_id", "content", *(name for name in TAGS if name not in SCOPE_FIELDS))
"""All texts that a caller sets on a memory, except those of its scope."""


class DecayPolicy(StrEnum):
    """How a memory's confidence fades.

    `stable`: never. `reinforceable`: 0.5 after 30 days without a reinforcement. `contextual`: tied to a moment, 0.5
    after 7 days, and cannot be reinforced. The half-lives are the server's settings.
    """

    STABLE = "stable"
    REINFORCEABLE = "reinforceable"
    CONTEXTUAL = "contextual"


@dataclass(frozen=True, slots=True)
class Memory(JsonValue):
    """A fact. All fields after `metadata` are the server's; they are ignored when it is remembered.

    One with a `memory_id` is remembered under that id, a UUID; without one, the server chooses.
    """

    content: str
    memory_id: str = ""
    type: str = ""
    agent: str = ""
    project: str = ""
    personality: str = ""
    user: str = ""
    household: str = ""
    persona: str = ""
    is_global: bool = False
    """Whether it holds beyond its project and agent."""
    decay: str = DecayPolicy.STABLE
    origin: str = ""
    """"user", "agent", "tool", "import" or "web", the most trusted first; empty counts like "agent"."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    confidence: float = 1.0
    """The confidence when it was read, 0 to 1."""
    revision: int = 0
    create_time: datetime | None = None
    update_time: datetime | None = None
    reinforce_time: datetime | None = None
    delete_time: datetime | None = None
    embeddings: tuple[tuple[float, ...], ...] = ()
    """One vector of unit length per passage; only in the full view."""

    @property
    def scope(self) -> Scope:
        """Its scope as one value."""
        return Scope(**{name: getattr(self, name) for name in SCOPE_FIELDS})


MemoryLike: TypeAlias = str | Memory | tuple[str | Memory, Sequence[float]]
"""A memory for `add_many`: its text or a `Memory`, alone or with its vector."""


class MemoryTags(ScopeFields, total=False):
    """The description of a memory as keyword arguments; see `TAGS`."""

    type: str
    personality: str
    is_global: bool


class MemoryTagChanges(TypedDict, total=False):
    """The same for a change: None leaves a field as it is, and an empty text empties it."""

    type: str | None
    user: str | None
    household: str | None
    persona: str | None
    agent: str | None
    project: str | None
    origin: str | None
    origin_name: str | None
    personality: str | None
    is_global: bool | None


class MemoryFilters(MemoryTags, total=False):
    """A filter of memories, as keyword arguments: all that are given must match.

    A text must not be empty; memories without an agent are `where=~F("agent").exists()`. A time is a datetime with a
    zone, a date, a timedelta back from now, or a text such as "2027-01-31" or "2 weeks"; bounds are included. A memory
    that was never reinforced matches neither `reinforced_from` nor `reinforced_to`.
    """

    where: FilterLike
    """Anything else, as an expression of `F` or a mapping."""
    min_trust: str
    """Excludes records from less trusted origins: "user", "agent", "tool", "import" or "web"."""
    metadata: Mapping[str, FilterValue]
    created_from: Moment
    created_to: Moment
    reinforced_from: Moment
    reinforced_to: Moment


@dataclass(frozen=True, slots=True)
class ScorePart(JsonValue):
    """One summand of a score: "vector" or "keyword"."""

    name: str
    score: float
    """0 to 1; in a hybrid search, that of "vector" counts from the cosine that the model gives to unrelated texts."""
    weight: float
    contribution: float
    """`score` times `weight`."""


@dataclass(frozen=True, slots=True)
class MatchExplanation(JsonValue):
    """Why a result scored as it did."""

    parts: tuple[ScorePart, ...]
    matched_terms: tuple[str, ...]
    """Words of the query, stemmed, that the memory holds."""
    confidence: str
    """How the confidence came about, in a sentence."""
    passage_start: int
    """The characters of the content that matched best, the end excluded."""
    passage_end: int


@dataclass(frozen=True, slots=True)
class MemoryMatch(JsonValue):
    """One memory found. `score` is its relevance, 0 to 1, by which results are ordered."""

    _SPREAD = "memory"

    memory: Memory
    score: float
    similarity: float | None = None
    """Cosine similarity to the query, 0 to 1; None if no vectors were compared."""
    distance: float | None = None
    """Cosine distance as it was measured, 0 to 2."""
    keyword_score: float | None = None
    explanation: MatchExplanation | None = None
    """Only if requested."""

    @property
    def memory_id(self) -> str:
        """The memory's id."""
        return self.memory.memory_id

    @property
    def content(self) -> str:
        """The memory's text."""
        return self.memory.content

    @property
    def confidence(self) -> float:
        """The memory's confidence, 0 to 1."""
        return self.memory.confidence

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The memory's metadata."""
        return self.memory.metadata


@dataclass(frozen=True, slots=True)
class MemoryAnswer(Answer[MemoryMatch]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    results: tuple[MemoryMatch, ...]
    diagnostics: SearchDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""


@dataclass(frozen=True, slots=True)
class RememberResult(JsonValue):
    """The result of one memory of `add_many`: a receipt, or the error that `add` would have raised."""

    position: int
    """Its position among all items, from 0."""
    receipt: WriteReceipt | None = None
    error: MnemonError | None = None

    @property
    def memory_id(self) -> str:
        """The id of the memory; empty if it was not stored."""
        return self.receipt.id if self.receipt else ""

    def _fields(self) -> dict[str, Any]:
        return {**JsonValue._fields(self), "memory_id": self.memory_id}


@dataclass(frozen=True, slots=True)
class MemoryPage(JsonValue):
    """A page of memories; `next_page_token` is empty after the last one."""

    memories: tuple[Memory, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class MemoryVersion(JsonValue):
    """An earlier version of a memory, with its confidence at the end of the version."""

    _SPREAD = "memory"

    memory: Memory
    version: VersionInfo


@dataclass(frozen=True, slots=True)
class MemoryVersionPage(JsonValue):
    """A page of versions, newest first; `next_page_token` is empty after the last one."""

    versions: tuple[MemoryVersion, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class PurgeReceipt(JsonValue):
    """The result of a purge, or of its dry run."""

    purged_count: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class MemoryForecast(JsonValue):
    """A memory whose confidence decays."""

    _SPREAD = "memory"

    memory: Memory
    confidence_then: float
    """Its confidence at the requested time, 0 to 1."""
    fade_time: datetime | None
    """When it falls, or fell, below the bound."""


@dataclass(frozen=True, slots=True)
class VectorIndexStatus(JsonValue):
    """How vectors are kept in the server's memory."""

    flat_count: int
    """Vectors compared one by one."""
    graph_count: int
    dead_count: int
    """Entries that the next rebuild of the graph removes."""
    bytes: int
    snapshot_time: datetime | None
    pending: int
    """Committed writes that the vector database does not yet have."""
    removal_pending_count: int = 0
    """Records that were deleted or replaced, whose bytes may still be in the server's files."""
    removal_out_of_reach_count: int = 0
    """Records deleted on a ChromaDB server: only its operator can remove what it still keeps of them."""


@dataclass(frozen=True, slots=True)
class MemoryStatus(JsonValue):
    """The state of the memory service and of what it depends on."""

    status: HealthStatus
    error: str
    """Why, in a sentence; empty if healthy."""
    backend: str
    host: str
    collection: str
    memory_count: int
    deleted_count: int
    """Memories that are deleted but not purged."""
    index: VectorIndexStatus
