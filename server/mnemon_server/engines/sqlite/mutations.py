"""What the writes of one collection do, on the writer's thread and inside its transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apsw

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.document_fields import changed_fields
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest, scope_values
from mnemon_server.domain.errors import RevisionMismatchError
from mnemon_server.domain.events import EventType
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.base import DocumentUpdate, DocumentWrite, IndexPosition, PassageInput, RecordStats
from mnemon_server.engines.sqlite import changes, requests
from mnemon_server.engines.sqlite.documents import DocumentTable, Found, PassageChanges
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.engines.sqlite.vectors import VectorScanner


@dataclass(frozen=True, slots=True)
class _Content:
    """What is to stand in a document's place; `passages` None keeps those that are there."""

    document: Document
    digest: bytes
    passages: Sequence[PassageInput] | None
    event: EventType


@dataclass(slots=True)
class _Outcome:
    """What a write came to."""

    receipt: WriteReceipt
    passages: PassageChanges
    documents_added: int = 0


class Mutations:
    """The writes of one collection, and what is counted along with them.

    Nothing is counted, shown to searches, or left for the log before the write can no longer fail by itself.
    """

    vectors: VectorScanner

    def __init__(
        self, table: DocumentTable, journal: Journal, open_vectors: Callable[[apsw.Connection], VectorScanner]
    ) -> None:
        self._table = table
        self._journal = journal
        self._open_vectors = open_vectors
        self.stats = RecordStats(0, 0, 0)
        self._sequence = self._documents_added = 0
        self._followed = False

    # Operations

    def put(self, connection: apsw.Connection, write: DocumentWrite, digest: bytes) -> WriteReceipt:
        """See RecordEngine.put_document."""
        operation = self._journal.begin(write.request)
        if (answer := requests.stored_answer(connection, write.request, operation.now)) is not None:
            return requests.receipt_from_answer(answer)
        found = self._find(connection, write.document.doc_id, write.expected_revision)
        content = _Content(write.document, digest, write.passages, write.event)
        if found is None:
            outcome = self._create(connection, operation, content, write.passages)
        elif found.digest == digest:
            outcome = _unchanged(operation, write.document.doc_id, found)
        else:
            old = self._load(connection, found)
            outcome = self._replace(connection, operation, content, found, old)
        return self._finish(connection, operation, outcome)

    def update(self, connection: apsw.Connection, update: DocumentUpdate) -> WriteReceipt:
        """See RecordEngine.update_document."""
        operation = self._journal.begin(update.request)
        if (answer := requests.stored_answer(connection, update.request, operation.now)) is not None:
            return requests.receipt_from_answer(answer)
        found = self._find(connection, update.doc_id, update.expected_revision)
        if found is None:
            return self._finish(connection, operation, self._missing(operation, update.doc_id))
        old = self._load(connection, found)
        content = _updated(old, update)
        if content.digest == found.digest:
            outcome = _unchanged(operation, update.doc_id, found)
        else:
            outcome = self._replace(connection, operation, content, found, old)
        return self._finish(connection, operation, outcome)

    def delete(
        self,
        connection: apsw.Connection,
        doc_id: str,
        request: RequestKey | None,
        expected_revision: int | None,
        event: EventType,
    ) -> WriteReceipt:
        """See RecordEngine.delete_document."""
        operation = self._journal.begin(request)
        if (answer := requests.stored_answer(connection, request, operation.now)) is not None:
            return requests.receipt_from_answer(answer)
        found = self._find(connection, doc_id, expected_revision)
        if found is None:
            return self._finish(connection, operation, self._missing(operation, doc_id))
        passages = self._remove(connection, operation, doc_id, found, event)
        receipt = _receipt(operation, doc_id, WriteOutcome.DELETED, found.revision, operation.sequence)
        return self._finish(connection, operation, _Outcome(receipt, passages, documents_added=-1))

    def delete_matching(
        self, connection: apsw.Connection, where: RecordFilter, request: RequestKey | None, event: EventType
    ) -> BulkDeleteReceipt:
        """See RecordEngine.delete_documents."""
        operation = self._journal.begin(request)
        if (answer := requests.stored_answer(connection, request, operation.now)) is not None:
            return requests.bulk_from_answer(answer)
        passages = PassageChanges()
        matching = self._table.matching(connection, where)
        for doc_id, found in matching:
            passages.removed += self._remove(connection, operation, doc_id, found, event).removed
        receipt = BulkDeleteReceipt(len(matching), sequence=operation.sequence or self._sequence)
        requests.store_answer(connection, request, requests.bulk_to_answer(receipt), operation.now)
        self._stage(operation, passages, -len(matching))
        return receipt

    def set_index_position(self, connection: apsw.Connection, index: str, position: IndexPosition) -> None:
        """See RecordEngine.set_index_position."""
        changes.set_position(connection, self._table.tables, index, position)
        self._followed = True

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Takes up what is stored."""
        tables = self._table.tables
        self.stats = changes.stats(connection, tables)
        self._sequence, self._documents_added = self.stats.sequence, 0
        self._followed = changes.is_followed(connection, tables)
        self.vectors = self._open_vectors(connection)

    def before_commit(self, connection: apsw.Connection) -> None:
        """Remembers the newest change."""
        if self._sequence != self.stats.sequence:
            changes.set_last_sequence(connection, self._table.tables, self._sequence)

    def after_commit(self) -> None:
        """What was staged is there."""
        passages_added = self.vectors.publish()
        if self._sequence != self.stats.sequence:
            self.stats = RecordStats(
                self.stats.document_count + self._documents_added,
                self.stats.passage_count + passages_added,
                self._sequence,
            )
            self._documents_added = 0

    def after_rollback(self) -> None:
        """What was staged never happened."""
        self._sequence, self._documents_added = self.stats.sequence, 0
        self.vectors.discard()

    # Parts

    def _find(self, connection: apsw.Connection, doc_id: str, expected_revision: int | None) -> Found | None:
        found = self._table.find(connection, doc_id)
        actual = found.revision if found else 0
        if expected_revision is not None and expected_revision != actual:
            raise RevisionMismatchError(doc_id, expected_revision, actual)
        return found

    def _load(self, connection: apsw.Connection, found: Found) -> Document:
        [(_, _, document)] = self._table.select(connection, "d.position = ?", (found.position,), vectors=False)
        return document

    def _create(
        self, connection: apsw.Connection, operation: Operation, content: _Content, passages: Sequence[PassageInput]
    ) -> _Outcome:
        document, sequence = content.document, self._journal.next_sequence()
        if self._followed:
            changes.forget_deletion(connection, self._table.tables, document.doc_id)
        added = self._table.insert(
            connection, document, passages, digest=content.digest, sequence=sequence, time=operation.now
        )
        operation.add(sequence, content.event, document.doc_id, 1, scope_values(document.scope))
        receipt = _receipt(operation, document.doc_id, WriteOutcome.CREATED, 1, sequence)
        return _Outcome(receipt, added, documents_added=1)

    def _replace(
        self, connection: apsw.Connection, operation: Operation, content: _Content, found: Found, old: Document
    ) -> _Outcome:
        document, sequence, revision = content.document, self._journal.next_sequence(), found.revision + 1
        moved = self._table.replace(
            connection,
            found,
            old,
            document,
            content.passages,
            digest=content.digest,
            sequence=sequence,
            time=operation.now,
        )
        operation.add(
            sequence,
            content.event,
            document.doc_id,
            revision,
            scope_values(document.scope),
            changed_fields(old, document),
        )
        return _Outcome(_receipt(operation, document.doc_id, WriteOutcome.REPLACED, revision, sequence), moved)

    def _remove(
        self, connection: apsw.Connection, operation: Operation, doc_id: str, found: Found, event: EventType
    ) -> PassageChanges:
        sequence = self._journal.next_sequence()
        if self._followed:
            changes.remember_deletion(connection, self._table.tables, doc_id, sequence)
        operation.add(sequence, event, doc_id, found.revision, found.scope)
        return self._table.delete(connection, found)

    def _missing(self, operation: Operation, doc_id: str) -> _Outcome:
        return _Outcome(_receipt(operation, doc_id, WriteOutcome.MISSING, 0, self._sequence), PassageChanges())

    def _finish(self, connection: apsw.Connection, operation: Operation, outcome: _Outcome) -> WriteReceipt:
        if operation.request is not None:
            answer = requests.receipt_to_answer(outcome.receipt)
            requests.store_answer(connection, operation.request, answer, operation.now)
        self._stage(operation, outcome.passages, outcome.documents_added)
        return outcome.receipt

    def _stage(self, operation: Operation, passages: PassageChanges, documents_added: int) -> None:
        self._journal.stage(operation)
        self.vectors.stage(passages.added, passages.vectors, passages.removed)
        self._documents_added += documents_added
        self._sequence = operation.sequence or self._sequence


def _updated(old: Document, update: DocumentUpdate) -> _Content:
    new = update.update(old)
    if new.doc_id != old.doc_id or (update.passages is None and new.content != old.content):
        raise ValueError("an update keeps the document's id, and its content where it brings no passages")
    return _Content(new, document_digest(new), update.passages, update.event)


def _unchanged(operation: Operation, doc_id: str, found: Found) -> _Outcome:
    receipt = _receipt(operation, doc_id, WriteOutcome.UNCHANGED, found.revision, found.sequence)
    return _Outcome(receipt, PassageChanges())


def _receipt(operation: Operation, doc_id: str, outcome: WriteOutcome, revision: int, sequence: int) -> WriteReceipt:
    return WriteReceipt(doc_id, outcome, revision, from_microseconds(operation.now), sequence=sequence)
