"""What the conflict service is asked and answers."""

from dataclasses import dataclass

from mnemon_server.domain.conflicts import (
    ArbitrationResult,
    Conflict,
    ContentStrategy,
    Decision,
    MergeStatistics,
)
from mnemon_server.domain.semantic import SemanticMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRef:
    """A statement: the id of a stored one, or one that is given, with its embedding where it has one."""

    memory_id: str = ""
    memory: SemanticMemory | None = None
    expected_revision: int | None = None
    """Of a stored one; any other is a RevisionMismatchError."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The most severe conflicts first, how many there are in all, and the name of the rule."""

    conflicts: tuple[Conflict, ...]
    total_count: int
    rule: str


@dataclass(frozen=True, slots=True)
class Arbitrated:
    """What was decided, and the name of the rule."""

    result: ArbitrationResult
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedMemories:
    """A merged statement; without an id and a decision where nothing was stored."""

    memory: SemanticMemory
    statistics: MergeStatistics
    content_strategy: ContentStrategy
    """Never SMART, but what that came to."""
    decision: Decision | None
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmerged:
    """What is found again, what was removed for it or empty, and the decision, taken back."""

    restored: tuple[SemanticMemory, ...]
    removed_id: str
    decision: Decision
