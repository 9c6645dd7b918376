"""The values of the change feed."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._values.bridge import PruneAction
from mnemon._values.decisions import Decision
from mnemon._values.documents import Document, JsonValue, Scope
from mnemon._values.facts import Fact, Namespace
from mnemon._values.memories import Memory
from mnemon._values.semantic import SemanticMemory
from mnemon._values.timeline import EpisodicEvent

NOW, EARLIEST = "now", "earliest"


class ChangeType(StrEnum):
    """The type of a change."""

    UNKNOWN = "unknown"
    """A value that this client is too old to know, here and in the other enumerations."""
    KNOWLEDGE_INDEXED = "knowledge:indexed"
    KNOWLEDGE_DELETED = "knowledge:deleted"
    MEMORY_CREATED = "memory:created"
    MEMORY_UPDATED = "memory:updated"
    MEMORY_REINFORCED = "memory:reinforced"
    MEMORY_DELETED = "memory:deleted"
    MEMORY_UNDELETED = "memory:undeleted"
    MEMORY_PURGED = "memory:purged"
    SEMANTIC_SAVED = "memory:semantic:saved"
    SEMANTIC_PRUNED = "memory:semantic:pruned"
    SEMANTIC_WARNING = "memory:semantic:warning"
    SEMANTIC_HEALTHY = "memory:semantic:healthy"
    CONFLICT_DETECTED = "memory:conflict:detected"
    CONFLICT_RESOLVED = "memory:conflict:resolved"
    CONFLICT_MERGED = "memory:conflict:merged"
    CONFLICT_REVERTED = "memory:conflict:reverted"
    RULE_REGISTERED = "rule:registered"
    RULE_UPDATED = "rule:updated"
    RULE_DELETED = "rule:deleted"
    EPISODIC_SAVED = "memory:episodic:saved"
    EPISODIC_PRUNED = "memory:episodic:pruned"
    EPISODIC_WARNING = "memory:episodic:warning"
    EPISODIC_HEALTHY = "memory:episodic:healthy"
    BRIDGE_SUSPENDED = "memory:bridge:suspended"
    BRIDGE_RESUMED = "memory:bridge:resumed"
    BRIDGE_RECONCILED = "memory:bridge:reconciled"
    FACT_CREATED = "memory:fact:created"
    FACT_UPDATED = "memory:fact:updated"
    FACT_DELETED = "memory:fact:deleted"
    RECORDS_ERASED = "records:erased"


class WarningSeverity(StrEnum):
    """The severity of a warning."""

    UNKNOWN = "unknown"
    INFO = "info"
    """It is over."""
    WARNING = "warning"
    CRITICAL = "critical"


class SemanticPruneReason(StrEnum):
    """Why a statement is no longer found."""

    UNKNOWN = "unknown"
    DELETED = "deleted"
    SUPERSEDED = "superseded"
    MERGED = "merged"
    """It is part of a merged one."""
    UNMERGED = "unmerged"
    """It was the result of a merge that was undone."""


class PruneReason(StrEnum):
    """Why events of the timeline were pruned."""

    UNKNOWN = "unknown"
    RETENTION = "retention"
    REQUESTED = "requested"


class FactDeletionReason(StrEnum):
    """Why a fact was removed."""

    UNKNOWN = "unknown"
    REQUESTED = "requested"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class ServiceWarning(JsonValue):
    """A problem of a part of the service, and its remedy."""

    severity: WarningSeverity
    message: str
    remediation: str


@dataclass(frozen=True, slots=True)
class EpisodicSaved(JsonValue):
    """A recorded event of the timeline."""

    event_type: str
    event_time: datetime | None
    """When it happened."""
    importance: float | None
    segment_id: int
    timeline_lag_s: float
    """How long after it happened it was recorded; 0 if it lay in the future."""
    segment_count: int
    """Segments that the timeline had then."""
    content_hash: str
    """SHA-256 of the content, in lower-case hexadecimal."""
    content: str | None = None
    """The content, in every view; None if the event has been removed."""
    conversation: str = ""
    """The conversation that it belongs to."""


@dataclass(frozen=True, slots=True)
class PrunedEvent(JsonValue):
    """One event of the timeline that was pruned."""

    event_id: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class EpisodicPruned(JsonValue):
    """Events of the timeline that were pruned."""

    segment_id: int
    reason: PruneReason
    events: tuple[PrunedEvent, ...]


@dataclass(frozen=True, slots=True)
class Reconciliation(JsonValue):
    """The bridge's action on pruned events."""

    event_ids: tuple[str, ...]
    """The events that statements were linked to."""
    action: PruneAction | None
    """None if this client is too old to know the value."""
    memory_ids: tuple[str, ...]
    """The statements that this happened to."""
    unlinked_memory_ids: tuple[str, ...]
    """Statements that only lost a link, since other events still say the same."""


@dataclass(frozen=True, slots=True)
class FactChange(JsonValue):
    """Which fact changed; its record id stands for namespace and key together."""

    namespace: Namespace
    key: str
    reason: FactDeletionReason | None = None
    """Of a fact that was removed."""


ChangeDetails: TypeAlias = (
    Decision
    | ServiceWarning
    | EpisodicSaved
    | EpisodicPruned
    | Reconciliation
    | FactChange
    | dict[str, Any]
    | SemanticPruneReason
)
"""The details of a change in every view: of a conflict the decision at that time, of a rule the rule as written,
of a warning, a suspension, and the end of either a `ServiceWarning`, of "memory:semantic:pruned" why,
and of the timeline, the bridge and facts the values above.
"""


@dataclass(frozen=True, slots=True)
class Change(JsonValue):
    """One committed change of one record."""

    change_id: str
    sequence: int
    """Position in the log: strictly increasing, with gaps."""
    commit_id: str
    """The same for all changes of one call."""
    commit_time: datetime | None
    type: ChangeType
    record_id: str
    revision: int
    """The record's, after the change."""
    scope: Scope
    request_id: str
    """The request_id of the call that made the change."""
    changed_fields: tuple[str, ...]
    """Names of the fields that an update changed."""
    record: Document | Memory | SemanticMemory | EpisodicEvent | Fact | None = None
    """In the full view, the record as it is now; None if it has been removed."""
    details: ChangeDetails | None = None
    """Further details."""


@dataclass(frozen=True, slots=True)
class ChangePage(JsonValue):
    """A part of the log. `cursor` is the position behind it; `caught_up` is true if the log has no newer changes."""

    changes: tuple[Change, ...]
    cursor: str
    caught_up: bool
