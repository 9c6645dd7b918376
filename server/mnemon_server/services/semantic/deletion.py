"""Removes statements for good, with all that they superseded and the decisions about any of these."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.errors import MemoryNotFoundError, RevisionMismatchError
from mnemon_server.domain.filters import AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.records import WriteOutcome
from mnemon_server.domain.semantic import DeletedSemantic, SemanticFilter
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.engines.promises.vault import TransactionReceipt, VaultTransaction
from mnemon_server.services.semantic.decisions import ABOUT
from mnemon_server.services.semantic.filters import among, record_filter
from mnemon_server.services.semantic.pruning import prune_details

STEP = 500
DETAILS = prune_details("deleted")


@dataclass(frozen=True, slots=True)
class Deletion:
    """The statements to remove: by ids, or all that match; see SemanticStore.delete."""

    memory_ids: Sequence[str] = ()
    where: SemanticFilter | None = None
    allow_missing: bool = False
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionTargets:
    """The statements to remove: the selected ones with their revisions, and the ids of those that they superseded."""

    selected: Mapping[str, int]
    superseded: tuple[str, ...]

    def counted(self) -> DeletedSemantic:
        """The counts of a dry run."""
        return DeletedSemantic(len(self.selected), len(self.superseded))


def find_targets(semantic: DocumentReader, deletion: Deletion) -> DeletionTargets:
    """The statements that a deletion would remove.

    Raises:
        MemoryNotFoundError: some ids do not exist, and the deletion does not allow that.
        RevisionMismatchError: the statement does not have the expected revision.
    """
    if deletion.memory_ids:
        wanted = among("id", deletion.memory_ids, hidden=None)
    else:
        wanted = replace(record_filter(deletion.where or SemanticFilter(), hidden=None), is_writing=True)
    selected = dict(_revisions(semantic, wanted))
    _check(deletion, selected)
    known, superseded, newest = set(selected), [], list(selected)
    while newest:
        gave_way = [memory_id for ids in _steps(newest) for memory_id, _ in _revisions(semantic, _gave_way_to(ids))]
        newest = [memory_id for memory_id in gave_way if memory_id not in known]
        known.update(newest)
        superseded += newest
    return DeletionTargets(selected, tuple(superseded))


def delete(tx: VaultTransaction, deletion: Deletion) -> str:
    """Removes the statements, and returns the answer to store: the counts, and the last revisions of the named ones."""
    targets = find_targets(tx.collection(SEMANTIC), deletion)
    remove(tx, (*targets.selected, *targets.superseded))
    revisions = [targets.selected.get(memory_id) for memory_id in deletion.memory_ids]
    return json.dumps([len(targets.selected), len(targets.superseded), revisions])


def remove(tx: VaultTransaction, memory_ids: Sequence[str]) -> None:
    """Removes exactly these statements, and the decisions about them."""
    semantic, decisions = tx.collection(SEMANTIC), tx.collection(DECISIONS)
    for ids in _steps(memory_ids):
        semantic.delete_documents(among("id", ids, hidden=None), change=ChangeType.SEMANTIC_PRUNED, details=DETAILS)
        about = AnyOf(tuple(Condition(field, Operator.IN, tuple(ids)) for field in ABOUT))
        # The changes of its statements already show that the decision is gone.
        decisions.delete_documents(RecordFilter(expression=about, hidden=None, is_writing=True), change=None)


def from_answer(receipt: TransactionReceipt, deletion: Deletion) -> DeletedSemantic:
    """The answer to a deletion, whether to the first call or to a replay."""
    deleted, superseded, revisions = json.loads(receipt.answer)
    receipts = [
        receipt.of_record(memory_id, WriteOutcome.MISSING if revision is None else WriteOutcome.DELETED, revision or 0)
        for memory_id, revision in zip(deletion.memory_ids, revisions, strict=True)
    ]
    return DeletedSemantic(deleted, superseded, tuple(receipts), receipt.commit_time, receipt.replayed)


def _check(deletion: Deletion, selected: Mapping[str, int]) -> None:
    missing = [memory_id for memory_id in dict.fromkeys(deletion.memory_ids) if memory_id not in selected]
    if missing and not deletion.allow_missing:
        raise MemoryNotFoundError(*missing, noun="statement")
    for memory_id, revision in selected.items():
        if deletion.expected_revision not in (None, revision):
            raise RevisionMismatchError(memory_id, deletion.expected_revision, revision)


def _gave_way_to(memory_ids: Sequence[str]) -> RecordFilter:
    return among("superseded_by", memory_ids, hidden=True)


def _revisions(semantic: DocumentReader, where: RecordFilter) -> Iterator[tuple[str, int]]:
    """Yields the id and revision of every match; reads in steps, since each document comes with its whole text."""
    after = 0
    while rows := semantic.list_documents(where, after=after, limit=STEP):
        yield from ((document.doc_id, document.revision) for _, document in rows)
        after = rows[-1][0]


def _steps(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + STEP] for start in range(0, len(ids), STEP))
