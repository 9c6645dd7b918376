"""How statements are removed for good: with all that gave way to them, and with the decisions about any of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemon_server.domain.changes import EventType
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.filters import AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.semantic import DeletedSemantic, SemanticFilter
from mnemon_server.engines.base import TransactionReceipt, VaultTransaction
from mnemon_server.services.semantic.decisions import ABOUT
from mnemon_server.services.semantic.filters import among, record_filter
from mnemon_server.services.semantic.stored_form import DocumentReader

STEP = 500
DETAILS = json.dumps({"prune_reason": "deleted"})


@dataclass(frozen=True, slots=True)
class Doomed:
    """The ids of what is to go: what was asked for, and what gave way to that."""

    asked: tuple[str, ...]
    along: tuple[str, ...]

    def counted(self) -> DeletedSemantic:
        """How many they are."""
        return DeletedSemantic(len(self.asked), len(self.along))


def find_doomed(semantic: DocumentReader, memory_ids: Sequence[str], where: SemanticFilter | None) -> Doomed:
    """What a deletion of these ids, or of all that matches, would remove."""
    if memory_ids:
        wanted = among("id", memory_ids, hidden=None)
    else:
        wanted = record_filter(where or SemanticFilter(), hidden=None)
    asked = tuple(_ids(semantic, wanted))
    known, along, newest = set(asked), [], list(asked)
    while newest:
        gave_way = [memory_id for ids in _steps(newest) for memory_id in _ids(semantic, _gave_way_to(ids))]
        newest = [memory_id for memory_id in gave_way if memory_id not in known]
        known.update(newest)
        along += newest
    return Doomed(asked, tuple(along))


def delete(tx: VaultTransaction, memory_ids: Sequence[str], where: SemanticFilter | None) -> str:
    """Removes it, and returns the answer to keep."""
    doomed = find_doomed(tx.collection(SEMANTIC), memory_ids, where)
    remove(tx, (*doomed.asked, *doomed.along))
    return json.dumps([len(doomed.asked), len(doomed.along)])


def remove(tx: VaultTransaction, memory_ids: Sequence[str]) -> None:
    """Removes exactly these statements, and the decisions about them."""
    semantic, decisions = tx.collection(SEMANTIC), tx.collection(DECISIONS)
    for ids in _steps(memory_ids):
        semantic.delete_documents(among("id", ids, hidden=None), event=EventType.SEMANTIC_PRUNED, details=DETAILS)
        about = AnyOf(tuple(Condition(field, Operator.IN, tuple(ids)) for field in ABOUT))
        # What happened to a decision is told by what happened to its statements.
        decisions.delete_documents(RecordFilter(expression=about, hidden=None), event=None)


def from_answer(receipt: TransactionReceipt) -> DeletedSemantic:
    """The answer to a deletion, be it the first or to a replay."""
    deleted, superseded = json.loads(receipt.answer)
    return DeletedSemantic(deleted, superseded, replayed=receipt.replayed)


def _gave_way_to(memory_ids: Sequence[str]) -> RecordFilter:
    return among("superseded_by", memory_ids, hidden=True)


def _ids(semantic: DocumentReader, where: RecordFilter) -> Iterator[str]:
    """The ids of everything that matches, read in steps, since each comes with its whole text."""
    after = 0
    while rows := semantic.list_documents(where, after=after, limit=STEP):
        yield from (document.doc_id for _, document in rows)
        after = rows[-1][0]


def _steps(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + STEP] for start in range(0, len(ids), STEP))
