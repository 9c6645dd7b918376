"""The part of an import inside a transaction: it compares each record with the stored one of the same id."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemon_server.domain.archive import ImportConflict, ImportOutcome
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import FACTS, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import InvalidOperationError, MnemonError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.kinds import COLLECTION_OF, KINDS, RecordKind
from mnemon_server.domain.namespaces import decode_namespace
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, RecordStamps
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.facts.stored_form import has_expired
from mnemon_server.services.facts.writes import EXPIRED
from mnemon_server.services.facts.writes import details as fact_details
from mnemon_server.services.facts.writes import remove as remove_fact
from mnemon_server.services.semantic.health import Capacity
from mnemon_server.services.semantic.pruning import SUPERSEDED, prune_details
from mnemon_server.services.writing.tombstones import erased_among, known_names

Place = tuple[RecordKind, str]
ImportResult = ImportOutcome | MnemonError
"""How a record was stored, or why it was not."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A checked record that is ready to be stored."""

    kind: RecordKind
    document: Document
    passages: Sequence[PassageInput] | None
    """None if they are still to be made."""
    stamps: RecordStamps | None


def store(
    tx: VaultTransaction, incoming: Sequence[Incoming], on_conflict: ImportConflict, capacity: Capacity | None
) -> list[ImportResult]:
    """Stores records in their order; a bad one fails alone."""
    known = _known(tx, incoming)
    places = Counter((each.kind, each.document.doc_id) for each in incoming)
    room = _room(tx, incoming, capacity)
    results: list[ImportResult] = []
    for each, is_erased in zip(incoming, _erased(tx, incoming), strict=True):
        if is_erased:
            results.append(ImportOutcome.ERASED)
            continue
        place = each.kind, each.document.doc_id
        stored = known[place]
        if stored is None and capacity is not None and _takes_room(each):
            room -= 1
            if room < 0:
                results.append(capacity.error())
                continue
        results.append(_store(tx, each, stored, on_conflict))
        if places[place] > 1:
            # A later record of this message has the same id.
            [known[place]] = tx.collection(COLLECTION_OF[each.kind]).get_documents([each.document.doc_id])
    return results


def decided(
    stored: Document, new: Document, stamps: RecordStamps | None, policy: ImportConflict
) -> ImportResult | None:
    """The result of a record whose id is taken; None if it replaces the stored record."""
    is_same = document_digest(stored) == document_digest(new)
    if is_same and (stamps is None or _times(stamps) == _times(stored)):
        return ImportOutcome.UNCHANGED
    if policy is ImportConflict.REPLACE or (policy is ImportConflict.NEWER and _is_newer(stamps, stored)):
        return None
    if is_same:
        return ImportOutcome.UNCHANGED
    if policy is ImportConflict.REFUSE:
        return InvalidOperationError(f"{stored.doc_id!r} already exists in another state")
    return ImportOutcome.KEPT


def _store(tx: VaultTransaction, each: Incoming, stored: Document | None, policy: ImportConflict) -> ImportResult:
    if stored is not None and _is_over(stored, each, tx.now):
        remove_fact(tx.collection(FACTS), stored, EXPIRED)
        stored = None
    if stored is not None and (outcome := decided(stored, each.document, each.stamps, policy)) is not None:
        return outcome
    change, details = _logged(each, is_new=stored is None)
    write = DocumentWrite(
        document=each.document, passages=each.passages or (), change=change, details=details, stamps=each.stamps
    )
    return ImportOutcome(tx.collection(COLLECTION_OF[each.kind]).put_document(write).outcome.value)


def _is_over(stored: Document, each: Incoming, now: datetime) -> bool:
    """Whether the stored record is a fact that has expired, and the new one has not."""
    return each.kind is RecordKind.FACT and has_expired(stored, now) and not has_expired(each.document, now)


def _is_newer(stamps: RecordStamps | None, stored: Document) -> bool:
    """Whether a record was changed after the stored one; without a time, it counts as changed now."""
    return stamps is None or stored.update_time is None or stamps.update_time > stored.update_time


def _times(each: RecordStamps | Document) -> tuple[datetime | None, datetime | None]:
    return each.create_time, each.update_time


def _logged(each: Incoming, *, is_new: bool) -> tuple[ChangeType | None, str]:
    """The type and the details of the change that is logged; None if none is."""
    document, traits = each.document, KINDS[each.kind]
    if document.hidden and traits.hidden is not None:
        return traits.hidden, prune_details(SUPERSEDED) if each.kind is RecordKind.SEMANTIC else ""
    return (traits.created if is_new else traits.updated), _details(each.kind, document)


def _details(kind: RecordKind, document: Document) -> str:
    if kind is RecordKind.FACT:
        return fact_details(decode_namespace(str(document.fields["namespace"])), str(document.fields["fact_key"]))
    return document.content if kind is RecordKind.DECISION else ""


def _room(tx: VaultTransaction, incoming: Sequence[Incoming], capacity: Capacity | None) -> int:
    """How many more statements the vault has room for."""
    if capacity is None or not any(map(_takes_room, incoming)):
        return 0
    return capacity.limit - tx.collection(SEMANTIC).count_documents(RecordFilter())


def _takes_room(each: Incoming) -> bool:
    return each.kind is RecordKind.SEMANTIC and not each.document.hidden


def _erased(tx: VaultTransaction, incoming: Sequence[Incoming]) -> list[bool]:
    """Which of the records were erased after they had been created."""
    names = known_names(tx)
    if names is None:
        return [False] * len(incoming)
    named = [
        (names.of_document(each.kind, each.document), each.stamps.create_time if each.stamps else None)
        for each in incoming
    ]
    return erased_among(tx, named)


def _known(tx: VaultTransaction, incoming: Sequence[Incoming]) -> dict[Place, Document | None]:
    """The stored records with the ids of these, by kind and id; None for an id that is free."""
    ids: dict[RecordKind, list[str]] = {}
    for each in incoming:
        ids.setdefault(each.kind, []).append(each.document.doc_id)
    return {
        (kind, doc_id): document
        for kind, wanted in ids.items()
        for doc_id, document in zip(wanted, tx.collection(COLLECTION_OF[kind]).get_documents(wanted), strict=True)
    }
