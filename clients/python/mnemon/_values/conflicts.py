"""The answers of the methods that find, decide, merge and take back conflicts."""

from dataclasses import dataclass

from mnemon._values.decisions import Arbitration, Conflict, Decision, MergeStatistics
from mnemon._values.documents import JsonValue
from mnemon._values.semantic import SemanticMemory


@dataclass(frozen=True, slots=True)
class DetectedConflicts(JsonValue):
    """What does not agree with a statement."""

    conflicts: tuple[Conflict, ...]
    """The most severe first; of equal ones, that which was saved first."""
    total_count: int
    """How many there are, beyond `limit` too."""
    rule: str
    """The rule that was used."""
    truncated: bool = False
    """The answer ended at 3 MiB: there are fewer conflicts in it than were asked for."""


@dataclass(frozen=True, slots=True)
class ArbitrationAnswer(JsonValue):
    """A decision that was asked for, and the rule that was used."""

    arbitration: Arbitration
    rule: str


@dataclass(frozen=True, slots=True)
class MergeAnswer(JsonValue):
    """A merged statement."""

    memory: SemanticMemory
    """Without an id where nothing was stored."""
    statistics: MergeStatistics
    content_strategy: str
    """How the contents were merged: "concatenate", "replace" or "summarize"."""
    decision: Decision | None
    """Where something was stored; `unmerge` takes it back."""
    rule: str


@dataclass(frozen=True, slots=True)
class ResolutionPreview(JsonValue):
    """What saving a statement would come to."""

    memory: SemanticMemory | None
    """What would be known; None where the statement would be rejected."""
    duplicate: bool
    """The same content is known of this user and persona; `memory` is that one."""
    decision: Decision | None
    """None where there is no conflict."""


@dataclass(frozen=True, slots=True)
class UnmergeAnswer(JsonValue):
    """What a decision that was taken back gave free."""

    restored: tuple[SemanticMemory, ...]
    """What was superseded, as it is now."""
    removed_id: str
    """Id of what the merge had made; empty where it was no merge."""
    decision: Decision
    remaining_ids: tuple[str, ...] = ()
    """Ids of what else was superseded and had no room in the answer, which ends at 3 MiB."""
