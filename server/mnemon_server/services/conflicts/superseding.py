"""Supersedes and restores statements: the writes that saves, merges and their undoing share."""

from dataclasses import replace

import numpy as np

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import Decision
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, Vector
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.conflicts.merging import Merged
from mnemon_server.services.semantic.decisions import decision_document, decision_to_json, without_reason
from mnemon_server.services.semantic.pruning import prune_details
from mnemon_server.services.semantic.stored_form import put_semantic


def supersede(tx: VaultTransaction, memory_id: str, *, by: str, reason: str) -> None:
    """Hides a stored statement behind the one that supersedes it."""
    _change(tx, memory_id, by, ChangeType.SEMANTIC_PRUNED, prune_details(reason))


def restore(tx: VaultTransaction, memory_id: str) -> None:
    """Makes a superseded statement visible again."""
    _change(tx, memory_id, "", ChangeType.SEMANTIC_SAVED)


def put_superseded(tx: VaultTransaction, memory: SemanticMemory, vector: Vector, *, by: str, reason: str) -> None:
    """Stores a new statement that is superseded from the start, so that the decision can be undone."""
    put_semantic(
        tx,
        replace(memory, superseded_by=by),
        vector,
        change=ChangeType.SEMANTIC_PRUNED,
        details=prune_details(reason),
    )


class DecisionNotes:
    """Writes about a decision to the records and the log, in one transaction."""

    def __init__(self, tx: VaultTransaction, decision: Decision) -> None:
        self._tx = tx
        self._decision = decision
        # The log outlives the statements, and a judge's reason may repeat their words.
        self._text = decision_to_json(without_reason(decision))

    def record(self, change: ChangeType) -> None:
        """Stores the new or changed decision for the audit."""
        document = decision_document(self._decision, decision_to_json(self._decision))
        write = DocumentWrite(document=document, passages=[], change=change, details=self._text)
        self._tx.collection(DECISIONS).put_document(write)

    def note(self, change: ChangeType, record_id: str = "") -> None:
        """Writes a change about the decision to the log, under its id or another one."""
        record_id = record_id or self._decision.decision_id
        self._tx.note_change(change, record_id, revision=1, scope=self._decision.scope, details=self._text)


def put_merged(tx: VaultTransaction, merged: Merged, merged_id: str) -> tuple[SemanticMemory, WriteReceipt]:
    """Stores the merged statement of two statements with vectors, under a new id."""
    memory = merged.memory
    return put_semantic(tx, replace(memory, memory_id=merged_id), np.array(memory.embedding, np.float32))


def _change(tx: VaultTransaction, memory_id: str, superseded_by: str, change: ChangeType, details: str = "") -> None:
    def changed(stored: Document) -> Document:
        return replace(stored, hidden=bool(superseded_by), fields={**stored.fields, "superseded_by": superseded_by})

    update = DocumentUpdate(doc_id=memory_id, update=changed, change=change, details=details)
    tx.collection(SEMANTIC).update_document(update)
