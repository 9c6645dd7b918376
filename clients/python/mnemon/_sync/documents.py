# Generated from _async/documents.py by `make generate`: change that file instead.
"""The blocking client's object for documents."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import BulkIndexDocuments
from mnemon._local_time import Moment
from mnemon._messages.documents import (
    DocumentLike,
    check_filters,
    filter_of,
    index_document,
    no_answer,
    update_document,
)
from mnemon._messages.filters import ids_filter
from mnemon._messages.translation import read, request
from mnemon._sync.bulk import send_all
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import history
from mnemon._values.filters import FilterLike
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1.knowledge_store_pb2_grpc import KnowledgeStoreServiceStub


class Documents(Service):
    """Documents, as `client.documents`: texts under ids of your own, found by meaning and by word."""

    _stub = Stub(KnowledgeStoreServiceStub)

    def put(
        self,
        doc_id: str,
        content: str,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        *,
        scope: values.Scope | None = None,
        ack: str = values.AckLevel.DURABLE,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Stores a document. It replaces the document that has this id.

        With `expected_revision`, it writes only if the document has this revision (0: only if it does not exist);
        otherwise it raises RevisionMismatchError. The same `request_id` with the same document gets the same receipt
        for 24 hours.
        """
        asked = index_document(
            doc_id,
            content,
            metadata,
            scope=scope,
            ack=ack,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        response = self._call(self._stub.IndexDocument, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def update(
        self,
        doc_id: str,
        *,
        content: str | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        set_metadata: Mapping[str, values.MetadataValue] | None = None,
        remove_metadata: Iterable[str] = (),
        scope: values.Scope | Mapping[str, str] | None = None,
        ack: str = values.AckLevel.DURABLE,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Changes the given fields of a document. Raises DocumentNotFoundError if it does not exist.

        `metadata` replaces all metadata; `set_metadata` and `remove_metadata` change single keys. A `Scope` replaces
        the whole scope; a mapping such as {"user": "ada"} changes these parts of it. With `expected_revision`, it
        writes only if the document has this revision; otherwise it raises RevisionMismatchError.
        """
        asked = update_document(
            doc_id,
            content=content,
            metadata=metadata,
            set_metadata=set_metadata,
            remove_metadata=remove_metadata,
            scope=scope,
            ack=ack,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        response = self._call(self._stub.UpdateDocument, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def put_many(
        self,
        documents: Iterable[DocumentLike],
        *,
        scope: values.Scope | None = None,
        ack: str = values.AckLevel.DURABLE,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[values.IndexResult, None, None]:
        """Stores many documents, and yields one result for each, in order. Nothing is sent until you iterate.

        The client reads items lazily and sends them in batches, a few ahead of the results. An invalid item fails
        alone. If the connection breaks, the client resumes where it broke, and each item is stored once. It raises an
        error only if the server stays unavailable or does not answer a batch within `timeout` seconds. `scope` applies
        to documents without a scope.
        """
        method = BulkIndexDocuments(scope=scope, ack=ack)
        return send_all(self._connection.target, lambda: self._stub.BulkIndexDocuments, method, documents, timeout)

    def search(
        self,
        query: str,
        *,
        vector: Sequence[float] | None = None,
        limit: int = 5,
        top_k: int | None = None,
        filters: Mapping[str, values.FilterValue] | None = None,
        scope: values.Scope | None = None,
        where: FilterLike | None = None,
        mode: str | None = None,
        min_score: float = 0.0,
        min_trust: str | None = None,
        view: str = values.View.STANDARD,
        strict: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> values.SearchAnswer:
        """Finds the documents most similar to a text or a vector, best first. `limit`, also `top_k`, is at most 100.

        A blank query without a vector finds nothing, and so does a `limit` of 0. `mode` is "hybrid", "vector" or
        "keyword"; None means hybrid, or vector if only a vector is given. Every result has all pairs of `filters` in
        its metadata, where 5 equals 5.0, and matches `where`, such as F("metadata.year") >= 2020. `min_trust`
        excludes records from less trusted origins: "user", "agent", "tool", "import" or "web".

        A key of `filters` that no document has is ignored with an IgnoredFilterWarning, and listed in
        `ignored_filters`. One that documents have only with values of other types finds nothing, with an
        UnmatchedFilterWarning, and is listed in `unmatched_filters`. With `strict=True`, both raise
        InvalidArgumentError.
        """
        most = limit if top_k is None else top_k
        if most <= 0:
            return no_answer(mode)
        asked = request(
            pb.SearchDocumentsRequest,
            as_of=as_of,
            query=query,
            vector=vector,
            limit=most,
            filters=filters,
            filter=filter_of(scope, where, min_trust),
            mode=mode,
            min_score=min_score,
            view=view,
        )
        response = self._call(self._stub.SearchDocuments, asked, timeout)
        check_filters(response, strict=strict)
        return read(values.SearchAnswer, response)

    def get(
        self,
        doc_id: str,
        *,
        view: str = values.View.STANDARD,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> values.Document:
        """Returns one document. Raises DocumentNotFoundError if it does not exist."""
        asked = request(pb.GetDocumentRequest, as_of=as_of, doc_id=doc_id, view=view)
        response = self._call(self._stub.GetDocument, asked, timeout)
        return read(values.Document, response.document)

    def list(
        self,
        *,
        filters: Mapping[str, values.FilterValue] | None = None,
        scope: values.Scope | None = None,
        where: FilterLike | None = None,
        view: str = values.View.STANDARD,
        page_size: int = 0,
        strict: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> Iterator[values.Document]:
        """Yields all documents that match, in the order in which they were first indexed.

        `filters` and `strict` work as in `search`. `timeout` applies to each page.
        """
        return self._items(
            self.list_page,
            page_size=page_size,
            filters=filters,
            scope=scope,
            where=where,
            view=view,
            strict=strict,
            as_of=as_of,
            timeout=timeout,
        )

    def list_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        filters: Mapping[str, values.FilterValue] | None = None,
        scope: values.Scope | None = None,
        where: FilterLike | None = None,
        view: str = values.View.STANDARD,
        strict: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> values.DocumentPage:
        """Returns one page of documents: 100 if `page_size` is 0, at most 1,000, and at most 4 MiB.

        Repeat the other arguments of the previous page. Raises InvalidPageTokenError if they differ. `filters`
        and `strict` work as in `search`.
        """
        asked = request(
            pb.ListDocumentsRequest,
            as_of=as_of,
            filter=filter_of(scope, where),
            filters=filters,
            view=view,
            page_size=page_size,
            page_token=page_token,
        )
        response = self._call(self._stub.ListDocuments, asked, timeout)
        if not page_token:
            check_filters(response, strict=strict)
        return read(values.DocumentPage, response)

    def count(
        self,
        *,
        filters: Mapping[str, values.FilterValue] | None = None,
        scope: values.Scope | None = None,
        where: FilterLike | None = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Counts the documents that match; `filters` and `strict` work as in `search`."""
        asked = request(pb.CountDocumentsRequest, filter=filter_of(scope, where), filters=filters)
        response = self._call(self._stub.CountDocuments, asked, timeout)
        check_filters(response, strict=strict)
        return response.count

    def versions(
        self, doc_id: str, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[history.DocumentVersion]:
        """Yields the earlier versions of a document, newest first, if it has any. `timeout` applies to each page."""
        return self._items(self.versions_page, doc_id, page_size=page_size, timeout=timeout)

    def versions_page(
        self, doc_id: str, *, page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> history.DocumentVersionPage:
        """Returns one page of the earlier versions of a document: 100 if `page_size` is 0, at most 1,000."""
        kind = pb.ListDocumentVersionsRequest
        asked = request(kind, doc_id=doc_id, page_size=page_size, page_token=page_token)
        return read(history.DocumentVersionPage, self._call(self._stub.ListDocumentVersions, asked, timeout))

    def restore_version(
        self,
        doc_id: str,
        version_id: str,
        *,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Makes an earlier version of a document the current one, also of one that was deleted.

        Raises VersionNotFoundError if the document has no such version.
        """
        asked = request(
            pb.RestoreDocumentVersionRequest,
            doc_id=doc_id,
            version_id=version_id,
            expected_revision=expected_revision,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.RestoreDocumentVersion, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def delete(
        self,
        doc_id: str,
        *,
        allow_missing: bool = False,
        ack: str = values.AckLevel.DURABLE,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Removes one document. Raises DocumentNotFoundError if it does not exist, unless `allow_missing`.

        With `expected_revision`, it removes the document only if it has this revision; otherwise it raises
        RevisionMismatchError.
        """
        asked = request(
            pb.DeleteDocumentRequest,
            doc_id=doc_id,
            allow_missing=allow_missing,
            ack=ack,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        response = self._call(self._stub.DeleteDocument, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def delete_many(
        self,
        doc_ids: Iterable[str] | None = None,
        *,
        filters: Mapping[str, values.FilterValue] | None = None,
        scope: values.Scope | None = None,
        where: FilterLike | None = None,
        dry_run: bool = False,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.BulkDeleteReceipt:
        """Removes documents, in one transaction: those with these ids, or all that match.

        Ids that do not exist are not counted. With `dry_run`, it only counts. Raises InvalidArgumentError without ids,
        filters and scope, with ids and one of the others, or if one of `filters` can match no document.
        """
        if doc_ids is not None:
            where = ids_filter("doc_ids", doc_ids, "doc_id", alone=not filters and scope is None and where is None)
        asked = request(
            pb.DeleteDocumentsRequest,
            filter=filter_of(scope, where),
            filters=filters,
            dry_run=dry_run,
            ack=ack,
            request_id=request_id,
        )
        return read(values.BulkDeleteReceipt, self._call(self._stub.DeleteDocuments, asked, timeout))

    def rebuild_index(self, *, timeout: float | None = None) -> Iterator[values.RebuildProgress]:
        """Rebuilds the vector database from the records, and yields the progress. Nothing is sent until you iterate.

        The server answers searches meanwhile. There is no deadline unless `timeout` sets one for the whole rebuild. If
        you stop reading, the rebuild continues.
        """
        with closing(self._stream(self._stub.RebuildIndex, pb.RebuildIndexRequest(), timeout)) as messages:
            for progress in messages:
                yield read(values.RebuildProgress, progress)

    def status(self, *, timeout: float | None = None) -> values.StoreHealth:
        """Returns the health of the store and of its vector database."""
        return read(values.StoreHealth, self._call(self._stub.CheckHealth, pb.CheckHealthRequest(), timeout))
