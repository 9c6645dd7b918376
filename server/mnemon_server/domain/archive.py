"""Archives: what an export gives and an import takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.collections import DECISIONS, DOCUMENTS, FACTS, MEMORIES, RULES, SEMANTIC, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.episodic import EpisodicEvent
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import Scope

FORMAT_VERSION = 1
RECORDS_MAX = 1_000
"""Of one message."""
FIGURE_MAX = 2**53 - 1
"""Of a revision, and of the version of the rules: every reader of JSON keeps it exactly, and counting on from it never
comes to the end of 64 bits. A greater one is archived as this one."""
FIGURE_RANGE = f"must be 0 to {FIGURE_MAX:,}"


class RecordKind(StrEnum):
    """What kind of record it is."""

    DOCUMENT = "document"
    MEMORY = "memory"
    FACT = "fact"
    SEMANTIC = "semantic"
    DECISION = "decision"
    RULE = "rule"
    EVENT = "event"


COLLECTIONS: Mapping[RecordKind, Collection] = {
    RecordKind.DOCUMENT: DOCUMENTS,
    RecordKind.MEMORY: MEMORIES,
    RecordKind.FACT: FACTS,
    RecordKind.SEMANTIC: SEMANTIC,
    RecordKind.DECISION: DECISIONS,
    RecordKind.RULE: RULES,
}
"""The collection of every kind but EVENT."""
WITHOUT_SCOPE = frozenset({RecordKind.FACT, RecordKind.RULE})


class ImportConflict(StrEnum):
    """What becomes of a record whose id is taken by another state of it; see the proto."""

    NEWER = "newer"
    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


class ImportOutcome(StrEnum):
    """What became of a record that was not refused."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class VectorModel:
    """The model that made the vectors of an archive."""

    name: str
    revision: str
    precision: str
    dimension: int

    @property
    def identity(self) -> str:
        """What must be equal for two vectors to be comparable."""
        return f"{self.name}@{self.revision}/{self.precision}/{self.dimension}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSelection:
    """What is exported: everything that is set must hold."""

    kinds: frozenset[RecordKind] = frozenset()
    """Empty: all that the others can mean."""
    namespace: Namespace | None = None
    exact_namespace: bool = False
    scope: Scope = Scope()

    @property
    def chosen(self) -> tuple[RecordKind, ...]:
        """The kinds that are meant, in their order."""
        kinds = set(self.kinds or RecordKind)
        if self.namespace is not None:
            kinds &= {RecordKind.FACT}
        if self.scope != Scope():
            kinds -= WITHOUT_SCOPE
        return tuple(kind for kind in RecordKind if kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveHeader:
    """What an archive is; see the proto. `model` is None where it has no vectors."""

    format_version: int = FORMAT_VERSION
    model: VectorModel | None = None
    selection: ExportSelection = ExportSelection()
    export_time: datetime | None = None
    cursor: str = ""
    counts: Mapping[RecordKind, int] = field(default_factory=dict)
    rules_version: int = 0


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A document of a collection, with the vectors of its passages, or an event."""

    kind: RecordKind
    document: Document | None = None
    event: EpisodicEvent | None = None

    @property
    def id(self) -> str:
        """Unique among those of its kind."""
        if self.event is not None:
            return self.event.event_id
        return self.document.doc_id if self.document else ""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export came to; see the proto."""

    counts: Mapping[RecordKind, int]
    changed_count: int
    removed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStart:
    """How to import; see the proto."""

    header: ArchiveHeader | None = None
    on_conflict: ImportConflict = ImportConflict.NEWER
    embed_anew: bool = False
    bridge_events: bool = False


def selection_violations(selection: ExportSelection, field: str = "selection") -> Iterator[FieldViolation]:
    """What is wrong with what is to be exported."""
    if selection.namespace is not None and selection.scope != Scope():
        yield FieldViolation(f"{field}.scope", "must be empty with a namespace: facts have no scope")
    elif selection.namespace is not None and selection.kinds - {RecordKind.FACT}:
        yield FieldViolation(f"{field}.kinds", "must be FACT or empty with a namespace")
    elif selection.scope != Scope() and (named := selection.kinds & WITHOUT_SCOPE):
        kinds = " and ".join(sorted(kind.name for kind in named))
        yield FieldViolation(f"{field}.kinds", f"must not name {kinds} with a scope: they have none")
    if selection.exact_namespace and selection.namespace is None:
        yield FieldViolation(f"{field}.exact_namespace", "belongs to a namespace: name one, or leave it out")
