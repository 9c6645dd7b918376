"""Saves that name or resolve conflicts: the plan is made and carried out in the transaction of the save."""

from dataclasses import replace

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationSide, Decision
from mnemon_server.domain.filters import AllOf, Condition, Operator, RecordFilter
from mnemon_server.domain.records import WriteOutcome, WriteReceipt
from mnemon_server.domain.semantic import SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.records import RecordEngine, RecordTransaction
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.conflicts.judging import Advisor
from mnemon_server.services.conflicts.plans import Plan, Settled, decision_of, plan_save
from mnemon_server.services.conflicts.superseding import DecisionNotes, put_merged, put_superseded, supersede
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.pruning import MERGED, SUPERSEDED
from mnemon_server.services.semantic.resolver import Judged, NewSemantic
from mnemon_server.services.semantic.stored_form import as_duplicate, put_semantic, same_content
from mnemon_server.services.writing.writes import new_id

Known = tuple[SemanticMemory | None, WriteReceipt | None]
"""The statement that stands after a save, and its receipt."""


class ConflictResolver:
    """See Resolver."""

    def __init__(self, rules: RuleStore, advisor: Advisor | None = None) -> None:
        self._rules = rules
        self._advisor = advisor

    @property
    def has_judge(self) -> bool:
        """See Resolver."""
        return self._advisor is not None

    @property
    def judge_failed_count(self) -> int:
        """See Resolver."""
        return self._advisor.failed_count if self._advisor else 0

    def over(self, records: RecordEngine) -> "ConflictResolver":
        """See Resolver."""
        return ConflictResolver(self._rules, self._advisor and self._advisor.over(records))

    async def judge(self, new: NewSemantic) -> Judged:
        """See Resolver."""
        return await self._advisor.judge(new) if self._advisor else {}

    def save(self, tx: VaultTransaction, write: NewSemantic) -> SavedSemantic:
        """See Resolver."""
        plan = plan_save(tx.collection(SEMANTIC), self._rules.rules_in(tx), write, now=tx.now)
        return apply_plan(tx, plan, write.vector)


def apply_plan(tx: VaultTransaction, plan: Plan, vector: Vector) -> SavedSemantic:
    """Carries out a plan that was made in the same transaction; `vector` is the candidate's."""
    if plan.duplicate is not None:
        return as_duplicate(plan.duplicate, tx.now)
    if plan.settled is None:
        return _store(tx, plan, vector)
    decision = _decide(tx, plan, plan.settled)
    notes = DecisionNotes(tx, decision)
    notes.note(ChangeType.CONFLICT_DETECTED)
    memory, receipt = _write(tx, plan.candidate, vector, plan.settled, decision)
    notes.record(ChangeType.CONFLICT_RESOLVED)
    if plan.settled.merged:
        notes.note(ChangeType.CONFLICT_MERGED)
    return SavedSemantic(memory=memory, receipt=receipt, decision=decision)


def _store(tx: VaultTransaction, plan: Plan, vector: Vector) -> SavedSemantic:
    """Stores the candidate beside the known statements; conflicts that were found are named."""
    candidate = plan.candidate
    memory, receipt = put_semantic(tx, candidate, vector)
    if plan.found.opponents:
        # Nothing was decided, so the change is about the candidate itself.
        named = decision_of(plan, candidate_id=memory.memory_id, result_id=memory.memory_id, time=tx.now)
        DecisionNotes(tx, named).note(ChangeType.CONFLICT_DETECTED, memory.memory_id)
    return SavedSemantic(memory=memory, receipt=receipt, conflicts=plan.conflicts)


def _decide(tx: VaultTransaction, plan: Plan, settled: Settled) -> Decision:
    candidate_id, existing_id = plan.candidate.memory_id, settled.existing.memory_id
    if settled.merged is not None:
        result_id = new_id()
    elif settled.arbitration.winner is ArbitrationSide.CANDIDATE:
        result_id = candidate_id
    elif settled.arbitration.winner is ArbitrationSide.EXISTING:
        result_id = existing_id
        candidate_id = _superseded_equal(tx.collection(SEMANTIC), plan.candidate, existing_id) or candidate_id
    else:
        candidate_id = result_id = ""
    decision_id = new_id()
    return decision_of(plan, decision_id=decision_id, candidate_id=candidate_id, result_id=result_id, time=tx.now)


def _write(
    tx: VaultTransaction, candidate: SemanticMemory, vector: Vector, settled: Settled, decision: Decision
) -> Known:
    existing, arbitration = settled.existing, settled.arbitration
    if settled.merged is not None:
        supersede(tx, existing.memory_id, by=decision.result_id, reason=MERGED)
        put_superseded(tx, candidate, vector, by=decision.result_id, reason=MERGED)
        return put_merged(tx, settled.merged, decision.result_id)
    if arbitration.winner is ArbitrationSide.CANDIDATE:
        supersede(tx, existing.memory_id, by=candidate.memory_id, reason=SUPERSEDED)
        return put_semantic(tx, candidate, vector)
    if arbitration.winner is None:
        return None, None
    if decision.candidate_id == candidate.memory_id:
        put_superseded(tx, candidate, vector, by=existing.memory_id, reason=SUPERSEDED)
    receipt = WriteReceipt(existing.memory_id, WriteOutcome.UNCHANGED, existing.revision, tx.now)
    return replace(existing, embedding=None), receipt


def _superseded_equal(records: RecordTransaction, candidate: SemanticMemory, winner_id: str) -> str:
    """The id of an equal statement that the same one superseded before; empty if no such statement exists."""
    equal = AllOf((Condition("superseded_by", Operator.EQ, (winner_id,)), same_content(candidate, [candidate.content])))
    found = records.list_documents(RecordFilter(expression=equal, hidden=True), limit=1)
    return found[0][1].doc_id if found else ""
