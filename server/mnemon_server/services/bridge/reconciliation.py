"""Changes of statements whose events were pruned, all in the transaction that stores that they were handled.

A statement stands as long as it has a source: an event that it is linked to, or a caller that saved it directly. A
statement without a source is removed for good, with the decisions about it; a statement that it had superseded, and
that has a source, takes its place again.

The text of a merged statement comes from its parts, which are hidden behind it. So it stands only as long as all its
parts do, or as long as an event or a caller stated the whole merged text. If it falls with one part, the other part
takes its place again: what a caller saved is found again, without what the pruned event had added. If a caller has
deleted a part since, the merged statement falls with the next link that it loses.

Demoting removes nothing: a statement that has lost its last link keeps everything but its importance, and is marked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mnemon_server.domain.bridge import LINK_KEY, PruneAction, RoutingPolicy
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationAction, Decision
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import METADATA_PREFIX, AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.records import DocumentReader, RecordTransaction
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.conflicts.superseding import restore, supersede
from mnemon_server.services.semantic.decisions import stored_decision
from mnemon_server.services.semantic.deletion import remove
from mnemon_server.services.semantic.event_linking import change
from mnemon_server.services.semantic.event_links import PRUNED_KEY, is_bridged, links_of, with_links, without
from mnemon_server.services.semantic.filters import among
from mnemon_server.services.semantic.pruning import SUPERSEDED
from mnemon_server.services.semantic.stored_form import find_duplicate, to_semantic

IDS_STEP = 64
"""Ids looked up together. Each is a search in the index of metadata, and costs half a millisecond."""
DOCUMENTS_STEP = 500
LINKS_FIELD = METADATA_PREFIX + LINK_KEY


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result for pruned events."""

    action: PruneAction
    event_ids: tuple[str, ...] = ()
    """The events that statements were linked to."""
    memory_ids: tuple[str, ...] = ()
    """The statements that were deleted or demoted."""
    unlinked_ids: tuple[str, ...] = ()
    """The statements that stand, with fewer links."""
    restored_ids: tuple[str, ...] = ()
    """The statements that are visible again, since what had superseded them is gone."""


def linked_to(semantic: DocumentReader, event_ids: Sequence[str], user: str) -> list[str]:
    """The ids of a user's statements that are linked to any of the events, including hidden ones. May read for long.

    The query does not name the scope: with it, the engine would look at all of the user's statements for each event.
    """
    found: dict[str, None] = {}
    for start in range(0, len(event_ids), IDS_STEP):
        ids = event_ids[start : start + IDS_STEP]
        linked = AnyOf(tuple(Condition(LINKS_FIELD, Operator.CONTAINS, (event_id,)) for event_id in ids))
        for document in all_matching(semantic, RecordFilter(expression=linked, hidden=None)):
            # A text that contains an id matches too, but is not a list of links.
            if document.scope.user == user and not set(ids).isdisjoint(links_of(document.metadata)):
                found[document.doc_id] = None
    return list(found)


def reconcile(
    tx: VaultTransaction, memory_ids: Sequence[str], event_ids: Sequence[str], scope: Scope, policy: RoutingPolicy
) -> Reconciled:
    """Removes or demotes the statements that had only these pruned events of one user and persona as sources.

    `memory_ids` are the results of `linked_to`, which stay complete since only the bridge adds links. They lead to the
    statements that they were merged into since.
    """
    found = _Linked.load(tx, memory_ids, event_ids, scope)
    linked = {link for document in found.documents.values() for link in links_of(document.metadata)}
    event_ids = tuple(event_id for event_id in event_ids if event_id in linked)
    if policy.on_prune is PruneAction.DEMOTE:
        demoted = _demote(tx, found, policy.demoted_importance)
        unlinked = _unlink(tx, found, demoted)
        return Reconciled(policy.on_prune, event_ids, demoted, unlinked)
    fallen = _fallen(found)
    unlinked = _unlink(tx, found, fallen.keys())
    restored = remove_and_restore(tx, fallen)
    return Reconciled(policy.on_prune, event_ids, tuple(fallen), unlinked, restored)


