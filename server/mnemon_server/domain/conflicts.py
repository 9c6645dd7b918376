"""Conflicts: the signals that two statements disagree, how a winner is chosen, and how the two are merged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from mnemon_server.domain.records import Scope

SOURCE_PRIORITY: Mapping[str, int] = {"user": 10, "conversation": 8, "skill": 6, "system": 4, "inferred": 2}
"""The priority of every other source is 0."""
FACTOR_WEIGHTS: Mapping[str, float] = {"importance": 0.4, "recency": 0.3, "source": 0.2, "semantic": 0.1}
CONFLICTS_DEFAULT, CONFLICTS_MAX = 100, 1_000


class SignalType(StrEnum):
    """The kinds of evidence that two statements conflict."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    TIME = "time"
    IMPORTANCE = "importance"
    RELATION = "relation"
    """The relation model takes them for related."""


class RelationType(StrEnum):
    """How two statements relate to each other."""

    SAME = "same"
    """Both say the same, or at least one whole claim is in both."""
    UPDATES = "updates"
    """One has another value of what the other states, or a later state of it."""
    CONTRADICTS = "contradicts"
    """One denies the other, or says the opposite."""
    UNRELATED = "unrelated"
    """Both can be true, and neither repeats the other."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How two statements probably relate. `probability` is that of the type, `related` that of any but UNRELATED.

    `judge` names the operator's model that said so, with its `reason`; both are empty for the server's own model.
    """

    type: RelationType
    probability: float
    related: float
    judge: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason for a conflict. `score` is 0 to 1. `bound` is the threshold that it passed; for TIME, the window in
    seconds.
    """

    type: SignalType
    score: float
    bound: float
    keywords: tuple[str, ...] = ()
    time_delta: timedelta | None = None
    importance_delta: float | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A stored statement that conflicts with a candidate. `severity` is the sum of its signals' scores.

    `relation` is None if a side has no embedding or no telling words.
    """

    memory_id: str
    signals: tuple[Signal, ...]
    severity: float
    relation: Relation | None = None


class ArbitrationAction(StrEnum):
    """The outcome for the two statements."""

    KEEP = "keep"
    MERGE = "merge"
    REJECT = "reject"
    NONE = "none"


class ArbitrationStrategy(StrEnum):
    """The rule by which the decision was made."""

    IMPORTANCE = "importance"
    RECENCY = "recency"
    SOURCE = "source"
    MULTI_FACTOR = "multi-factor"
    DEFAULT = "default"
    NONE = "none"


class ArbitrationSide(StrEnum):
    """Either of the two statements."""

    CANDIDATE = "candidate"
    EXISTING = "existing"


class DefaultStrategy(StrEnum):
    """The decision if no other strategy decides."""

    KEEP_CANDIDATE = "keep-candidate"
    KEEP_EXISTING = "keep-existing"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Factor:
    """One term of the multi-factor score, with the values of both sides, 0 to 1."""

    name: str
    weight: float
    candidate: float
    existing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbitrationResult:
    """A decision. `winner` and `loser` are None for MERGE and REJECT. `reason` is a sentence with the figures."""

    action: ArbitrationAction
    strategy: ArbitrationStrategy
    winner: ArbitrationSide | None = None
    loser: ArbitrationSide | None = None
    confidence: float
    reason: str
    factors: tuple[Factor, ...] = ()


class ContentStrategy(StrEnum):
    """How the contents of two statements are merged."""

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
    """When two statements conflict. A value must exceed its threshold; the time window includes its end."""

    semantic_threshold: float = 0.8
    keyword_threshold: float = 0.5
    time_window: timedelta = timedelta(minutes=5)
    importance_delta: float = 0.4
    relation_threshold: float = 0.3
    signals: frozenset[SignalType] = frozenset(SignalType)
    """The signals that are evaluated."""
    required_signals: frozenset[SignalType] = frozenset({SignalType.SEMANTIC, SignalType.KEYWORD, SignalType.RELATION})
    """There is a conflict only if one of these fired. They show that two statements are about the same subject."""

    @property
    def deciding_signals(self) -> frozenset[SignalType]:
        """At least one of these signals must fire. If none of them is evaluated: any evaluated signal."""
        return self.required_signals & self.signals or self.signals


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbitrationConfig:
    """How a conflict is decided; see `ArbitrationConfig` in the protos."""

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
    """How two statements are merged into one; see `MergeConfig` in the protos."""

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
    """Figures of a merge: code points, keywords, the merged importance minus the larger original one, sentences left
    out as duplicates, and sentences above the duplicate threshold that the guard kept.
    """

    content_length: int
    keywords_count: int
    importance_delta: float
    deduplicated_count: int
    guarded_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A resolved conflict; see `Decision` in the protos. The id of a statement that was not stored is empty."""

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
    relation: Relation | None = None
