"""Conflicts: what tells that two statements do not agree, how it is decided between them, how they are merged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from mnemon_server.domain.records import Scope

SOURCE_PRIORITY: Mapping[str, int] = {"user": 10, "conversation": 8, "skill": 6, "system": 4, "inferred": 2}
"""Any other source has 0."""
FACTOR_WEIGHTS: Mapping[str, float] = {"importance": 0.4, "recency": 0.3, "source": 0.2, "semantic": 0.1}
CONFLICTS_DEFAULT, CONFLICTS_MAX = 100, 1_000


class SignalType(StrEnum):
    """By what two statements are told to conflict."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    TIME = "time"
    IMPORTANCE = "importance"


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason for a conflict. `score` is 0 to 1; `bound` is what was passed, of TIME the window in seconds."""

    type: SignalType
    score: float
    bound: float
    keywords: tuple[str, ...] = ()
    time_delta: timedelta | None = None
    importance_delta: float | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A stored statement that does not agree with a candidate; `severity` is the sum of its signals' scores."""

    memory_id: str
    signals: tuple[Signal, ...]
    severity: float


class ArbitrationAction(StrEnum):
    """What becomes of two statements."""

    KEEP = "keep"
    MERGE = "merge"
    REJECT = "reject"
    NONE = "none"


class ArbitrationStrategy(StrEnum):
    """By what it was decided."""

    IMPORTANCE = "importance"
    RECENCY = "recency"
    SOURCE = "source"
    MULTI_FACTOR = "multi-factor"
    DEFAULT = "default"
    NONE = "none"


class ArbitrationSide(StrEnum):
    """One of the two statements."""

    CANDIDATE = "candidate"
    EXISTING = "existing"


class DefaultStrategy(StrEnum):
    """What is decided where nothing else decides."""

    KEEP_CANDIDATE = "keep-candidate"
    KEEP_EXISTING = "keep-existing"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Factor:
    """One summand of the multi-factor score: the two sides' values, 0 to 1."""

    name: str
    weight: float
    candidate: float
    existing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbitrationResult:
    """A decision; `winner` and `loser` are None for MERGE and REJECT. `reason` is a sentence with the figures."""

    action: ArbitrationAction
    strategy: ArbitrationStrategy
    winner: ArbitrationSide | None = None
    loser: ArbitrationSide | None = None
    confidence: float
    reason: str
    factors: tuple[Factor, ...] = ()


class ContentStrategy(StrEnum):
    """How contents are merged."""

    CONCATENATE = "concatenate"
    REPLACE = "replace"
    SUMMARIZE = "summarize"
    SMART = "smart"


class ImportanceStrategy(StrEnum):
    """How importance is merged."""

    MAX = "max"
    BOOST = "boost"
    AVERAGE = "average"


class TimestampStrategy(StrEnum):
    """How times are merged."""

    MAX = "max"
    MIN = "min"


class SourceStrategy(StrEnum):
    """How sources are merged."""

    PREFER_HIGHER = "prefer-higher"
    FIRST = "first"
    SECOND = "second"


class KeywordsStrategy(StrEnum):
    """How keywords are merged."""

    UNION = "union"
    INTERSECTION = "intersection"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionConfig:
    """What a conflict is; thresholds are strict but for the time window, which counts itself in."""

    semantic_threshold: float = 0.8
    keyword_threshold: float = 0.5
    time_window: timedelta = timedelta(minutes=5)
    importance_delta: float = 0.4
    signals: frozenset[SignalType] = frozenset(SignalType)
    """Those that count."""
    required_signals: frozenset[SignalType] = frozenset({SignalType.SEMANTIC, SignalType.KEYWORD})
    """Of these, one must fire before a save decides anything: they tell that two statements are about the same."""

    @property
    def deciding_signals(self) -> frozenset[SignalType]:
        """Those of which one must fire; where none of the required ones counts, any that does."""
        return self.required_signals & self.signals or self.signals


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbitrationConfig:
    """How it is decided; see `ArbitrationConfig` of the protos."""

    priority_importance: bool = True
    priority_recency: bool = True
    priority_source: bool = True
    weights: Mapping[str, float] = field(default_factory=lambda: dict(FACTOR_WEIGHTS))
    merge_threshold: float = 0.2
    allow_merge: bool = True
    default_strategy: DefaultStrategy = DefaultStrategy.KEEP_CANDIDATE
    source_priority: Mapping[str, float] = field(default_factory=lambda: dict(SOURCE_PRIORITY))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeConfig:
    """How two statements become one; see `MergeConfig` of the protos."""

    content_strategy: ContentStrategy = ContentStrategy.SMART
    importance_strategy: ImportanceStrategy = ImportanceStrategy.BOOST
    importance_boost: float = 0.1
    timestamp_strategy: TimestampStrategy = TimestampStrategy.MAX
    source_strategy: SourceStrategy = SourceStrategy.PREFER_HIGHER
    keywords_strategy: KeywordsStrategy = KeywordsStrategy.UNION
    deduplicate: bool = True
    deduplication_threshold: float = 0.8
    deduplication_guard: bool = True
    keep_history: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStatistics:
    """What a merge did: code points, keywords, merged importance less the larger one, sentences left out, and those
    that reached the threshold and were kept by the guard."""

    content_length: int
    keywords_count: int
    importance_delta: float
    deduplicated_count: int
    guarded_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A conflict that was resolved; see `Decision` of the protos. Ids of what is not stored are empty."""

    decision_id: str
    scope: Scope
    candidate_id: str
    existing_id: str
    result_id: str
    rule: str
    signals: tuple[Signal, ...]
    conflict_count: int
    arbitration: ArbitrationResult
    merge: MergeStatistics | None = None
    create_time: datetime | None = None
    revert_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class DecisionPage:
    """A page of decisions, newest first; `next_position` is None after the last one."""

    decisions: tuple[Decision, ...]
    next_position: int | None
