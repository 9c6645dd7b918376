"""The values that callers of the semantic memory pass and receive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._local_time import Moment
from mnemon._values.decisions import Conflict, Decision
from mnemon._values.documents import (
    SCOPE_FIELDS,
    Answer,
    JsonValue,
    MetadataValue,
    Relevance,
    Scope,
    ScopeFields,
    SearchMode,
    WriteReceipt,
)
from mnemon._values.filters import FilterLike
from mnemon._values.history import VersionInfo
from mnemon.shared.errors import MnemonError

TAGS = (*SCOPE_FIELDS, "source")
"""The short texts that describe a statement."""
TEXTS = ("memory_id", "content", "summary", "source")
"""All texts that a caller sets on a statement, except those of its scope."""


class ConflictPolicy(StrEnum):
    """How a save handles statements of the same user that conflict with the new one.

    `ignore`: nothing. `detect`: saves it, and names the conflicts. `resolve`: finds the rule, detects, arbitrates and
    merges as it says, and saves the result, in one transaction.
    """

    IGNORE = "ignore"
    DETECT = "detect"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True)
class SemanticMemory(JsonValue):
    """A statement about a user.

    `memory_id` and all fields after `embedding` are the server's; they are ignored when it is saved.
    """

    content: str
    memory_id: str = ""
    user: str = ""
    """Required, to save it."""
    household: str = ""
    persona: str = ""
    agent: str = ""
    project: str = ""
    summary: str = ""
    importance: float | None = None
    """How much it matters, 0 to 1; None if that is unknown."""
    keywords: Sequence[str] = ()
    """Words that describe it; without them, conflicts are detected by the words of the content."""
    source: str = ""
    """Where it comes from: "user", "conversation", "skill", "system", "inferred", or anything else."""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    create_time: datetime | None = None
    """When it was learnt; None means when it is saved."""
    embedding: Sequence[float] = ()
    """Its vector, of unit length. In answers only if requested."""
    update_time: datetime | None = None
    revision: int = 0
    merged_from: tuple[str, ...] = ()
    """Ids of the statements that were merged into it."""
    superseded_by: str = ""
    """Id of the statement that replaced it. Only its own id finds a superseded statement."""
    origin: str = ""
    """"user", "agent", "tool", "import" or "web", the most trusted first; empty counts like "agent"."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""

    @property
    def scope(self) -> Scope:
        """Its scope as one value."""
        return Scope(**{name: getattr(self, name) for name in SCOPE_FIELDS})


SemanticMemoryLike: TypeAlias = str | SemanticMemory
"""A statement for `add_many`: its text, or a `SemanticMemory`, with its vector where it has one."""

MemoryReference: TypeAlias = str | SemanticMemory
"""A statement: the id of a stored one, or a `SemanticMemory` that is given."""


class SemanticFilters(ScopeFields, total=False):
    """A filter of statements, as keyword arguments: all that are given must match.

    A text must not be empty. `created_from` and `created_to` compare the time when it was learnt, and are included: a
    datetime with a zone, a date, a timedelta back from now, or a text such as "2027-01-31" or "2 weeks".
    """

    where: FilterLike
    """Anything else, as an expression of `F` or a mapping."""
    min_trust: str
    """Excludes records from less trusted origins: "user", "agent", "tool", "import" or "web"."""
    created_from: Moment
    created_to: Moment


@dataclass(frozen=True, slots=True)
class SaveAnswer(JsonValue):
    """The result of saving a statement."""

    memory: SemanticMemory | None
    """The current statement: the saved one, the merged one, or the one that it gave way to; None if it was rejected."""
    receipt: WriteReceipt | None
    """Of `memory`."""
    duplicate: bool
    """The same content was already stored for this user, household and persona, as `memory`; nothing was written."""
    conflicts: tuple[Conflict, ...]
    """With "detect", the most severe first; at most 100."""
    decision: Decision | None
    """With "resolve", where there was a conflict: what was decided, and why."""
    truncated: bool = False
    """The answer ended at 3 MiB: not all conflicts fit."""

    @property
    def memory_id(self) -> str:
        """The id of what is known now; empty if the statement was rejected."""
        return self.memory.memory_id if self.memory else ""


