"""Changes: what the log of a vault says of each committed change."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from mnemon_server.domain.records import Scope

RECORD_IDS_MAX = 256
BATCH_DEFAULT, BATCH_MAX = 500, 1_000

LOG_TABLE = "event"
"""The name of the log on disk, where a collection's would stand."""


class ChangeType(StrEnum):
    """What happened."""

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


class Change(NamedTuple):
    """One committed change of one record. It holds no text of the record: what is purged leaves nothing here.

    A tuple, because a backlog is a million of them: a frozen dataclass takes three times as long to make.
    """

    sequence: int
    """Position in the log; the sequence of the record's change."""
    commit: int
    """The sequence of the first change of the same call."""
    time: datetime
    """When it was committed; never earlier than the change before."""
    type: ChangeType
    record_id: str
    revision: int
    """The record's, after the change."""
    scope: Scope = Scope()
    request_id: str = ""
    changed: tuple[str, ...] = ()
    """Names of the fields that an update changed."""
    details: str = ""
    """What else is to be said, as JSON: a decision, a rule, a warning, or why something was pruned."""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are meant: joined by AND across fields, by OR within one; nothing set means all."""

    types: frozenset[ChangeType] = frozenset()
    scope: Scope = Scope()
    record_ids: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """False where it matches everything."""
        return bool(self.types or self.record_ids) or self.scope != Scope()

    def matches(self, change: Change) -> bool:
        """Whether the change is meant."""
        return (
            (not self.types or change.type in self.types)
            and (not self.record_ids or change.record_id in self.record_ids)
            and (self.scope == change.scope or self._scope_matches(change.scope))
        )

    def _scope_matches(self, scope: Scope) -> bool:
        wanted = self.scope
        return (
            wanted.user in ("", scope.user)
            and wanted.household in ("", scope.household)
            and wanted.persona in ("", scope.persona)
            and wanted.agent in ("", scope.agent)
            and wanted.project in ("", scope.project)
        )


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """A run of the log: the changes that match, and how far it was read for them."""

    changes: tuple[Change, ...]
    position: int
    """Everything up to here was read."""
    caught_up: bool
    """Nothing lay behind `position`."""
    floor: int = 0
    """Changes up to here were gone when it was read, so that a slice from before may have a gap."""


@dataclass(frozen=True, slots=True)
class ChangeLogState:
    """What of the log is kept."""

    floor: int
    """Changes up to here are gone; 0 where none is."""
    head: int
    """Sequence of the newest change, be it kept or gone; 0 where there never was one."""
    count: int
    first_time: datetime | None
    """Commit time of the oldest change that is kept."""
    head_time: datetime | None
