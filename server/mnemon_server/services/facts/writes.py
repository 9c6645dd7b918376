"""Changes facts inside a transaction, depending on what is stored then."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import ORIGIN_FIELDS
from mnemon_server.domain.errors import FactExistsError, FactNotFoundError, RevisionMismatchError
from mnemon_server.domain.facts import (
    Fact,
    FactReceipt,
    FactRenewal,
    FactValue,
    PutFact,
    PutMode,
    record_id,
    shadow_violations,
    value_violations,
)
from mnemon_server.domain.namespaces import Namespace, decode_labels
from mnemon_server.domain.origins import least_trusted
from mnemon_server.domain.records import Scope, WriteOutcome, WriteReceipt
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.records import RecordTransaction
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.ranking.heads import Heads
from mnemon_server.services.facts.passages import placed_texts
from mnemon_server.services.facts.stored_form import (
    is_fact,
    to_document,
    to_fact,
    with_fields,
    with_version,
)
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.reading.filter_expressions import utc
from mnemon_server.services.writing.writes import vector_bytes

REQUESTED, EXPIRED = "requested", "expired"

_CHANGES = {
    "fact_value": "value",
    "own_metadata": "metadata",
    "indexing": "index",
    "created_at": "create_time",
    "ttl_s": "ttl",
}
"""The fields of a record whose change makes a new revision of the fact, and their names in the change feed."""


@dataclass(frozen=True, slots=True)
class PreparedFact:
    """A fact that is ready to be stored: checked, with its key, its content and its passages."""

    request: PutFact
    key: str
    content: str
    passages: Sequence[PassageInput]

    @property
    def record_id(self) -> str:
        """The id of its record."""
        return record_id(self.request.namespace, self.key)


def store(tx: VaultTransaction, new: PreparedFact) -> FactReceipt:
    """Stores a fact, and replaces the one with the same name; if it raises, it has written nothing.

    Raises:
        FactExistsError: the fact exists, and the mode is CREATE.
        FactNotFoundError: the fact does not exist, and the mode is UPDATE or a revision other than 0 is expected.
        RevisionMismatchError: the fact has another revision than the expected one.
    """
    records, request = tx.collection(FACTS), new.request
    [found] = records.get_documents([new.record_id])
    known = found if found is not None and is_fact(found, request.namespace, new.key, tx.now) else None
    _check_mode(request.mode, new.key, exists=known is not None)
    check_revision(request.expected_revision, new.key, known)
    if found is not None and known is None:
        # A put after the fact has expired creates a new fact, with a history of its own.
        remove(records, found, EXPIRED)
    fact = _fact(new, known, tx.now, records.sourced(request.source))
    document = _document(new, fact)
    if known is None:
        return _put(records, new, document)
    if changed := _changes(known, document, request.updated_at):
        return _put(records, new, with_fields(document, versions=with_version(known)), changed)
    return _renew_unchanged(tx, known, new.key)


def store_changes(tx: VaultTransaction, new: PreparedFact, changes: FactValue, heads: Heads) -> FactReceipt:
    """Changes keys of the value of an existing fact, as `with_changes` does.

    Raises:
        FactNotFoundError: it does not exist.
        RevisionMismatchError: its searched texts, or their head, have changed since `new` was prepared.
        InvalidArgumentError: the value would be too large, or a key is one of the fact's metadata.
    """
    request = new.request
    [found] = tx.collection(FACTS).get_documents([new.record_id])
    if found is None or not is_fact(found, request.namespace, new.key, tx.now):
        raise FactNotFoundError(new.key)
    asked = with_changes(to_fact(found), changes)
    if asked.index != request.index or not _are_searched_alike(asked, request, heads):
        raise RevisionMismatchError(new.key, request.expected_revision or 0, found.revision)
    refuse(value_violations(asked.value, "fact.value"))
    return store(tx, replace(new, request=asked))


def _are_searched_alike(first: PutFact, second: PutFact, heads: Heads) -> bool:
    texts = (placed_texts(each, IndexedTexts.of(each.value, each.index), heads) for each in (first, second))
    return next(texts) == next(texts)


def with_changes(fact: Fact, changes: FactValue) -> PutFact:
    """A request that changes keys of the value and removes keys set to None; the rest of the fact stays.

    InvalidArgumentError if another key than "content" is one of the fact's metadata: filters would no longer see that.
    """
    refuse(shadow_violations(changes, fact.metadata))
    return PutFact(
        namespace=fact.namespace,
        key=fact.key,
        value={
            key: value for key, value in {**fact.value, **changes}.items() if value is not None or key not in changes
        },
        metadata=fact.metadata,
        ttl=fact.ttl,
        index=fact.index,
        # The rest of the value stays, so an agent's change does not make it more trusted.
        source=least_trusted((fact.source, Scope())),
        expected_revision=fact.revision,
    )


def restored(version: Document, current: Document | None, now: datetime) -> DocumentWrite:
    """A write, without passages, of a fact as it was, whose ttl begins now; `current` is what it replaces."""
    ttl_s = version.fields.get("ttl_s")
    document = with_fields(
        version,
        updated_at=now,
        expire_time=now + timedelta(seconds=ttl_s) if isinstance(ttl_s, float) else None,
        versions="" if current is None else with_version(current),
    )
    namespace, key = decode_labels(str(version.fields["namespace"])), str(version.fields["fact_key"])
    changed = None if current is None else (*_changes(current, document, None), "update_time")
    return DocumentWrite(document=document, passages=(), details=details(namespace, key), changed=changed)


def remove(records: RecordTransaction, document: Document, reason: str) -> None:
    """Removes a fact for good."""
    fields = document.fields
    about = details(decode_labels(str(fields["namespace"])), str(fields["fact_key"]), reason)
    records.delete_document(document.doc_id, change=ChangeType.FACT_DELETED, details=about)


def renew(tx: VaultTransaction, names: Sequence[tuple[Namespace, str]]) -> list[FactRenewal | None]:
    """Restarts the ttl of facts; `names` has no duplicates. The result is None for a fact that does not exist."""
    records = tx.collection(FACTS)
    found = records.get_documents([record_id(*name) for name in names])
    return [
        FactRenewal(_renewed(records, document, tx.now)) if document and is_fact(document, *name, tx.now) else None
        for document, name in zip(found, names, strict=True)
    ]


def check_revision(expected: int | None, key: str, known: Document | None) -> None:
    """Refuses a write that expects another revision of the fact; 0 means that the fact must not exist."""
    if expected is None or expected == (known.revision if known else 0):
        return
    if known is None:
        raise FactNotFoundError(key)
    raise RevisionMismatchError(key, expected, known.revision)


def details(namespace: Sequence[str], key: str, reason: str = "") -> str:
    """The details of a change of a fact, as JSON."""
    values = {"namespace": list(namespace), "key": key}
    return json.dumps(values | ({"reason": reason} if reason else {}), ensure_ascii=False)


def _check_mode(mode: PutMode, key: str, *, exists: bool) -> None:
    if mode is PutMode.CREATE and exists:
        raise FactExistsError(key)
    if mode is PutMode.UPDATE and not exists:
        raise FactNotFoundError(key)


def _fact(new: PreparedFact, known: Document | None, now: datetime, source: Scope) -> Fact:
    request = new.request
    created = known.fields.get("created_at") if known else now
    return Fact(
        namespace=Namespace(request.namespace),
        key=new.key,
        value=request.value,
        metadata=request.metadata,
        created_at=utc(request.created_at) if request.created_at else _as_time(created, now),
        updated_at=utc(request.updated_at) if request.updated_at else now,
        ttl=request.ttl,
        expires_at=None if request.ttl is None else now + request.ttl,
        index=request.index,
        source=source,
    )


def _document(new: PreparedFact, fact: Fact) -> Document:
    given = vector_bytes(new.request.embedding)
    return to_document(fact, new.content, embedding=blake2b(given, digest_size=16).hexdigest() if given else "")


def _changes(known: Document, new: Document, updated_at: datetime | None) -> tuple[str, ...]:
    """The fields that the new document changes, by their names in the change feed."""
    names = [name for field, name in _CHANGES.items() if known.fields.get(field) != new.fields.get(field)]
    names += [name for name in ORIGIN_FIELDS if getattr(known.scope, name) != getattr(new.scope, name)]
    if updated_at is not None and known.fields.get("updated_at") != new.fields.get("updated_at"):
        names.append("update_time")
    return tuple(names)


def _put(
    records: RecordTransaction, new: PreparedFact, document: Document, changed: tuple[str, ...] = ()
) -> FactReceipt:
    write = DocumentWrite(
        document=document,
        passages=new.passages,
        change=ChangeType.FACT_UPDATED if changed else ChangeType.FACT_CREATED,
        details=details(new.request.namespace, new.key),
        changed=changed,
    )
    receipt = records.put_document(write)
    return FactReceipt(replace(receipt, id=new.key), to_fact(replace(document, revision=receipt.revision)))


def _renew_unchanged(tx: VaultTransaction, known: Document, key: str) -> FactReceipt:
    end = _renewed(tx.collection(FACTS), known, tx.now)
    fact = replace(to_fact(known), expires_at=end)
    return FactReceipt(WriteReceipt(key, WriteOutcome.UNCHANGED, known.revision, tx.now), fact)


def _renewed(records: RecordTransaction, document: Document, now: datetime) -> datetime | None:
    """Restarts the ttl of a fact; returns its expire time, or None if it has no ttl."""
    ttl_s = document.fields.get("ttl_s")
    if not isinstance(ttl_s, float):
        return None
    end = now + timedelta(seconds=ttl_s)

    def later(stored: Document) -> Document:
        return with_fields(stored, expire_time=end)

    records.update_document(DocumentUpdate(doc_id=document.doc_id, update=later, change=None))
    return end


def _as_time(value: object, default: datetime) -> datetime:
    return value if isinstance(value, datetime) else default
