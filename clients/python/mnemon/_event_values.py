"""The values of the event feed."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._decision_values import Decision
from mnemon._memory_values import Memory
from mnemon._semantic_values import SemanticMemory
from mnemon._values import Document, JsonValue, Scope

NOW, EARLIEST = "now", "earliest"


class EventType(StrEnum):
    """What happened to a record."""

    UNKNOWN = "unknown"
    """Something that this client is too old to know."""
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


@dataclass(frozen=True, slots=True)
class ServiceWarning(JsonValue):
    """What is wrong with a part of the service, and what helps."""

    severity: str
    """"warning", "critical", or "info" where it is over."""
    message: str
    remediation: str


EventDetails: TypeAlias = Decision | ServiceWarning | dict[str, Any] | str
"""What an event says in every view: of a conflict the decision as it was then, of a rule the rule as it was written,
of "memory:semantic:warning" and "…:healthy" a `ServiceWarning`, and of "memory:semantic:pruned" why: "deleted",
"superseded", "merged" or "unmerged".
"""


@dataclass(frozen=True, slots=True)
class Event(JsonValue):
    """One committed change of one record."""

    event_id: str
    sequence: int
    """Position in the log: strictly increasing, with gaps."""
    commit_id: str
    """The same for all events of one call."""
    commit_time: datetime | None
    type: EventType
    record_id: str
    revision: int
    """The record's, after the change."""
    scope: Scope
    request_id: str
    """The request_id of the call that made the change."""
    changed_fields: tuple[str, ...]
    """Names of the fields that an update changed."""
    record: Document | Memory | SemanticMemory | None = None
    """In the full view the record as it is now, None where it is gone."""
    details: EventDetails | None = None
    """What else is to be said."""


@dataclass(frozen=True, slots=True)
class EventPage(JsonValue):
    """A run of the log. `cursor` stands behind it; `caught_up` where nothing newer was in the log."""

    events: tuple[Event, ...]
    cursor: str
    caught_up: bool
