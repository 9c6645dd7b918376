"""Takes decisions back: superseded statements are visible again, and the result of a merge is removed."""

from collections.abc import Sequence
from dataclasses import replace

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationAction, ArbitrationSide, Decision
from mnemon_server.domain.errors import DecisionNotFoundError, InvalidOperationError, MemoryNotFoundError
from mnemon_server.domain.filters import AllOf, Condition, NoneOf, Operator, RecordFilter
from mnemon_server.domain.semantic import Unmerged
from mnemon_server.engines.promises.records import DocumentReader, RecordTransaction
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.conflicts.statements import find_statement
from mnemon_server.services.conflicts.superseding import DecisionNotes, restore
from mnemon_server.services.semantic.decisions import decisions_about, stored_decision
from mnemon_server.services.semantic.pruning import UNMERGED, prune_details
from mnemon_server.services.semantic.stored_form import to_semantic


def unmerge(tx: VaultTransaction, *, memory_id: str = "", decision_id: str = "") -> Unmerged:
    """Takes back the merge that made a statement, or any decision.

    Raises:
        MemoryNotFoundError, DecisionNotFoundError: the id is unknown.
        InvalidOperationError: nothing was decided, it was undone already, or a later decision depends on it.
    """
    decision = find_decision(tx.collection(DECISIONS), decision_id) if decision_id else _merge_of(tx, memory_id)
    given_way = _given_way(decision)
    _refuse_undone(decision, given_way)
    records = tx.collection(SEMANTIC)
    _refuse_built_upon(records, decision, given_way)
    for one in given_way:
        restore(tx, one)
    removed_id = decision.result_id if decision.arbitration.action is ArbitrationAction.MERGE else ""
    if removed_id:
        _remove_merged(tx, decision)
    reverted = replace(decision, revert_time=tx.now)
    DecisionNotes(tx, reverted).record(ChangeType.CONFLICT_REVERTED)
    restored = tuple(to_semantic(document) for document in records.get_documents(given_way) if document)
    return Unmerged(restored=restored, removed_id=removed_id, decision=reverted)


def find_decision(decisions: DocumentReader, decision_id: str) -> Decision:
    """A stored decision. DecisionNotFoundError if it does not exist."""
    [document] = decisions.get_documents([decision_id])
    if document is None:
        raise DecisionNotFoundError(decision_id)
    return stored_decision(document)


def _merge_of(tx: VaultTransaction, memory_id: str) -> Decision:
    """The decision of the merge that made a statement. No other decision about the statement is older."""
    made = RecordFilter(expression=Condition("result_id", Operator.EQ, (memory_id,)))
    for _, document in tx.collection(DECISIONS).list_documents(made, limit=1):
        decision = stored_decision(document)
        if decision.arbitration.action is ArbitrationAction.MERGE:
            return decision
    if tx.collection(SEMANTIC).get_documents([memory_id]) == [None]:
        raise MemoryNotFoundError(memory_id, noun="statement")
    raise InvalidOperationError(
        f"{memory_id!r} is not the result of a merge, or the decision about it is no longer stored"
    )


def _given_way(decision: Decision) -> list[str]:
    """The statements that the decision superseded."""
    if decision.arbitration.action is ArbitrationAction.MERGE:
        return [decision.existing_id, decision.candidate_id]
    match decision.arbitration.loser:
        case ArbitrationSide.CANDIDATE:
            return [decision.candidate_id]
        case ArbitrationSide.EXISTING:
            return [decision.existing_id]
        case None:
            return []


def _refuse_undone(decision: Decision, given_way: Sequence[str]) -> None:
    if decision.revert_time is not None:
        raise InvalidOperationError(f"the decision {decision.decision_id!r} was already undone")
    if not given_way:
        raise InvalidOperationError("the candidate was rejected, and was not stored; save it again instead")


def _refuse_built_upon(records: RecordTransaction, decision: Decision, given_way: Sequence[str]) -> None:
    """Raises InvalidOperationError if the statements have changed since the decision."""
    result = find_statement(records, decision.result_id)
    if result.superseded_by:
        raise InvalidOperationError(
            f"{result.memory_id!r} is itself superseded by {result.superseded_by!r}; undo that decision first"
        )
    for one in given_way:
        if find_statement(records, one).superseded_by != result.memory_id:
            raise InvalidOperationError(f"{one!r} is no longer superseded by {result.memory_id!r}")
    if decision.arbitration.action is ArbitrationAction.MERGE:
        _refuse_others(records, result.memory_id, given_way)


def _refuse_others(records: RecordTransaction, merged_id: str, given_way: Sequence[str]) -> None:
    """Raises InvalidOperationError if the merged statement has superseded others: its removal would orphan them."""
    behind = RecordFilter(expression=Condition("superseded_by", Operator.EQ, (merged_id,)), hidden=True)
    for _, document in records.list_documents(behind, limit=len(given_way) + 1):
        if document.doc_id not in given_way:
            raise InvalidOperationError(
                f"{document.doc_id!r} has been superseded by {merged_id!r} since; undo that decision first"
            )


def _remove_merged(tx: VaultTransaction, merge: Decision) -> None:
    """Removes the result of a merge, and the later decisions about it: decisions live as long as their statements."""
    details = prune_details(UNMERGED)
    tx.collection(SEMANTIC).delete_document(merge.result_id, change=ChangeType.SEMANTIC_PRUNED, details=details)
    others = NoneOf((Condition("id", Operator.EQ, (merge.decision_id,)),))
    about = RecordFilter(expression=AllOf((decisions_about(merge.result_id), others)))
    tx.collection(DECISIONS).delete_documents(about, change=None)
