"""The answers of the methods that find, decide and merge conflicts, and undo decisions."""

from dataclasses import dataclass

from mnemon._values.decisions import Arbitration, Conflict, Decision, MergeStatistics
from mnemon._values.documents import JsonValue
from mnemon._values.semantic import SemanticMemory


@dataclass(frozen=True, slots=True)
class DetectedConflicts(JsonValue):
    """The conflicts of a statement."""

    conflicts: tuple[Conflict, ...]
    """The most severe first; among equals, in the order in which they were saved."""
    total_count: int
    """The number of all conflicts, including those beyond `limit`."""
    rule: str
    """The rule that was used."""
    truncated: bool = False
    """The answer ended at 3 MiB: it has fewer conflicts than requested."""


@dataclass(frozen=True, slots=True)
class ArbitrationAnswer(JsonValue):
    """A requested decision, and the rule that was used."""

    arbitration: Arbitration
    rule: str


@dataclass(frozen=True, slots=True)
class MergeAnswer(JsonValue):
    """A merged statement."""

    memory: SemanticMemory
    """Without an id if nothing was stored."""
    statistics: MergeStatistics
    content_strategy: str
    """How the contents were merged: "concatenate", "replace" or "summarize"."""
    decision: Decision | None
    """Set if something was stored; `unmerge` undoes it."""
    rule: str


@dataclass(frozen=True, slots=True)
class ResolutionPreview(JsonValue):
    """The outcome that saving a statement would have."""

    memory: SemanticMemory | None
    """The statement that would be stored; None if it would be rejected."""
    duplicate: bool
    """The same content is already stored for this user, household and persona, as `memory`."""
    decision: Decision | None
    """None if there is no conflict."""


@dataclass(frozen=True, slots=True)
class UnmergeAnswer(JsonValue):
    """The result of undoing a decision."""

    restored: tuple[SemanticMemory, ...]
    """The statement that was superseded, in its current state."""
    removed_id: str
    """Id of the merged statement; empty if the decision was not a merge."""
    decision: Decision
    remaining_ids: tuple[str, ...] = ()
    """Ids of the other restored statements, for which the answer, of at most 3 MiB, had no room."""
