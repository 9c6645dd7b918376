"""A transaction of the reference vault: it applies writes immediately, and can undo them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, Scope, WriteReceipt
from mnemon_server.engines.in_memory.change_log import Call, InMemoryChangeLog
from mnemon_server.engines.in_memory.collection import InMemoryCollection
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.in_memory.state import CollectionState
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, FieldsOnly, Visible


class InMemoryTransaction:
    """See VaultTransaction."""

    def __init__(
        self,
        commits: CommitLock,
        call: Call,
        collections: Mapping[Collection, InMemoryCollection],
        values: dict[str, str],
        log: InMemoryChangeLog,
    ) -> None:
        self._commits = commits
        self._log = log
        self._call = call
        self._collections = collections
        self._values = values
        self._opened: dict[Collection, InMemoryRecordTransaction] = {}
        self._undo: list[Callable[[], None]] = [commits.saved(), log.saved(), _saved(values)]

    @property
    def now(self) -> datetime:
        """See VaultTransaction."""
        return self._call.now

    def collection(self, collection: Collection) -> "InMemoryRecordTransaction":
        """See VaultTransaction."""
        if collection not in self._opened:
            records = self._collections[collection]
            self._undo.append(records.state.saved())
            self._opened[collection] = InMemoryRecordTransaction(self._call, records.state, records)
        return self._opened[collection]

    def value(self, key: str) -> str | None:
        """See VaultTransaction."""
        return self._values.get(key)

    def set_value(self, key: str, value: str) -> None:
        """See VaultTransaction."""
        self._values[key] = value

    def entomb(self, keys: Sequence[bytes], time: datetime) -> None:
        """See VaultTransaction."""
        self._commits.tombstones |= {key: max(time, self._commits.tombstones.get(key, time)) for key in keys}

    def tombstones(self, keys: Sequence[bytes]) -> dict[bytes, datetime]:
        """See VaultTransaction."""
        return {key: self._commits.tombstones[key] for key in keys if key in self._commits.tombstones}

    def forget(self, *, changes: Sequence[int] = (), answers: Sequence[str] = ()) -> int:
        """See VaultTransaction."""
        return self._log.forget(changes) + self._commits.forget(answers)

    def note_change(
        self, change: ChangeType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """See VaultTransaction."""
        self._call.add(self._commits.next_sequence(), change, record_id, revision, scope, details=details)

    def undo(self) -> None:
        """Reverts all changes of the transaction."""
        for restore in self._undo:
            restore()


class InMemoryRecordTransaction:
    """See RecordTransaction. Reads use the collection, which already contains the transaction's writes."""

    def __init__(self, call: Call, state: CollectionState, records: InMemoryCollection) -> None:
        self._call = call
        self._state = state
        self._records = records

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordTransaction."""
        return self._records.get_documents(doc_ids, vectors=vectors)

    def list_documents(
        self,
        where: RecordFilter,
        *,
        after: int = 0,
        limit: int,
        vectors: bool = False,
        descending: bool = False,
        fields_only: FieldsOnly = False,
    ) -> list[tuple[int, Document]]:
        """See RecordTransaction."""
        return self._records.list_documents(
            where, after=after, limit=limit, vectors=vectors, descending=descending, fields_only=fields_only
        )

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordTransaction."""
        return self._records.count_documents(where)

    def count_all(self) -> int:
        """See RecordTransaction."""
        return self.count_documents(RecordFilter())

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordTransaction."""
        return self._records.related_documents(query)

    def put_document(self, write: DocumentWrite) -> WriteReceipt:
        """See RecordTransaction."""
        _refuse_request(write.request)
        return self._state.put(self._call, write)

    def update_document(self, update: DocumentUpdate) -> WriteReceipt:
        """See RecordTransaction."""
        _refuse_request(update.request)
        return self._state.update(self._call, update)

    def delete_document(
        self, doc_id: str, *, change: ChangeType | None, details: str = "", visible: Visible | None = None
    ) -> WriteReceipt:
        """See RecordTransaction."""
        return self._state.delete(self._call, doc_id, change, details=details, visible=visible)

    def delete_documents(
        self, where: RecordFilter, *, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordTransaction."""
        return self._state.delete_matching(self._call, where, change, details)


def _refuse_request(request: RequestKey | None) -> None:
    if request is not None:
        raise ValueError("writes within a transaction must not have a request of their own")


def _saved(values: dict[str, str]) -> Callable[[], None]:
    former = dict(values)

    def restore() -> None:
        values.clear()
        values.update(former)

    return restore
