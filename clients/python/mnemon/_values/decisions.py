"""The values of conflicts and decisions that callers get."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnemon._values.documents import JsonValue, Scope


class SignalType(StrEnum):
    """The signal by which two statements conflict."""

    UNKNOWN = "unknown"
    """A value that this client is too old to know, here and in the other enumerations."""
    SEMANTIC = "semantic"
    """They mean nearly the same."""
    KEYWORD = "keyword"
    """They are about the same words."""
    TIME = "time"
    """They were learnt within a window."""
    IMPORTANCE = "importance"
    """They are of different importance."""
    RELATION = "relation"
    """A model takes them for related."""


class RelationType(StrEnum):
    """How two statements relate."""

    UNKNOWN = "unknown"
    SAME = "same"
    """Both say the same, or at least one whole claim is in both."""
    UPDATES = "updates"
    """One has another value of what the other states, or a later state of it."""
    CONTRADICTS = "contradicts"
    """One denies the other, or says the opposite."""
    UNRELATED = "unrelated"
    """Both can be true, and neither repeats the other."""


@dataclass(frozen=True, slots=True)
class StatementRelation(JsonValue):
    """How two statements probably relate."""

    type: RelationType
    probability: float
    """Of this relation, 0 to 1."""
    judge: str = ""
    """The operator's model that said so; empty if the server's own model did."""
    reason: str = ""
    """Why, in the words of the judge."""


@dataclass(frozen=True, slots=True)
class ConflictSignal(JsonValue):
    """One reason why two statements conflict."""

    type: SignalType
    score: float
    """How strongly, 0 to 1."""
    bound: float
    """The threshold or delta that was passed; of `time`, the window in seconds."""
    keywords: tuple[str, ...] = ()
    """The words that both are about, of `keyword`."""
    time_delta_s: float | None = None
    """The interval between them, of `time`."""
    importance_delta: float | None = None
    """By how much they differ, of `importance`."""


@dataclass(frozen=True, slots=True)
class Conflict(JsonValue):
    """A stored statement that does not agree with a candidate."""

    memory_id: str
    signals: tuple[ConflictSignal, ...]
    severity: float
    """The sum of the signals' scores."""
    relation: StatementRelation | None = None
    """How the two probably relate; None if the server cannot tell."""


class ArbitrationAction(StrEnum):
    """The outcome for two statements: one is kept and the other gives way, they are merged, or the new one is rejected.

    `none`: there was no conflict, and both stay.
    """

    UNKNOWN = "unknown"
    KEEP = "keep"
    MERGE = "merge"
    REJECT = "reject"
    NONE = "none"


class ArbitrationStrategy(StrEnum):
    """The criterion of a decision."""

    UNKNOWN = "unknown"
    IMPORTANCE = "importance"
    RECENCY = "recency"
    SOURCE = "source"
    MULTI_FACTOR = "multi-factor"
    DEFAULT = "default"
    NONE = "none"


class ArbitrationSide(StrEnum):
    """One of the two statements: the new one or the known one."""

    CANDIDATE = "candidate"
    EXISTING = "existing"


@dataclass(frozen=True, slots=True)
class ArbitrationFactor(JsonValue):
    """One summand of the multi-factor score: "importance", "recency", "source" or "semantic", each side 0 to 1."""

    name: str
    weight: float
    candidate: float
    existing: float


@dataclass(frozen=True, slots=True)
class Arbitration(JsonValue):
    """A decision between a candidate and an existing statement, and why."""

    action: ArbitrationAction
    strategy: ArbitrationStrategy
    winner: ArbitrationSide | None
    """The one that is kept; None unless the action is `keep`."""
    loser: ArbitrationSide | None
    confidence: float
    """How sure the decision is, 0 to 1."""
    reason: str
    """The reason in a sentence, with the figures."""
    factors: tuple[ArbitrationFactor, ...]


@dataclass(frozen=True, slots=True)
class MergeStatistics(JsonValue):
    """Figures of a merge."""

    content_length: int
    """Characters of the merged content."""
    keywords_count: int
    importance_delta: float
    """Merged importance less the larger of the two; 0 if both are unknown."""
    deduplicated_count: int
    """Sentences that were left out because another said the same."""
    guarded_count: int = 0
    """Equally similar sentences that stayed, because they may say something else."""


@dataclass(frozen=True, slots=True)
class Decision(JsonValue):
    """A resolved conflict. It is kept for as long as its statements."""

    decision_id: str
    scope: Scope
    candidate_id: str
    """The new statement; empty if it was rejected, or in a preview."""
    existing_id: str
    result_id: str
    """The resulting statement: one of the two, or the merged statement; empty if the candidate was rejected."""
    rule: str
    signals: tuple[ConflictSignal, ...]
    """Why they conflict; stored decisions do not repeat the words that both are about."""
    conflict_count: int
    """How many statements conflicted; this is about the most severe."""
    arbitration: Arbitration
    merge: MergeStatistics | None
    create_time: datetime | None
    revert_time: datetime | None
    """When it was undone; None if it still holds."""
    relation: StatementRelation | None = None
    """How the two statements probably relate; None if the server cannot tell."""


@dataclass(frozen=True, slots=True)
class DecisionPage(JsonValue):
    """A page of decisions, newest first; `next_page_token` is empty after the last one."""

    decisions: tuple[Decision, ...]
    next_page_token: str
