"""The earlier versions of records: lists them, and makes one the current state again."""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC, VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FieldViolation, InvalidOperationError, RevisionMismatchError
from mnemon_server.domain.history import Ending, Version, VersionNotFoundError, stored_version
from mnemon_server.domain.kinds import COLLECTION_OF, KINDS, RecordKind, versions_of
from mnemon_server.domain.records import AckLevel, PageOf, WriteReceipt
from mnemon_server.domain.validation import doc_id_violations, refuse, request_id_violations, revision_violations
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, Fits, PassageInput, RecordStamps
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.facts.writes import restored
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.semantic.stored_form import find_duplicate, to_semantic
from mnemon_server.services.writing.writes import acknowledge, request_key

READER_THREADS = 1
_MANY = 2_000
"""More than the versions of one record."""
_ID_FIELDS = {
    RecordKind.DOCUMENT: "doc_id",
    RecordKind.MEMORY: "memory_id",
    RecordKind.SEMANTIC: "memory_id",
    RecordKind.FACT: "key",
}
"""The fields of requests that name a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The version to restore, and how."""

    kind: RecordKind
    record_id: str
    version_id: str
    expected_revision: int | None = None
    request_id: str = ""
    ack: AckLevel = AckLevel.DURABLE


class VersionStore:
    """The versions of a vault's records. All methods are safe to call from many tasks at once."""

    def __init__(self, vault: Vault, appliers: Mapping[RecordKind, IndexApplier | None]) -> None:
        """`appliers` index the records of a kind in a vector database, if there is one."""
        self._vault, self._appliers = vault, appliers
        self._offload = Offload(READER_THREADS, "version-reader")

    def over(self, vault: Vault) -> "VersionStore":
        """The same store over a part of the vault. It shares the threads; close this one alone."""
        part = copy(self)
        part._vault = vault
        return part

    async def list(
        self, kind: RecordKind, record_id: str, *, after: int = 0, limit: int, room: Room | None = None
    ) -> PageOf[Version]:
        """A page of the versions of a record after the one at position `after`, newest first."""
        refuse(doc_id_violations(record_id, _ID_FIELDS[kind]))
        return await read_within(room, self._offload, self._list, kind, record_id, after, limit)

    async def is_incomplete(self, kinds: Iterable[RecordKind], at: datetime) -> bool:
        """Whether something of these kinds may be missing that was known at a moment."""
        collections = [COLLECTION_OF[kind] for kind in kinds]
        return await self._offload(lambda: any(self._vault.misses_history(each, at) for each in collections))

    async def restore(self, asked: Restoration) -> WriteReceipt:
        """Makes a version the current state of its record, which need not exist any more.

        Raises:
            VersionNotFoundError: the record has no such version.
            RevisionMismatchError: the record has another revision than the expected one.
            InvalidOperationError: the same statement has been saved since.
        """
        refuse(_violations(asked))
        identity = asked.kind.value, asked.record_id, asked.version_id, asked.expected_revision
        key = request_key(asked.request_id, "restore", *identity)
        receipt = await completion(self._vault.transact(lambda tx: _restore(tx, asked), request=key))
        await acknowledge(self._appliers.get(asked.kind), asked.ack, receipt.sequence)
        return receipt.of_record(asked.record_id, *json.loads(receipt.answer))

    async def aclose(self) -> None:
        """Waits for the calls that have begun; calls after it fail."""
        await self._offload.aclose()

    def _list(
        self, kind: RecordKind, record_id: str, after: int, limit: int, *, fits: Fits | None = None
    ) -> PageOf[Version]:
        versions: RecordEngine = self._vault.collection(VERSIONS)
        rows = versions.list_documents(versions_of(kind, [record_id]), limit=_MANY, fields_only=frozenset({"kind"}))
        rows.sort(key=lambda row: (row[1].fields["until"], row[0]), reverse=True)
        positions = [position for position, _ in rows]
        start = positions.index(after) + 1 if after in positions else 0
        wanted = rows[start : start + limit]
        found = versions.get_documents([document.doc_id for _, document in wanted], fits=fits)
        read = found[: found.index(None)] if None in found else found
        last = start + len(read)
        return PageOf(
            tuple(stored_version(document) for document in read if document is not None),
            positions[last - 1] if 0 < last < len(positions) else None,
        )


def _restore(tx: VaultTransaction, asked: Restoration) -> str:
    version = _found(tx, asked)
    records, traits = tx.collection(COLLECTION_OF[asked.kind]), KINDS[asked.kind]
    [current] = records.get_documents([asked.record_id])
    if asked.expected_revision is not None and asked.expected_revision != (current.revision if current else 0):
        raise RevisionMismatchError(asked.record_id, asked.expected_revision, current.revision if current else 0)
    old = version.document
    is_other = current is not None and current.create_time != old.create_time
    if current is not None and is_other and current.scope.user != old.scope.user:
        raise InvalidOperationError(f"{asked.record_id!r} is the record of another user now; delete that one first")
    write = DocumentWrite(document=_visible(old), passages=())
    if asked.kind is RecordKind.SEMANTIC:
        _refuse_duplicate(tx, write.document)
    elif asked.kind is RecordKind.FACT:
        write = restored(old, current, tx.now)
    stamps = None
    if current is None and old.create_time is not None:
        # It is the same record, and not a new one under its id.
        stamps = RecordStamps(old.create_time, tx.now, old.revision + 1)
    change = traits.created if current is None else traits.updated
    if asked.kind is RecordKind.MEMORY and current is not None and current.hidden:
        change = ChangeType.MEMORY_UNDELETED
    passages = [PassageInput(each.start, each.end, np.array(each.embedding, np.float32)) for each in old.passages]
    write = replace(write, passages=passages, change=change, ending=Ending.RESTORE, stamps=stamps)
    receipt = records.put_document(write)
    return json.dumps([receipt.outcome.value, receipt.revision])


def _violations(asked: Restoration) -> Iterator[FieldViolation]:
    yield from doc_id_violations(asked.record_id, _ID_FIELDS[asked.kind])
    yield from doc_id_violations(asked.version_id, "version_id")
    yield from request_id_violations(asked.request_id)
    yield from revision_violations(asked.expected_revision)


def _found(tx: VaultTransaction, asked: Restoration) -> Version:
    [found] = tx.collection(VERSIONS).get_documents([asked.version_id], vectors=True)
    if found is None or (found.fields["kind"], found.fields["record_id"]) != (asked.kind.value, asked.record_id):
        raise VersionNotFoundError(asked.version_id)
    return stored_version(found)


def _visible(document: Document) -> Document:
    """The record, neither deleted nor superseded."""
    empty = {"delete_time": None, "superseded_by": ""}
    fields = {name: empty.get(name, value) for name, value in document.fields.items()}
    return replace(document, fields=fields, hidden=False)


def _refuse_duplicate(tx: VaultTransaction, statement: Document) -> None:
    known = find_duplicate(tx.collection(SEMANTIC), to_semantic(statement))
    if known is not None and known.doc_id != statement.doc_id:
        raise InvalidOperationError(f"the same statement is stored as {known.doc_id!r}")
