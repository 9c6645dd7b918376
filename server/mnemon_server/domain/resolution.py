"""Requests and answers of the conflict service."""

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
    """A statement: either the id of a stored one, or a statement given in full, with its embedding if it has one."""

    memory_id: str = ""
    memory: SemanticMemory | None = None
    expected_revision: int | None = None
    """The expected revision of a stored statement. Another revision causes a RevisionMismatchError."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The conflicts, most severe first, their total number, and the name of the rule that was applied."""

    conflicts: tuple[Conflict, ...]
    total_count: int
    rule: str


@dataclass(frozen=True, slots=True)
class Arbitrated:
    """The decision, and the name of the rule that was applied."""

    result: ArbitrationResult
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedMemories:
    """A merged statement. It has no id and no decision if it was not stored."""

    memory: SemanticMemory
    statistics: MergeStatistics
    content_strategy: ContentStrategy
    """The strategy that was applied. SMART is resolved to the one it chose."""
    decision: Decision | None
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmerged:
    """The result of undoing a merge: the restored statements, the removed one (if any), and the reverted decision."""

    restored: tuple[SemanticMemory, ...]
    removed_id: str
    decision: Decision
