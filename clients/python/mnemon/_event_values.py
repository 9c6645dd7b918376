"""The values of the event feed."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnemon._memory_values import Memory
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
    record: Document | Memory | None = None
    """In the full view the record as it is now, None where it is gone."""


@dataclass(frozen=True, slots=True)
class EventPage(JsonValue):
    """A run of the log. `cursor` stands behind it; `caught_up` where nothing newer was in the log."""

    events: tuple[Event, ...]
    cursor: str
    caught_up: bool
