"""Merges that a call requests: of two stored statements, or of any two without storing the result."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationAction, ArbitrationResult, ArbitrationStrategy, Decision
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.domain.rules import ResolvedRule
from mnemon_server.domain.semantic import MemoryRef, MergedMemories, SemanticMemory
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.conflicts.merging import Merged, merge
from mnemon_server.services.conflicts.plans import find_rule, storage_problem
from mnemon_server.services.conflicts.statements import find_statement
from mnemon_server.services.conflicts.superseding import DecisionNotes, put_merged, supersede
from mnemon_server.services.rules.overrides import overridden
from mnemon_server.services.rules.rule_set import RuleSet
from mnemon_server.services.semantic.checks import refuse_other_scope
from mnemon_server.services.semantic.pruning import MERGED
from mnemon_server.services.writing.writes import new_id

_ASKED_FOR = ArbitrationResult(
    action=ArbitrationAction.MERGE,
    strategy=ArbitrationStrategy.NONE,
    confidence=1.0,
    reason="The merge was requested.",
)


@dataclass(frozen=True, slots=True)
class MergeTerms:
    """The rule to merge by, or empty for the one whose conditions match the second statement, and changes to it."""

    rule: str = ""
    changes: Mapping[str, Any] | None = None


def merge_unstored(rules: RuleSet, first: SemanticMemory, second: SemanticMemory, terms: MergeTerms) -> MergedMemories:
    """Merges two statements of the same scope without storing the result. Raises the errors of `merge_stored`."""
    rule, merged = _merged(rules, first, second, terms)
    return _answer(rule, merged, replace(merged.memory, memory_id="", embedding=None), None)


def merge_stored(
    tx: VaultTransaction, rules: RuleSet, one: MemoryRef, other: MemoryRef, terms: MergeTerms
) -> MergedMemories:
    """Merges two stored statements into a new one, which supersedes both.

    Raises:
        MemoryNotFoundError: one of them does not exist.
        RevisionMismatchError: one of them does not have the expected revision.
        InvalidOperationError: one of them is superseded already, or the result exceeds a limit of statements.
    """
    records = tx.collection(SEMANTIC)
    first = find_statement(records, one.memory_id, one.expected_revision)
    second = find_statement(records, other.memory_id, other.expected_revision)
    rule, merged = _merged(rules, first, second, terms)
    decision = _decision(first, second, rule, merged, tx)
    for memory in (first, second):
        supersede(tx, memory.memory_id, by=decision.result_id, reason=MERGED)
    stored, _ = put_merged(tx, merged, decision.result_id)
    DecisionNotes(tx, decision).record(ChangeType.CONFLICT_MERGED)
    return _answer(rule, merged, stored, decision)


def _merged(
    rules: RuleSet, first: SemanticMemory, second: SemanticMemory, terms: MergeTerms
) -> tuple[ResolvedRule, Merged]:
    refuse_other_scope(second, first, "second", "first")
    for memory in (first, second):
        if memory.superseded_by:
            raise InvalidOperationError(
                f"{memory.memory_id!r} is superseded by {memory.superseded_by!r}, and cannot be merged; merge that one"
            )
    rule = overridden(find_rule(rules, terms.rule, second), "merge", terms.changes)
    merged = merge(first, second, rule.merge, source_priority=rule.arbitration.source_priority)
    if (problem := storage_problem(merged)) is not None:
        raise InvalidOperationError(f"they cannot be merged: {problem}")
    return rule, merged


def _decision(
    first: SemanticMemory, second: SemanticMemory, rule: ResolvedRule, merged: Merged, tx: VaultTransaction
) -> Decision:
    return Decision(
        decision_id=new_id(),
        scope=second.scope,
        candidate_id=second.memory_id,
        existing_id=first.memory_id,
        result_id=new_id(),
        rule=rule.name,
        signals=(),
        conflict_count=0,
        arbitration=_ASKED_FOR,
        merge=merged.statistics,
        create_time=tx.now,
    )


def _answer(rule: ResolvedRule, merged: Merged, memory: SemanticMemory, decision: Decision | None) -> MergedMemories:
    return MergedMemories(
        memory=memory,
        statistics=merged.statistics,
        content_strategy=merged.content_strategy,
        decision=decision,
        rule=rule.name,
    )