@dataclass(frozen=True, slots=True)
class SaveResult(JsonValue):
    """The result of one statement of `add_many`: a receipt, or the error of `add`."""

    position: int
    """Its position among all items, from 0."""
    receipt: WriteReceipt | None = None
    """Of what is known now; None if the rule rejected the statement, or it failed."""
    duplicate: bool = False
    decision_id: str = ""
    """With "resolve", where there was a conflict."""
    error: MnemonError | None = None

    @property
    def memory_id(self) -> str:
        """The id of what is known now; empty if it was rejected, or failed."""
        return self.receipt.id if self.receipt else ""

    def _fields(self) -> dict[str, Any]:
        return {**JsonValue._fields(self), "memory_id": self.memory_id}


@dataclass(frozen=True, slots=True)
class SemanticMatch(JsonValue):
    """One statement found. `score` is its relevance, 0 to 1, by which results are ordered."""

    _SPREAD = "memory"

    memory: SemanticMemory
    score: float
    similarity: float | None
    """Cosine similarity to the query, 0 to 1; None if no vectors were compared."""
    keyword_score: float | None = None

    @property
    def memory_id(self) -> str:
        """The statement's id."""
        return self.memory.memory_id

    @property
    def content(self) -> str:
        """The statement's text."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class SimilarityDiagnostics(Relevance):
    """The number of statements at each step of a search."""

    total_candidates: int
    """All that could be found."""
    filtered_by_context: int
    """Left out by scope and `where`."""
    filtered_by_window: int
    """Left out by `created_from` and `created_to`."""
    filtered_by_threshold: int
    """Left out by `min_similarity`, or because they share no word or meaning with the query."""
    matched_count: int
    """Passed all filters, before `limit`."""
    filtered_count: int
    """Left out by any filter."""
    returned: int
    exact: bool
    """True if every candidate was compared."""
    duration_s: float
    mode: SearchMode | None = None


@dataclass(frozen=True, slots=True)
class SimilarityAnswer(Answer[SemanticMatch]):
    """The results of a search, best first, and how they were found. It is itself a sequence of the results."""

    results: tuple[SemanticMatch, ...]
    diagnostics: SimilarityDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""


@dataclass(frozen=True, slots=True)
class SemanticMemoryPage(JsonValue):
    """A page of statements; `next_page_token` is empty after the last one."""

    memories: tuple[SemanticMemory, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class SemanticMemoryVersion(JsonValue):
    """An earlier version of a statement."""

    _SPREAD = "memory"

    memory: SemanticMemory
    version: VersionInfo


@dataclass(frozen=True, slots=True)
class SemanticMemoryVersionPage(JsonValue):
    """A page of versions, newest first; `next_page_token` is empty after the last one."""

    versions: tuple[SemanticMemoryVersion, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class SemanticDeleteReceipt(JsonValue):
    """The result of a permanent deletion, or of its dry run."""

    deleted_count: int
    superseded_count: int
    """Superseded statements that went with them."""
    receipts: tuple[WriteReceipt, ...]
    """One for each id that was named, in their order; none after a dry run."""
    commit_time: datetime | None
    """None after a dry run."""
    replayed: bool


class IndexState(StrEnum):
    """The state of the semantic index.

    `starting`: it is being loaded or built, and calls are answered with IndexWarmingError. `degraded`: it serves reads
    and limits writes. `unavailable`: it cannot be read.
    """

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class SemanticIndexStatus(JsonValue):
    """The state and the progress of the semantic index."""

    state: IndexState
    message: str
    """The reason if it is not ready."""
    record_count: int
    """Statements that can be found."""
    superseded_count: int
    indexed_count: int
    """While it is starting: vectors that the index has, of `total_count`."""
    total_count: int
    capacity: int
    """The maximum number of statements."""
    write_latency_s: float
    """Median of recent saves."""
    write_latency_target_s: float
    memory_bytes: int
    """Memory that vectors and graph use on the server."""
    graph_count: int
    """Vectors in the graph; 0 if all are compared one by one."""
    snapshot_time: datetime | None
    judge_failed_count: int = 0
    """How often the operator's judge of conflicts gave no usable answer in time, since the vault was opened."""


@dataclass(frozen=True, slots=True)
class SnapshotReceipt(JsonValue):
    """A snapshot of the index; `snapshot_time` is None if none was written, and `message` says why."""

    snapshot_time: datetime | None
    message: str
    replayed: bool = False
