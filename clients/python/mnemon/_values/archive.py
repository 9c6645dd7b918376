"""The values of exports and imports."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._errors import MnemonError
from mnemon._values.documents import JsonValue

FORMAT_VERSION = 1

ArchiveLine: TypeAlias = Mapping[str, Any]
"""One line of an archive as JSON holds it: the header, a record, or the summary."""


class RecordKind(StrEnum):
    """What kind of record it is: a document, a memory, a fact, a statement, a decision, a merge rule, or an event."""

    DOCUMENT = "document"
    MEMORY = "memory"
    FACT = "fact"
    SEMANTIC = "semantic"
    DECISION = "decision"
    RULE = "rule"
    EVENT = "event"


class ImportConflict(StrEnum):
    """What becomes of a record whose id is taken by another state of it.

    `newer`: the one that was changed last stays. `keep`: what is there stays. `replace`: what is imported takes its
    place. `refuse`: the record fails.
    """

    NEWER = "newer"
    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


class ImportOutcome(StrEnum):
    """What became of a record: `kept` says that another state was there, and stays."""

    UNKNOWN = "unknown"
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class ImportResult(JsonValue):
    """What became of one record of an import: an outcome, or an error."""

    line: int
    """Its line, from 1."""
    kind: str
    """Empty where the line does not say."""
    id: str
    outcome: ImportOutcome | None = None
    error: MnemonError | None = None

    def _fields(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "kind": self.kind,
            "id": self.id,
            "outcome": self.outcome,
            "error": self.error.to_dict() if self.error else None,
        }
