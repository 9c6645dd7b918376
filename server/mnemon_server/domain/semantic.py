"""Semantic memories: statements about users, and the requests and answers of the semantic memory service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.conflicts import ArbitrationResult, Conflict, ContentStrategy, Decision, MergeStatistics
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.filters import Expression, FilterFields
from mnemon_server.domain.records import MetadataValue, Relevance, Scope, SearchMode, TextQuery, WriteReceipt

TOP_K_DEFAULT, TOP_K_MAX = 3, 100
MIN_SIMILARITY_DEFAULT = 0.7
SUMMARY_BYTES_MAX = 65_536
SOURCE_BYTES_MAX = 256
KEYWORDS_MAX, KEYWORD_BYTES_MAX = 256, 256
IDS_MAX = 1_000

TEXTS = ("summary", "source", "superseded_by")
LISTS: Mapping[str, int] = {"keywords": KEYWORDS_MAX, "merged_from": 0}
"""The texts and the lists of texts of a statement, which are stored and answered under these names. Of a list, how many
entries a request may have; 0 if only the server sets it.
"""

FILTER_FIELDS = FilterFields(
    "statement",
    {
        **dict.fromkeys(("memory_id", *SCOPE_FIELDS, "content", "summary", "source"), FieldType.TEXT),
        "importance": FieldType.NUMBER,
        "keywords": FieldType.TEXTS,
        **dict.fromkeys(("create_time", "update_time"), FieldType.TIME),
    },
    {"memory_id": "id", "create_time": "time"},
)
"""The fields that a filter can name, in addition to "metadata." with a key."""


@dataclass(frozen=True, slots=True)
class SemanticMemory:
    """A statement; see `SemanticMemory` in the protos. `embedding` has unit length and is present only on request."""

    memory_id: str
    content: str
    summary: str = ""
    scope: Scope = Scope()
    importance: float | None = None
    keywords: tuple[str, ...] = ()
    source: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    create_time: datetime | None = None
    """When it was learnt. If None in a request: the time of the save."""
    update_time: datetime = EPOCH
    revision: int = 0
    merged_from: tuple[str, ...] = ()
    superseded_by: str = ""
    embedding: tuple[float, ...] | None = None


class ConflictPolicy(StrEnum):
    """How a save handles conflicts."""

    IGNORE = "ignore"
    DETECT = "detect"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticFilter:
    """Selects statements. All fields that are set must match. Times are inclusive."""

    scope: Scope = Scope()
    created_from: datetime | None = None
    created_to: datetime | None = None
    expression: Expression | None = None

    def __bool__(self) -> bool:
        """False if it selects everything."""
        return self != SemanticFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSemantic:
    """A statement to store. Values that only the server sets are ignored. If `embedding` is None, the server computes
    it.
    """

    memory: SemanticMemory
    embedding: Sequence[float] | None = None
    conflict_policy: ConflictPolicy = ConflictPolicy.IGNORE
    rule: str = ""
    """If empty: the rule whose conditions match."""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSemantic:
    """The result of a save. `memory` and `receipt` are None if the statement was rejected."""

    memory: SemanticMemory | None
    receipt: WriteReceipt | None
    duplicate: bool = False
    conflicts: tuple[Conflict, ...] = ()
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarQuery(TextQuery):
    """A search of statements."""

    top_k: int = TOP_K_DEFAULT
    min_similarity: float | None = None
    """None means MIN_SIMILARITY_DEFAULT if meaning alone is compared, or else any similarity."""
    where: SemanticFilter = SemanticFilter()


@dataclass(frozen=True, slots=True)
class SemanticMatch:
    """A statement that a search found. `similarity` is the cosine similarity, 0 to 1; None if it was not compared."""

    memory: SemanticMemory
    score: float
    similarity: float | None
    keyword_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityDiagnostics:
    """Number of statements at each stage of a search; see `SearchDiagnostics` in the protos."""

    mode: SearchMode
    total_candidates: int = 0
    filtered_by_context: int = 0
    filtered_by_window: int = 0
    filtered_by_threshold: int = 0
    matched_count: int = 0
    filtered_count: int = 0
    returned: int = 0
    exact: bool = True
    duration_s: float = 0.0
    relevance: Relevance | None = None


@dataclass(frozen=True, slots=True)
class SimilarAnswer:
    """The complete answer of a search, best first."""

    results: tuple[SemanticMatch, ...]
    diagnostics: SimilarityDiagnostics


@dataclass(frozen=True, slots=True)
class DeletedSemantic:
    """How many statements were or would be removed, and how many superseded statements with them."""

    deleted_count: int
    superseded_count: int = 0
    receipts: tuple[WriteReceipt, ...] = ()
    """Receipts for the requested ids, in order; empty for a dry run."""
    commit_time: datetime | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """When the snapshot of the index's graph was written. If None, `message` says why it was not written."""

    time: datetime | None
    message: str = ""
    replayed: bool = False


class IndexState(StrEnum):
    """The state of the index."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The status of the index; see `GetIndexStatusResponse` in the protos. Times are in seconds."""

    state: IndexState
    message: str = ""
    record_count: int = 0
    superseded_count: int = 0
    indexed_count: int = 0
    total_count: int = 0
    capacity: int = 0
    write_latency_s: float = 0.0
    write_latency_target_s: float = 0.0
    memory_bytes: int = 0
    graph_count: int = 0
    snapshot_time: datetime | None = None
    judge_failed_count: int = 0


# Requests and answers of the conflict service


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRef:
    """A statement: either the id of a stored one, or a statement given in full, with its embedding if it has one."""

    memory_id: str = ""
    memory: SemanticMemory | None = None
    expected_revision: int | None = None
    """The expected revision of a stored statement. Another revision causes a RevisionMismatchError."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The conflicts, most severe first, their total number, and the name of the rule that was applied."""

    conflicts: tuple[Conflict, ...]
    total_count: int
    rule: str


@dataclass(frozen=True, slots=True)
class Arbitrated:
    """The decision, and the name of the rule that was applied."""

    result: ArbitrationResult
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedMemories:
    """A merged statement. It has no id and no decision if it was not stored."""

    memory: SemanticMemory
    statistics: MergeStatistics
    content_strategy: ContentStrategy
    """The strategy that was applied. SMART is resolved to the one it chose."""
    decision: Decision | None
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmerged:
    """The result of undoing a merge: the restored statements, the removed one (if any), and the reverted decision."""

    restored: tuple[SemanticMemory, ...]
    removed_id: str
    decision: Decision
