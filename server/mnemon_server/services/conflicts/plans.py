"""Plans a save that looks for conflicts, by reads alone. The plan is then carried out, or shown as a preview."""

from dataclasses import dataclass, replace
from datetime import datetime

from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationResult,
    ArbitrationSide,
    Conflict,
    Decision,
)
from mnemon_server.domain.documents import Document
from mnemon_server.domain.origins import may_settle
from mnemon_server.domain.rules import ResolvedRule
from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.services.conflicts.arbitration import arbitrate, no_conflict
from mnemon_server.services.conflicts.detection import Found, find_conflicts
from mnemon_server.services.conflicts.merging import Merged, merge
from mnemon_server.services.conflicts.signals import compare
from mnemon_server.services.rules.rule_set import RuleSet
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.services.semantic.resolver import NewSemantic
from mnemon_server.services.semantic.stored_form import find_duplicate, to_semantic

CONFLICTS_SHOWN = 100
"""Most conflicts that the answer to a save names."""
NOTHING_FOUND = Found((), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The decision between the candidate and the statement that it conflicts with most."""

    existing: SemanticMemory
    arbitration: ArbitrationResult
    merged: Merged | None = None
    """The merged statement, if the two are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outcome of a save."""

    candidate: SemanticMemory
    """Has its time and its vector."""
    duplicate: Document | None = None
    """The stored statement with the same content. If there is one, conflicts are not looked for."""
    rule: str = ""
    found: Found = NOTHING_FOUND
    settled: Settled | None = None
    """None if there is no conflict, or if conflicts are only named: the policy may say so, or the origins."""

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The most severe conflicts."""
        return tuple(opponent.conflict for opponent in self.found.opponents)


def plan_save(reader: DocumentReader, rules: RuleSet, new: NewSemantic, *, now: datetime) -> Plan:
    """The outcome of saving a statement at a time. RuleNotFoundError if the named rule does not exist."""
    candidate = as_candidate(new, now)
    candidate = replace(candidate, scope=reader.sourced(candidate.scope))
    duplicate = find_duplicate(reader, candidate, new.policy)
    if duplicate is not None:
        return Plan(candidate=candidate, duplicate=duplicate)
    rule = find_rule(rules, new.rule, candidate)
    resolve = new.policy is ConflictPolicy.RESOLVE
    shown = 1 if resolve else CONFLICTS_SHOWN
    # A judge may read what the model does not.
    compared = candidate if new.is_read or new.judged else replace(candidate, embedding=None)
    found = find_conflicts(reader, compared, rule.detection, limit=shown, deciding=resolve, judged=new.judged)
    worst = found.opponents[0].memory if found.opponents else None
    settled = (
        _settle(candidate, worst, rule)
        if resolve and worst and may_settle(candidate.scope, worst.scope) and _may_change(reader, candidate, worst)
        else None
    )
    return Plan(candidate=candidate, rule=rule.name, found=found, settled=settled)


def _may_change(reader: DocumentReader, *statements: SemanticMemory) -> bool:
    """Whether the caller may change statements with these origins; a new one may be from a source in quarantine."""
    return all(reader.may_change(each.scope) for each in statements)


def as_candidate(new: NewSemantic, now: datetime) -> SemanticMemory:
    """The statement as it is compared, with its vector and its time."""
    return replace(new.memory, create_time=new.memory.create_time or now, embedding=tuple(new.vector.tolist()))


def find_rule(rules: RuleSet, name: str, candidate: SemanticMemory) -> ResolvedRule:
    """The rule of this name, or else the one whose conditions match. RuleNotFoundError if it does not exist."""
    return rules.resolve(name) if name else rules.find_matching(candidate)


def storage_problem(merged: Merged) -> str | None:
    """Why a merged statement exceeds a limit of statements; None if it does not."""
    violation = next(iter(statement_violations(merged.memory, "the merged statement")), None)
    return f"{violation.field} {violation.description}" if violation else None


def decision_of(
    plan: Plan,
    *,
    decision_id: str = "",
    candidate_id: str = "",
    result_id: str = "",
    time: datetime | None = None,
) -> Decision:
    """The plan as a decision about its most severe conflict; ids of statements that are not stored are empty."""
    [worst, *_] = plan.found.opponents
    merged = plan.settled.merged if plan.settled else None
    return Decision(
        decision_id=decision_id,
        scope=plan.candidate.scope,
        candidate_id=candidate_id,
        existing_id=worst.memory.memory_id,
        result_id=result_id,
        rule=plan.rule,
        signals=worst.conflict.signals,
        conflict_count=plan.found.total_count,
        arbitration=plan.settled.arbitration if plan.settled else no_conflict(),
        merge=merged.statistics if merged else None,
        create_time=time,
        relation=worst.conflict.relation,
    )


def preview_plan(plan: Plan) -> SavedSemantic:
    """The answer that carrying the plan out would get; a new statement has no id, and nothing has a receipt."""
    if plan.duplicate is not None:
        return SavedSemantic(memory=to_semantic(plan.duplicate), receipt=None, duplicate=True)
    if plan.settled is None:
        return SavedSemantic(memory=_unsaved(plan.candidate), receipt=None, conflicts=plan.conflicts)
    memory = _known_after(plan.candidate, plan.settled)
    decision = decision_of(plan, result_id=memory.memory_id if memory else "")
    return SavedSemantic(memory=memory, receipt=None, decision=decision)


def _settle(candidate: SemanticMemory, existing: SemanticMemory, rule: ResolvedRule) -> Settled:
    similarity = compare(candidate, existing).similarity
    arbitration = arbitrate(candidate, existing, rule.arbitration, similarity=similarity)
    if arbitration.action is not ArbitrationAction.MERGE:
        return Settled(existing=existing, arbitration=arbitration)
    merged = merge(existing, candidate, rule.merge, source_priority=rule.arbitration.source_priority)
    if storage_problem(merged) is None:
        return Settled(existing=existing, arbitration=arbitration, merged=merged)
    # If the two cannot be merged, decide as if the rule did not allow it.
    without_merge = replace(rule.arbitration, allow_merge=False)
    arbitration = arbitrate(candidate, existing, without_merge, similarity=similarity)
    return Settled(existing=existing, arbitration=arbitration)


def _known_after(candidate: SemanticMemory, settled: Settled) -> SemanticMemory | None:
    if settled.arbitration.action is ArbitrationAction.REJECT:
        return None
    if settled.merged is not None:
        return _unsaved(settled.merged.memory)
    if settled.arbitration.winner is ArbitrationSide.EXISTING:
        return replace(settled.existing, embedding=None)
    return _unsaved(candidate)


def _unsaved(memory: SemanticMemory) -> SemanticMemory:
    return replace(memory, memory_id="", embedding=None)
