"""The kinds of records: one table of what the server knows about each. Lists of kinds are derived from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import (
    DECISIONS,
    DOCUMENTS,
    FACTS,
    GRANTS,
    MEMORIES,
    RULES,
    SEMANTIC,
    VERSIONS,
    Collection,
)
from mnemon_server.domain.filters import AllOf, Condition, Operator, RecordFilter


class RecordKind(StrEnum):
    """The kind of a record. The names are those of the API."""

    DOCUMENT = "document"
    MEMORY = "memory"
    FACT = "fact"
    SEMANTIC = "semantic"
    DECISION = "decision"
    RULE = "rule"
    EVENT = "event"
    VERSION = "version"
    """An earlier state of a record of another kind."""
    GRANT = "grant"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTraits:
    """The description of a kind."""

    collection: Collection | None
    """Where its records are stored; None for events, which are in the timeline."""
    created: ChangeType | None = None
    """The change that adds a record; None if that is not logged."""
    updated: ChangeType | None = None
    hidden: ChangeType | None = None
    """The change that hides a record but keeps it."""
    removed: ChangeType | None = None
    """The change that removes a record permanently."""
    shown: frozenset[ChangeType] = frozenset()
    """The changes that the feed can show together with their record."""
    has_scope: bool = True
    """Whether its records belong to a user, household, persona, agent or project."""
    is_embedded: bool = False
    """Whether the texts of its records have vectors."""


KINDS: Mapping[RecordKind, KindTraits] = {
    RecordKind.DOCUMENT: KindTraits(
        collection=DOCUMENTS,
        created=ChangeType.KNOWLEDGE_INDEXED,
        updated=ChangeType.KNOWLEDGE_INDEXED,
        removed=ChangeType.KNOWLEDGE_DELETED,
        shown=frozenset({ChangeType.KNOWLEDGE_INDEXED, ChangeType.KNOWLEDGE_DELETED}),
        is_embedded=True,
    ),
    RecordKind.MEMORY: KindTraits(
        collection=MEMORIES,
        created=ChangeType.MEMORY_CREATED,
        updated=ChangeType.MEMORY_UPDATED,
        hidden=ChangeType.MEMORY_DELETED,
        removed=ChangeType.MEMORY_PURGED,
        shown=frozenset(
            {
                ChangeType.MEMORY_CREATED,
                ChangeType.MEMORY_UPDATED,
                ChangeType.MEMORY_REINFORCED,
                ChangeType.MEMORY_DELETED,
                ChangeType.MEMORY_UNDELETED,
                ChangeType.MEMORY_PURGED,
            }
        ),
        is_embedded=True,
    ),
    RecordKind.FACT: KindTraits(
        collection=FACTS,
        created=ChangeType.FACT_CREATED,
        updated=ChangeType.FACT_UPDATED,
        removed=ChangeType.FACT_DELETED,
        shown=frozenset({ChangeType.FACT_CREATED, ChangeType.FACT_UPDATED, ChangeType.FACT_DELETED}),
        has_scope=False,
        is_embedded=True,
    ),
    RecordKind.SEMANTIC: KindTraits(
        collection=SEMANTIC,
        created=ChangeType.SEMANTIC_SAVED,
        updated=ChangeType.SEMANTIC_SAVED,
        hidden=ChangeType.SEMANTIC_PRUNED,
        removed=ChangeType.SEMANTIC_PRUNED,
        shown=frozenset({ChangeType.SEMANTIC_SAVED, ChangeType.SEMANTIC_PRUNED}),
        is_embedded=True,
    ),
    RecordKind.DECISION: KindTraits(
        collection=DECISIONS, created=ChangeType.CONFLICT_RESOLVED, updated=ChangeType.CONFLICT_RESOLVED
    ),
    RecordKind.RULE: KindTraits(
        collection=RULES,
        created=ChangeType.RULE_REGISTERED,
        updated=ChangeType.RULE_UPDATED,
        removed=ChangeType.RULE_DELETED,
        has_scope=False,
    ),
    RecordKind.EVENT: KindTraits(
        collection=None,
        created=ChangeType.EPISODIC_SAVED,
        updated=ChangeType.EPISODIC_SAVED,
        removed=ChangeType.EPISODIC_PRUNED,
        shown=frozenset({ChangeType.EPISODIC_SAVED}),
    ),
    RecordKind.VERSION: KindTraits(collection=VERSIONS, is_embedded=True),
    RecordKind.GRANT: KindTraits(collection=GRANTS),
}

COLLECTION_OF: Mapping[RecordKind, Collection] = {
    kind: traits.collection for kind, traits in KINDS.items() if traits.collection is not None
}
"""The collection of each kind except EVENT."""
EMBEDDED = frozenset(kind for kind, traits in KINDS.items() if traits.is_embedded)
"""The kinds whose texts have vectors."""
VERSIONED = frozenset(kind for kind, collection in COLLECTION_OF.items() if collection.keeps_versions)
"""The kinds whose records keep earlier versions."""
WITHOUT_SCOPE = frozenset(kind for kind, traits in KINDS.items() if not traits.has_scope)
REMOVALS: Mapping[ChangeType, RecordKind] = {
    traits.removed: kind for kind, traits in KINDS.items() if traits.removed is not None
}
"""The kind of record that each of these changes removes permanently."""
SHOWN: Mapping[ChangeType, RecordKind] = {change: kind for kind, traits in KINDS.items() for change in traits.shown}
"""The kind of record that the feed can show with each of these changes."""


def versions_of(kind: RecordKind, record_ids: Sequence[str]) -> RecordFilter:
    """The filter for the versions of these records."""
    of_kind = Condition("kind", Operator.EQ, (kind.value,))
    of_records = Condition("record_id", Operator.IN, tuple(record_ids))
    return RecordFilter(expression=AllOf((of_records, of_kind)), hidden=None)
