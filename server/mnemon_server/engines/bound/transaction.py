"""A collection inside a transaction, limited to the records that a caller may see."""

from collections.abc import Callable, Sequence
from typing import Unpack

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, WriteReceipt
from mnemon_server.engines.bound.records import Boundary, both
from mnemon_server.engines.promises.records import RecordTransaction
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, Page


class BoundRecordTransaction:
    """See RecordTransaction."""

    def __init__(self, records: RecordTransaction, collection: Collection, bounds: Bounds) -> None:
        self._records = records
        self._boundary = Boundary(collection, bounds)
        self.count_all, self.sourced, self.may_change = records.count_all, bounds.sourced, bounds.may_change
        """See RecordTransaction."""

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordTransaction."""
        found = self._records.get_documents(doc_ids, vectors=vectors)
        if self._boundary.reads_origins:
            seen = self._boundary.admitted(self._records, doc_ids)
            return [document if document and document.doc_id in seen else None for document in found]
        return [document if document and self._boundary.admits(document) else None for document in found]

    def list_documents(self, where: RecordFilter, **page: Unpack[Page]) -> list[tuple[int, Document]]:
        """See RecordTransaction."""
        return self._records.list_documents(self._boundary.where(where), **page)

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordTransaction."""
        return self._records.count_documents(self._boundary.where(where))

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordTransaction."""
        return self._boundary.related(self._records, query, writing=True)

    def put_document(self, write: DocumentWrite) -> WriteReceipt:
        """See RecordTransaction."""
        return self._records.put_document(self._boundary.put(write))

    def update_document(self, update: DocumentUpdate) -> WriteReceipt:
        """See RecordTransaction."""
        return self._records.update_document(self._boundary.update(update))

    def delete_document(
        self,
        doc_id: str,
        *,
        change: ChangeType | None,
        details: str = "",
        visible: Callable[[Document], bool] | None = None,
    ) -> WriteReceipt:
        """See RecordTransaction."""
        self._boundary.check_writable()
        seen = both(self._boundary.changeable, visible)
        return self._records.delete_document(doc_id, change=change, details=details, visible=seen)

    def delete_documents(
        self, where: RecordFilter, *, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordTransaction."""
        own = self._boundary.to_remove(self._records, where)
        return self._records.delete_documents(own, change=change, details=details)
