"""Adds and removes the links of stored statements to events, for the bridge and for callers that save the same."""

from collections.abc import Sequence
from dataclasses import replace

from mnemon_server.domain.bridge import LINK_KEY
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.origins import may_settle
from mnemon_server.domain.semantic import SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.values import DocumentUpdate
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.semantic.event_links import PRUNED_KEY, Metadata, is_bridged, links_of, with_links
from mnemon_server.services.semantic.pruning import SUPERSEDED, prune_details


def told_directly(tx: VaultTransaction, saved: SavedSemantic, given: SemanticMemory) -> SavedSemantic:
    """The result of a save by a caller. If the bridge had saved the same statement, the bridge no longer owns it,
    unless the caller is trusted less.
    """
    known, receipt = saved.memory, saved.receipt
    if not saved.duplicate or known is None or receipt is None or not is_bridged(known.metadata):
        return saved
    may_confirm = may_settle(given.scope, known.scope) and tx.collection(SEMANTIC).may_change(known.scope)
    if LINK_KEY in given.metadata or not may_confirm:
        return saved
    metadata = {key: value for key, value in known.metadata.items() if key not in (LINK_KEY, PRUNED_KEY)}
    importance = highest(known.importance, given.importance)
    revision = change(tx, known.memory_id, metadata, importance=importance)
    return replace(
        saved,
        memory=replace(known, metadata=metadata, importance=importance, revision=revision, update_time=tx.now),
        receipt=replace(receipt, revision=revision),
    )


def add_links(tx: VaultTransaction, document: Document, event_ids: Sequence[str], importance: float | None) -> None:
    """Links a statement to more events; a demoted statement gets the importance that they give it."""
    links = links_of(document.metadata)
    if set(event_ids).issubset(links):
        return
    stored = document.fields.get("importance")
    known = stored if isinstance(stored, float) else None
    wanted = highest(known, importance) if PRUNED_KEY in document.metadata else known
    change(tx, document.doc_id, with_links(document.metadata, (*links, *event_ids)), importance=wanted)


def highest(first: float | None, second: float | None) -> float | None:
    """The greater of the known numbers; None if both are unknown."""
    return max((value for value in (first, second) if value is not None), default=None)


def change(
    tx: VaultTransaction,
    memory_id: str,
    metadata: Metadata,
    *,
    importance: float | None,
    merged_from: tuple[str, ...] | None = None,
) -> int:
    """Replaces the metadata and the importance of a stored statement; returns its new revision.

    With `merged_from` None, the stored value stays.
    """

    def changed(stored: Document) -> Document:
        fields = {**stored.fields, "importance": None if importance is None else float(importance)}
        if merged_from is not None:
            fields["merged_from"] = merged_from
        return replace(stored, metadata=dict(metadata), fields=fields)

    semantic = tx.collection(SEMANTIC)
    [stored] = semantic.get_documents([memory_id])
    # Followers of the log must not take a hidden statement for a visible one.
    hidden = stored is not None and stored.hidden
    change = ChangeType.SEMANTIC_PRUNED if hidden else ChangeType.SEMANTIC_SAVED
    details = prune_details(SUPERSEDED) if hidden else ""
    update = DocumentUpdate(doc_id=memory_id, update=changed, change=change, details=details)
    return semantic.update_document(update).revision