@dataclass(slots=True)
class _Linked:
    """Statements that are linked to pruned events, and the links that they have left."""

    tx: VaultTransaction
    gone: frozenset[str]
    documents: dict[str, Document] = field(default_factory=dict)
    alone: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Merged statements that stand without their parts, with their own links."""
    makers: dict[str, Decision | None] = field(default_factory=dict)
    """The oldest decision that resulted in each statement. No decision about it is older than the one that made it."""

    @classmethod
    def load(cls, tx: VaultTransaction, memory_ids: Sequence[str], event_ids: Sequence[str], scope: Scope) -> "_Linked":
        found = cls(tx, frozenset(event_ids))
        asked = list(memory_ids)
        while asked:
            read = [one for one in found._semantic.get_documents(asked) if one is not None]
            linked = {one.doc_id: one for one in read if not found.gone.isdisjoint(links_of(one.metadata))}
            found.documents |= linked
            holders = (str(one.fields.get("superseded_by") or "") for one in linked.values())
            asked = [holder for holder in dict.fromkeys(holders) if holder and holder not in found.documents]
        found._find_makers(tuple(found.documents))
        for document in list(found.documents.values()):
            # A merged statement has the persona of only one of its parts.
            if document.scope.persona != scope.persona and found.parts(document) is None:
                del found.documents[document.doc_id]
        return found

    def left(self, document: Document) -> tuple[str, ...]:
        """The links that a statement has left."""
        return without(links_of(document.metadata), self.gone)

    def parts(self, document: Document) -> list[Document | None] | None:
        """The parts of a merged statement, with None for one that no longer exists; None if it was not merged."""
        if document.doc_id not in self.makers:
            self._find_makers([document.doc_id])
        maker = self.makers[document.doc_id]
        if maker is not None and maker.arbitration.action is ArbitrationAction.MERGE:
            return self._semantic.get_documents([maker.existing_id, maker.candidate_id])
        merged_from = document.fields.get("merged_from")
        return self._semantic.get_documents(merged_from) if isinstance(merged_from, tuple) and merged_from else None

    def took_place_of(self, document: Document) -> Document | None:
        """The statement that superseded this one."""
        holder = str(document.fields.get("superseded_by") or "")
        return self._semantic.get_documents([holder])[0] if holder else None

    def _find_makers(self, memory_ids: Sequence[str]) -> None:
        self.makers |= dict.fromkeys(memory_ids)
        if memory_ids:
            for stored in all_matching(self.tx.collection(DECISIONS), among("result_id", memory_ids, hidden=None)):
                decision = stored_decision(stored)
                self.makers[decision.result_id] = self.makers[decision.result_id] or decision

    @property
    def _semantic(self) -> RecordTransaction:
        return self.tx.collection(SEMANTIC)


def _fallen(found: _Linked) -> dict[str, Document]:
    """All statements without a source, parts before the statements merged from them."""
    fallen: dict[str, Document] = {}
    asked = list(found.documents.values())
    while asked:
        document = asked.pop()
        if document.doc_id in fallen or not _falls(found, document, fallen):
            continue
        fallen[document.doc_id] = document
        holder = found.took_place_of(document)
        if holder is not None and is_bridged(holder.metadata):
            found.alone.pop(holder.doc_id, None)
            asked.append(holder)
    return fallen


def _falls(found: _Linked, document: Document, fallen: Collection[str]) -> bool:
    """Whether a statement that lost a link or a part has no source left."""
    left, parts = found.left(document), found.parts(document)
    if parts is None:
        # A statement that only superseded a fallen one has lost no link.
        return document.doc_id in found.documents and not left
    there = [part for part in parts if part is not None]
    if len(there) < len(parts):
        return document.doc_id in found.documents
    if not any(part.doc_id in fallen for part in there):
        return False
    own = without(left, {link for part in there for link in links_of(part.metadata)})
    if own:
        found.alone[document.doc_id] = own
    return not own


def _unlink(tx: VaultTransaction, found: _Linked, gone: Collection[str]) -> tuple[str, ...]:
    """Removes the links from statements that stand; returns their ids."""
    alone = {memory_id: links for memory_id, links in found.alone.items() if memory_id not in gone}
    stands = [memory_id for memory_id in found.documents if memory_id not in gone]
    for memory_id in dict.fromkeys([*stands, *alone]):
        [document] = tx.collection(SEMANTIC).get_documents([memory_id])
        if document is None:
            continue
        links = alone.get(memory_id, found.left(document))
        importance = _importance(document)
        # A statement that stands without its parts no longer names them.
        merged_from = () if memory_id in alone else None
        change(tx, memory_id, with_links(document.metadata, links), importance=importance, merged_from=merged_from)
    return tuple(dict.fromkeys([*stands, *alone]))


def _demote(tx: VaultTransaction, found: _Linked, importance_max: float) -> tuple[str, ...]:
    """Lowers the importance of statements without a link; returns their ids."""
    demoted = [document for document in found.documents.values() if not found.left(document)]
    for document in demoted:
        known = _importance(document)
        importance = importance_max if known is None else min(known, importance_max)
        metadata = {**with_links(document.metadata, ()), PRUNED_KEY: True}
        change(tx, document.doc_id, metadata, importance=importance)
    return tuple(document.doc_id for document in demoted)


def remove_and_restore(tx: VaultTransaction, fallen: Mapping[str, Document]) -> tuple[str, ...]:
    """Removes the fallen statements. What they had superseded takes their place, or stands behind their successor.

    If the same has been saved since, it stands behind that. Returns the ids of the statements that are visible again.
    """
    behind = [one for one in _behind(tx.collection(SEMANTIC), tuple(fallen)) if one.doc_id not in fallen]
    remove(tx, tuple(fallen))
    restored = []
    for document in behind:
        holder = str(document.fields["superseded_by"])
        while holder in fallen:
            holder = str(fallen[holder].fields.get("superseded_by") or "")
        if not holder:
            known = find_duplicate(tx.collection(SEMANTIC), to_semantic(document))
            holder = known.doc_id if known is not None else ""
        if holder:
            supersede(tx, document.doc_id, by=holder, reason=SUPERSEDED)
        else:
            restore(tx, document.doc_id)
            restored.append(document.doc_id)
    return tuple(restored)


def _behind(semantic: DocumentReader, memory_ids: Sequence[str]) -> Iterable[Document]:
    """The statements that any of these superseded."""
    return all_matching(semantic, among("superseded_by", memory_ids, hidden=True)) if memory_ids else ()


def all_matching(records: DocumentReader, where: RecordFilter, *, vectors: bool = False) -> Iterator[Document]:
    """All documents that match, read some at a time, in the order in which they were first stored."""
    after = 0
    while rows := records.list_documents(where, after=after, limit=DOCUMENTS_STEP, vectors=vectors):
        yield from (document for _, document in rows)
        after = rows[-1][0]


def _importance(document: Document) -> float | None:
    importance = document.fields.get("importance")
    return importance if isinstance(importance, float) else None
