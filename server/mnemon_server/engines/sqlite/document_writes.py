"""Writes to one collection within a call, which is a single write or a transaction of many."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import apsw

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import changed_fields, document_digest, is_replaced, scope_values
from mnemon_server.domain.errors import RevisionMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.history import NO_AUTHOR, PURGES, ending_of
from mnemon_server.domain.records import BulkDeleteReceipt, WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput, RecordStamps, Visible
from mnemon_server.engines.sqlite import history_gaps, journal
from mnemon_server.engines.sqlite.documents import DocumentTable, Found, NewDocument, PassageChanges
from mnemon_server.engines.sqlite.journal import Journal, Operation

if TYPE_CHECKING:
    from mnemon_server.engines.sqlite.history import History


@dataclass(slots=True)
class Effects:
    """The effects of a call on one collection's state in memory, held back until the call has succeeded."""

    operation: Operation
    sequence: int
    """Sequence number of the collection's newest change."""
    passages: PassageChanges = field(default_factory=PassageChanges)
    documents_added: int = 0
    removed: int = 0
    """Number of documents whose client data was removed or replaced."""
    versions: "Effects | None" = None
    """The effects on VERSIONS, if versions of these documents are kept."""


class DocumentWrites:
    """Writes documents, and records the effects that are staged after the call."""

    def __init__(self, table: DocumentTable, journal: Journal, history: "History | None" = None) -> None:
        """`history` keeps earlier versions; None keeps none."""
        self._table = table
        self._journal = journal
        self._history = history
        self.followed = False
        """Whether any index is fed from the collection."""

    def put(self, connection: apsw.Connection, effects: Effects, write: DocumentWrite, digest: bytes) -> WriteReceipt:
        """See RecordEngine.put_document."""
        found = self._table.find(connection, write.document.doc_id)
        if self._is_foreign(connection, found, write.visible):
            raise write.taken()
        _check_revision(write.document.doc_id, found, write.expected_revision)
        if found is None:
            [receipt] = self.create(connection, effects, [(write, digest)])
            return receipt
        if found.digest != digest:
            old = self._load(connection, found)
            return self._replace(connection, effects, write, write.passages, digest, found, old)
        if write.stamps is not None and not _has_times(old := self._load(connection, found), write.stamps):
            return self._replace(connection, effects, write, None, digest, found, old)
        return _receipt(effects, write.document.doc_id, WriteOutcome.UNCHANGED, found.revision, found.sequence)

    def create(
        self, connection: apsw.Connection, effects: Effects, writes: Sequence[tuple[DocumentWrite, bytes]]
    ) -> list[WriteReceipt]:
        """Stores documents that do not exist, each with its digest."""
        next_sequence, operation, table = self._journal.next_sequence, effects.operation, self._table
        new = [
            NewDocument(write.document, write.passages, digest, next_sequence(), operation.now)
            for write, digest in writes
        ]
        if self.followed:
            journal.forget_deletions(connection, table.tables, [write.document.doc_id for write, _ in writes])
        effects.passages.add(table.insert(connection, new))
        effects.documents_added += len(new)
        effects.sequence = new[-1].sequence
        time = from_microseconds(operation.now)
        receipts = []
        for (write, _), (document, _, _, sequence, _) in zip(writes, new, strict=True):
            doc_id, revision = document.doc_id, 1
            if write.stamps is not None:
                self._note_unknown(connection, write)
                revision = max(revision, write.stamps.revision)
                table.set_stamps(connection, doc_id, write.stamps, revision)
            scope, details = scope_values(document.scope), write.details
            if write.change is not None:
                operation.add(sequence, write.change, doc_id, revision, scope, details=details, request=write.request)
            receipts.append(WriteReceipt(doc_id, WriteOutcome.CREATED, revision, time, sequence=sequence))
        return receipts

    def update(self, connection: apsw.Connection, effects: Effects, update: DocumentUpdate) -> WriteReceipt:
        """See RecordEngine.update_document."""
        found = self._table.find(connection, update.doc_id)
        if found is None or self._is_foreign(connection, found, update.visible):
            return _missing(effects, update.doc_id)
        _check_revision(update.doc_id, found, update.expected_revision)
        old = self._load(connection, found)
        new = update.update(old)
        if new.doc_id != old.doc_id or (update.passages is None and new.content != old.content):
            raise ValueError("an update must keep the document's id, and without passages also its content")
        digest = document_digest(new)
        if digest == found.digest:
            return _receipt(effects, update.doc_id, WriteOutcome.UNCHANGED, found.revision, found.sequence)
        write = DocumentWrite(
            document=new,
            passages=(),
            change=update.change,
            details=update.details,
            ending=update.ending,
            author=update.author,
        )
        return self._replace(connection, effects, write, update.passages, digest, found, old)

    def delete(
        self,
        connection: apsw.Connection,
        effects: Effects,
        doc_id: str,
        change: ChangeType | None,
        *,
        expected_revision: int | None = None,
        details: str = "",
        visible: Visible | None = None,
    ) -> WriteReceipt:
        """See RecordEngine.delete_document."""
        found = self._table.find(connection, doc_id)
        if found is None or self._is_foreign(connection, found, visible):
            return _missing(effects, doc_id)
        _check_revision(doc_id, found, expected_revision)
        self._remove(connection, effects, doc_id, found, change, details)
        return _receipt(effects, doc_id, WriteOutcome.DELETED, found.revision, effects.sequence)

    def delete_matching(
        self,
        connection: apsw.Connection,
        effects: Effects,
        where: RecordFilter,
        change: ChangeType | None,
        details: str = "",
    ) -> BulkDeleteReceipt:
        """See RecordEngine.delete_documents."""
        matching = self._table.matching(connection, where)
        for doc_id, found in matching:
            self._remove(connection, effects, doc_id, found, change, details)
        return BulkDeleteReceipt(len(matching), sequence=effects.sequence)

    def _is_foreign(self, connection: apsw.Connection, found: Found | None, visible: Visible | None) -> bool:
        return found is not None and visible is not None and not visible(self._load(connection, found))

    def _load(self, connection: apsw.Connection, found: Found) -> Document:
        [(_, _, document)] = self._table.select(connection, "d.position = ?", (found.position,), vectors=False)
        return document

    def _replace(
        self,
        connection: apsw.Connection,
        effects: Effects,
        write: DocumentWrite,
        passages: Sequence[PassageInput] | None,
        digest: bytes,
        found: Found,
        old: Document,
    ) -> WriteReceipt:
        """Replaces a document, and its passages unless `passages` is None. Changes without a log entry keep the
        revision.
        """
        document, sequence, operation = write.document, self._journal.next_sequence(), effects.operation
        if write.change is not None and self._history is not None and effects.versions is not None:
            ending = write.ending or ending_of(write.change, write.details, was_hidden=old.hidden)
            author = operation.author or write.author
            self._history.keep(connection, effects.versions, found, old, ending=ending, author=author)
        moved = self._table.replace(
            connection,
            found,
            old,
            document,
            passages,
            digest=digest,
            sequence=sequence,
            time=None if write.change is None else operation.now,
        )
        revision = found.revision + (write.change is not None)
        if write.stamps is not None:
            revision = max(revision, write.stamps.revision)
            self._table.set_stamps(connection, document.doc_id, write.stamps, revision)
        operation.sequence = sequence
        if write.change is not None:
            changed = changed_fields(old, document) if write.changed is None else write.changed
            scope = scope_values(document.scope)
            operation.add(sequence, write.change, document.doc_id, revision, scope, changed, write.details)
        effects.passages.add(moved)
        if is_replaced(old, document):
            self._count_removal(connection, effects)
        effects.sequence = sequence
        return _receipt(effects, document.doc_id, WriteOutcome.REPLACED, revision, sequence)

    def _remove(
        self,
        connection: apsw.Connection,
        effects: Effects,
        doc_id: str,
        found: Found,
        change: ChangeType | None,
        details: str,
    ) -> None:
        sequence = self._journal.next_sequence()
        self._end(connection, effects, found, change, details)
        if self.followed:
            journal.remember_deletion(connection, self._table.tables, doc_id, sequence)
        effects.operation.sequence = sequence
        if change is not None:
            effects.operation.add(sequence, change, doc_id, found.revision, found.scope, details=details)
        effects.passages.add(self._table.delete(connection, found))
        effects.documents_added -= 1
        self._count_removal(connection, effects)
        effects.sequence = sequence

    def _end(
        self, connection: apsw.Connection, effects: Effects, found: Found, change: ChangeType | None, details: str
    ) -> None:
        """Keeps the last version of a document that is being removed, or none if it is removed for good."""
        if self._table.tables.collection == VERSIONS:
            history_gaps.note_version(connection, self._journal.origin, found.position)
        if self._history is None or effects.versions is None or change is None:
            return
        old, author = self._load(connection, found), effects.operation.author or NO_AUTHOR
        if change in PURGES:
            self._history.purge(connection, effects.versions, old)
        else:
            ending = ending_of(change, details)
            self._history.keep(connection, effects.versions, found, old, ending=ending, author=author)

    def _note_unknown(self, connection: apsw.Connection, write: DocumentWrite) -> None:
        """Notes that an imported document has a past that is not known, unless it comes back from its own history."""
        stamps, kind = write.stamps, self._table.tables.collection
        if stamps is not None and kind.keeps_versions and write.ending is None:
            old = replace(write.document, update_time=stamps.create_time)
            until = to_microseconds(stamps.update_time)
            history_gaps.note_record(connection, self._journal.origin, kind.name, old, until)

    def _count_removal(self, connection: apsw.Connection, effects: Effects) -> None:
        effects.removed += 1
        if self.followed:
            journal.count_removal(connection, self._table.tables)


def _check_revision(doc_id: str, found: Found | None, expected: int | None) -> None:
    actual = found.revision if found else 0
    if expected is not None and expected != actual:
        raise RevisionMismatchError(doc_id, expected, actual)


def _has_times(document: Document, stamps: RecordStamps) -> bool:
    return (document.create_time, document.update_time) == (stamps.create_time, stamps.update_time)


def _missing(effects: Effects, doc_id: str) -> WriteReceipt:
    return _receipt(effects, doc_id, WriteOutcome.MISSING, 0, effects.sequence)


def _receipt(effects: Effects, doc_id: str, outcome: WriteOutcome, revision: int, sequence: int) -> WriteReceipt:
    return WriteReceipt(doc_id, outcome, revision, from_microseconds(effects.operation.now), sequence=sequence)
