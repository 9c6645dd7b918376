"""Changes: the entries of a vault's change log, one for each committed change."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.access.shares import covers, is_whole_user
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.records import Scope

RECORD_IDS_MAX = 256
BATCH_DEFAULT, BATCH_MAX = 500, 1_000

LOG_TABLE = "event"
"""The name of the log on disk, used where a collection's name would stand."""


class ChangeType(StrEnum):
    """The type of a change."""

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


CHANGES_OF_FACTS = frozenset({ChangeType.FACT_CREATED, ChangeType.FACT_UPDATED, ChangeType.FACT_DELETED})
"""Their details name the namespace, which they belong to."""
CHANGES_OF_USERS = frozenset(
    {
        ChangeType.KNOWLEDGE_INDEXED,
        ChangeType.KNOWLEDGE_DELETED,
        ChangeType.MEMORY_CREATED,
        ChangeType.MEMORY_UPDATED,
        ChangeType.MEMORY_REINFORCED,
        ChangeType.MEMORY_DELETED,
        ChangeType.MEMORY_UNDELETED,
        ChangeType.MEMORY_PURGED,
        ChangeType.SEMANTIC_SAVED,
        ChangeType.SEMANTIC_PRUNED,
        ChangeType.CONFLICT_DETECTED,
        ChangeType.CONFLICT_RESOLVED,
        ChangeType.CONFLICT_MERGED,
        ChangeType.CONFLICT_REVERTED,
        ChangeType.EPISODIC_SAVED,
        ChangeType.EPISODIC_PRUNED,
    }
)
"""They belong to the user in their scope. Only these and those of facts exist for callers with bounds."""
CHANGES_BY_DECISIONS = frozenset(
    {
        ChangeType.SEMANTIC_PRUNED,
        ChangeType.CONFLICT_DETECTED,
        ChangeType.CONFLICT_RESOLVED,
        ChangeType.CONFLICT_MERGED,
        ChangeType.CONFLICT_REVERTED,
    }
)
"""Their details may be about two statements, of which only one has the scope of the change."""


class Change(NamedTuple):
    """One committed change of one record. It holds no text of the record, so a purge leaves no content in the log.

    A tuple, because a backlog can hold a million of them and a frozen dataclass takes three times as long to create.
    """

    sequence: int
    """Position in the log, the same as the sequence number of the record's change."""
    commit: int
    """The sequence number of the first change of the same call."""
    time: datetime
    """Commit time. Never earlier than that of the previous change."""
    type: ChangeType
    record_id: str
    revision: int
    """Revision of the record after the change."""
    scope: Scope = Scope()
    request_id: str = ""
    changed: tuple[str, ...] = ()
    """Names of the fields that an update changed."""
    details: str = ""
    """Details as JSON: a decision, a rule, a warning, or the reason why an event was pruned."""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Selects changes. Fields are joined by AND, the values of one field by OR; an empty filter selects all changes."""

    types: frozenset[ChangeType] = frozenset()
    scope: Scope = Scope()
    record_ids: frozenset[str] = frozenset()
    conversation: str = ""
    """Selects the events that are saved in it."""
    bounds: Bounds = UNBOUNDED
    """Selects the changes that exist for a caller."""

    def __bool__(self) -> bool:
        """False if it selects everything."""
        return bool(self.types or self.record_ids or self.conversation or self.bounds) or self.scope != Scope()

    def matches(self, change: Change) -> bool:
        """Whether the filter selects the change."""
        return (
            (not self.types or change.type in self.types)
            and (not self.record_ids or change.record_id in self.record_ids)
            and (self.scope == change.scope or self._scope_matches(change.scope))
            and (not self.conversation or self._is_in_conversation(change))
            and (not self.bounds or self._admits(change))
        )

    def _is_in_conversation(self, change: Change) -> bool:
        if change.type is not ChangeType.EPISODIC_SAVED:
            return False
        try:
            return bool(json.loads(change.details).get("conversation") == self.conversation)
        except UNREADABLE:
            return False

    def _scope_matches(self, scope: Scope) -> bool:
        wanted = zip(scope_values(self.scope), scope_values(scope), strict=True)
        return all(text in ("", found) for text, found in wanted)

    def _admits(self, change: Change) -> bool:
        if self.bounds.hides(change.scope):
            return False
        if not self.bounds.is_bound:
            return True
        scopes, spaces = self.bounds.scopes(), self.bounds.spaces()
        if change.type not in CHANGES_OF_FACTS:
            is_of = change.type in CHANGES_OF_USERS
            return is_of and (scopes is None or any(_is_in(change, each) for each in scopes))
        if spaces is None:
            return True
        try:
            labels = json.loads(change.details)["namespace"]
        except UNREADABLE:
            return False
        return any(labels[: len(one)] == list(one) for one in spaces)


def _is_in(change: Change, scope: Scope) -> bool:
    return covers(scope, change.scope) and (change.type not in CHANGES_BY_DECISIONS or is_whole_user(scope))


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """The selected changes of one section of the log, and how far the log was read to find them."""

    changes: tuple[Change, ...]
    position: int
    """Sequence number of the last change that was read, selected or not."""
    caught_up: bool
    """True if the log had no change after `position`."""
    floor: int = 0
    """Changes up to this sequence number had been removed when the log was read. A slice that starts earlier may have a
    gap.
    """


@dataclass(frozen=True, slots=True)
class ChangeLogState:
    """Which part of the log is kept."""

    floor: int
    """Changes up to this sequence number have been removed; 0 if none were removed."""
    head: int
    """Sequence number of the newest change, even if it has been removed; 0 if there never was a change."""
    count: int
    first_time: datetime | None
    """Commit time of the oldest kept change."""
    head_time: datetime | None
