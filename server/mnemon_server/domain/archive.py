"""Archives: the data that an export writes and an import reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import Event
from mnemon_server.domain.kinds import WITHOUT_SCOPE, RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import Scope

FORMAT_VERSION = 1
RECORDS_MAX = 1_000
"""Records in one message."""
FIGURE_MAX = 2**53 - 1
"""Largest archived revision of a record, and version of the rules. Every JSON reader keeps this number exactly, and
increments from it never overflow 64 bits. A larger number is archived as this one.
"""
FIGURE_RANGE = f"must be 0 to {FIGURE_MAX:,}"


class ImportConflict(StrEnum):
    """The policy of an import for a record whose id belongs to another content; see the proto."""

    NEWER = "newer"
    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


class ImportOutcome(StrEnum):
    """The result for a record that was accepted."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    ERASED = "erased"
    """It was erased after it had been created, and was not stored."""


@dataclass(frozen=True, slots=True)
class VectorModel:
    """The embedding model that made the vectors of an archive."""

    name: str
    revision: str
    precision: str
    dimension: int

    @property
    def identity(self) -> str:
        """Vectors are comparable only if this value is equal for both."""
        return f"{self.name}@{self.revision}/{self.precision}/{self.dimension}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSelection:
    """Which records are exported. All fields that are set must match."""

    kinds: frozenset[RecordKind] = frozenset()
    """If empty: all kinds that the other fields allow."""
    namespace: Namespace | None = None
    exact_namespace: bool = False
    scope: Scope = Scope()

    @property
    def chosen(self) -> tuple[RecordKind, ...]:
        """The selected kinds, in the order of RecordKind."""
        kinds = set(self.kinds or RecordKind)
        if self.namespace is not None:
            kinds &= {RecordKind.FACT, RecordKind.VERSION}
        if self.scope != Scope():
            kinds -= WITHOUT_SCOPE
        return tuple(kind for kind in RecordKind if kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveHeader:
    """The first message of an archive; see the proto. `model` is None if the archive has no vectors."""

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
    event: Event | None = None

    @property
    def id(self) -> str:
        """Unique among the records of the same kind."""
        if self.event is not None:
            return self.event.event_id
        return self.document.doc_id if self.document else ""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The totals of an export; see the proto."""

    counts: Mapping[RecordKind, int]
    changed_count: int
    removed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStart:
    """The options of an import; see the proto."""

    header: ArchiveHeader | None = None
    on_conflict: ImportConflict = ImportConflict.NEWER
    embed_anew: bool = False
    bridge_events: bool = False


def selection_violations(selection: ExportSelection) -> Iterator[FieldViolation]:
    """The violations in the selection of an export."""
    if selection.namespace is not None and selection.scope != Scope():
        yield FieldViolation("selection.scope", "must be empty with a namespace: facts have no scope")
    elif selection.namespace is not None and selection.kinds - {RecordKind.FACT, RecordKind.VERSION}:
        yield FieldViolation("selection.kinds", "must be FACT, VERSION or empty with a namespace")
    elif selection.scope != Scope() and (named := selection.kinds & WITHOUT_SCOPE):
        kinds = " and ".join(sorted(kind.name for kind in named))
        yield FieldViolation("selection.kinds", f"must not name {kinds} with a scope: these have no scope")
    if selection.exact_namespace and selection.namespace is None:
        yield FieldViolation("selection.exact_namespace", "needs a namespace: set one, or leave this field out")
