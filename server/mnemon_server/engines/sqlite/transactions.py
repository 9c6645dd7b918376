"""Transactions of a vault: programs that read and write on the writer's thread, with all writes in one commit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

import apsw

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.encoding import document_digest, scope_values
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.history import Author
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, Scope, WriteReceipt
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, Visible
from mnemon_server.engines.promises.vault import TransactionReceipt, VaultTransaction
from mnemon_server.engines.sqlite import requests, tombstones, values
from mnemon_server.engines.sqlite.connections import Removals
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.engines.sqlite.mutations import Mutations
from mnemon_server.engines.sqlite.records import RecordReads

Program = Callable[[VaultTransaction], str]


class Transactions:
    """Runs programs within the writer's transaction."""

    def __init__(self, journal: Journal, collections: Mapping[Collection, Mutations], removals: Removals) -> None:
        self._journal = journal
        self._collections = collections
        self._removals = removals

    def run(
        self, connection: apsw.Connection, program: Program, request: RequestKey | None, author: Author
    ) -> TransactionReceipt:
        """See Vault.transact."""
        operation = self._journal.begin(request, author=author)
        if (answer := requests.stored_answer(connection, request, operation.now)) is not None:
            return requests.receipt_from_answer(TransactionReceipt, answer)
        transaction = SQLiteTransaction(connection, operation, self._journal, self._collections)
        receipt = TransactionReceipt(
            answer=program(transaction),
            commit_time=transaction.now,
            sequence=operation.sequence or self._journal.head,
        )
        requests.store_answer(connection, request, requests.receipt_to_answer(receipt), operation.now)
        self._removals.stage(records=transaction.stage())
        return receipt


class SQLiteTransaction:
    """See VaultTransaction."""

    def __init__(
        self,
        connection: apsw.Connection,
        operation: Operation,
        journal: Journal,
        collections: Mapping[Collection, Mutations],
    ) -> None:
        self._connection = connection
        self._operation = operation
        self._journal = journal
        self._collections = collections
        self._opened: dict[Collection, SQLiteRecordTransaction] = {}
        self._forgotten_changes = self._forgotten_answers = 0

    @property
    def now(self) -> datetime:
        """See VaultTransaction."""
        return from_microseconds(self._operation.now)

    def collection(self, collection: Collection) -> "SQLiteRecordTransaction":
        """See VaultTransaction."""
        opened = self._opened.get(collection)
        if opened is None:
            opened = SQLiteRecordTransaction(self._connection, self._operation, self._collections[collection])
            self._opened[collection] = opened
        return opened

    def value(self, key: str) -> str | None:
        """See VaultTransaction."""
        return values.stored_value(self._connection, key)

    def set_value(self, key: str, value: str) -> None:
        """See VaultTransaction."""
        values.set_value(self._connection, key, value)

    def remove_value(self, key: str) -> None:
        """See VaultTransaction."""
        values.remove_value(self._connection, key)

    def entomb(self, keys: Sequence[bytes], time: datetime) -> None:
        """See VaultTransaction."""
        tombstones.add(self._connection, keys, to_microseconds(time))

    def tombstones(self, keys: Sequence[bytes]) -> dict[bytes, datetime]:
        """See VaultTransaction."""
        found = tombstones.find(self._connection, keys)
        return {key: from_microseconds(time_us) for key, time_us in found.items()}

    def forget(self, *, changes: Sequence[int] = (), answers: Sequence[str] = ()) -> int:
        """See VaultTransaction."""
        forgotten = self._journal.forget(self._connection, changes)
        self._forgotten_changes += forgotten
        self._forgotten_answers += requests.forget(self._connection, answers)
        return forgotten + len(answers)

    def note_change(
        self, change: ChangeType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """See VaultTransaction."""
        sequence = self._journal.next_sequence()
        self._operation.add(sequence, change, record_id, revision, scope_values(scope), details=details)

    def stage(self) -> int:
        """Stages the effects of a program that has succeeded; returns how many entries it forgot."""
        for opened in self._opened.values():
            opened.stage()
        self._journal.stage(self._operation)
        self._journal.stage_forgotten(self._connection, self._forgotten_changes)
        return self._forgotten_changes + self._forgotten_answers


class SQLiteRecordTransaction(RecordReads):
    """See RecordTransaction. The connection sees the writes of the running transaction."""

    def __init__(self, connection: apsw.Connection, operation: Operation, mutations: Mutations) -> None:
        super().__init__(mutations, lambda: nullcontext(connection))
        self._connection = connection
        self._writes = mutations.writes
        self._effects = mutations.begin(operation)

    def count_all(self) -> int:
        """See RecordTransaction."""
        return self.count_documents(RecordFilter())

    def put_document(self, write: DocumentWrite) -> WriteReceipt:
        """See RecordTransaction."""
        _refuse_request(write.request)
        return self._writes.put(self._connection, self._effects, write, document_digest(write.document))

    def update_document(self, update: DocumentUpdate) -> WriteReceipt:
        """See RecordTransaction."""
        _refuse_request(update.request)
        return self._writes.update(self._connection, self._effects, update)

    def delete_document(
        self, doc_id: str, *, change: ChangeType | None, details: str = "", visible: Visible | None = None
    ) -> WriteReceipt:
        """See RecordTransaction."""
        return self._writes.delete(self._connection, self._effects, doc_id, change, details=details, visible=visible)

    def delete_documents(
        self, where: RecordFilter, *, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordTransaction."""
        return self._writes.delete_matching(self._connection, self._effects, where, change, details)

    def stage(self) -> None:
        """Stages the effects of a program that has succeeded."""
        self._mutations.stage(self._effects)


def _refuse_request(request: RequestKey | None) -> None:
    if request is not None:
        raise ValueError("writes within a transaction must not have a request of their own")
