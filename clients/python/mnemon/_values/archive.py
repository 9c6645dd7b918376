"""The values of exports and imports."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._values.documents import JsonValue
from mnemon.shared.errors import MnemonError

FORMAT_VERSION = 1

ArchiveLine: TypeAlias = Mapping[str, Any]
"""One line of an archive as JSON holds it: the header, a record, or the summary."""


class RecordKind(StrEnum):
    """The kind of the record: a document, a memory, a fact, a statement, a decision, a merge rule, an event, an
    earlier version of one of the first four, or a grant.
    """

    DOCUMENT = "document"
    MEMORY = "memory"
    FACT = "fact"
    SEMANTIC = "semantic"
    DECISION = "decision"
    RULE = "rule"
    EVENT = "event"
    VERSION = "version"
    GRANT = "grant"


class ImportConflict(StrEnum):
    """The policy for a record whose id is in use with other content.

    `newer`: the one that was changed last stays. `keep`: the stored one stays. `replace`: the imported one replaces it.
    `refuse`: the record fails.
    """

    NEWER = "newer"
    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


class ImportOutcome(StrEnum):
    """The outcome of a record. `kept`: the stored one has other content, and stays."""

    UNKNOWN = "unknown"
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class ImportResult(JsonValue):
    """The result of one record of an import: an outcome or an error."""

    line: int
    """Its line; the first line is 1."""
    kind: str
    """Empty if the line has no such field."""
    id: str
    outcome: ImportOutcome | None = None
    error: MnemonError | None = None
    item: int = 0
    """Its position in the JSON list that holds it, from 1; 0 outside of a list."""

    def _fields(self) -> dict[str, Any]:
        return {
            "line": self.line,
            **({"item": self.item} if self.item else {}),
            "kind": self.kind,
            "id": self.id,
            "outcome": self.outcome,
            "error": self.error.to_dict() if self.error else None,
        }
