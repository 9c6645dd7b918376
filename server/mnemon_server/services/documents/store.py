"""The document service: documents that are found again by meaning and by word.

It stands on a record engine, which keeps the truth, and, for the backend chromadb, on a vector index that follows it.
To move to another backend, configure it: the records stay, and the index is built from them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from mnemon_server.domain.documents import (
    Document,
    DocumentFilter,
    DocumentPage,
    HealthStatus,
    IndexRequest,
    RebuildProgress,
    SearchAnswer,
    SearchQuery,
    StoreHealth,
    UpdateDocument,
)
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import (
    BackendConnectionError,
    DocumentNotFoundError,
    InvalidOperationError,
    MnemonError,
    RevisionMismatchError,
)
from mnemon_server.domain.records import (
    AckLevel,
    BulkDeleteReceipt,
    FilterNotes,
    View,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.domain.validation import doc_id_violations, normalised, refuse, request_id_violations
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, Fits, PassageInput
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.documents.changes import DocumentChanges
from mnemon_server.services.documents.checks import index_violations, query_violations, removal_violations
from mnemon_server.services.documents.filters import (
    filter_violations,
    lenient_filter,
    strict_filter,
    strict_violations,
    unmet_violations,
)
from mnemon_server.services.documents.search import DocumentSearch
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.embedded_passages import embed_passages, placed
from mnemon_server.services.search.index_applier import IndexApplier, status_of_index
from mnemon_server.services.search.passage_queries import fetch_vector
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import DEFAULT_SEARCH, LOCAL_BACKEND, SearchSettings, VectorBackend
from mnemon_server.services.writing.writes import (
    Puts,
    Waiting,
    WriteBatcher,
    acknowledge,
    acknowledge_each,
    delete_matching,
    put_all,
    recovery_problem,
    request_key,
    take_in,
    take_in_own,
)

log = logging.getLogger(__name__)

_READ_AS: Mapping[View, Mapping[str, bool]] = {
    View.IDS: {"fields_only": True},
    View.STANDARD: {},
    View.FULL: {"vectors": True},
}
"""The parts of a record to read, by view."""


class DocumentStore:
    """Documents over the records of a vault. Closes its index, not the records."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        backend: VectorBackend = LOCAL_BACKEND,
        *,
        search: SearchSettings = DEFAULT_SEARCH,
    ) -> None:
        """Takes over the backend, but not the records and the embedder."""
        self._embedder = embedder
        self._model = embedder.model
        self.backend = backend
        """Indexes the vectors."""
        self.waiting = Waiting()
        """Documents that wait for the engine."""
        self._applier = backend.applier
        self._offload = Offload(search.threads, "reader")
        self._passages = PassageSearch(records, embedder.embed_query, applier=backend.applier, settings=search)
        self._use(records)

    def _use(self, records: RecordEngine) -> None:
        self._records = records
        self._search = DocumentSearch(self._passages, self.backend.name)
        self._reads: ReadBatcher[Document | None] = ReadBatcher(records.get_documents, self._offload)
        self._puts: Puts = WriteBatcher(records.put_documents, self.waiting)
        self._changes = DocumentChanges(records, self._embedder, self._reads)

    def over(self, records: RecordEngine) -> "DocumentStore":
        """The same store over a part of the records. It shares the threads; close this one alone."""
        part = copy(self)
        part._passages = self._passages.over(records)
        part._use(records)
        return part

    async def index(self, request: IndexRequest) -> WriteReceipt:
        """Stores one document.

        Errors as RecordEngine.put_document, EmbeddingError, InvalidArgumentError; DocumentNotFoundError if a revision
        is expected of a document that does not exist.
        """
        [result] = await self.index_many([request])
        if isinstance(result, MnemonError):
            raise result
        return result

    async def index_many(self, requests: Sequence[IndexRequest]) -> list[WriteReceipt | MnemonError]:
        """Stores documents in their order, and returns one result each; one that is wrong fails alone."""
        return await take_in(requests, index_violations, self._store)

    async def update(self, request: UpdateDocument) -> WriteReceipt:
        """Changes what the request names of a document. DocumentNotFoundError if it does not exist."""
        receipt = await self._changes.update(request)
        await acknowledge(self._applier, request.ack, receipt.sequence)
        return receipt

    async def search(self, query: SearchQuery, *, room: Room | None = None) -> SearchAnswer:
        """Searches; see SearchQuery. Filters that cannot be applied are named in the answer."""
        refuse(query_violations(query, self._model.dimension))
        await fetch_vector(self._embedder, query)
        return await read_within(room, self._offload, self._search.find, query)

    async def get(self, doc_id: str, *, view: View = View.STANDARD, room: Room | None = None) -> Document:
        """The document, with the parts that the view shows. DocumentNotFoundError if it does not exist."""
        refuse(doc_id_violations(doc_id))
        if view is View.STANDARD:
            document = await self._reads.get(doc_id, room)
        else:
            read = self._records.get_documents
            [document] = await read_within(room, self._offload, read, [doc_id], **_READ_AS[view])
        if document is None:
            raise DocumentNotFoundError(doc_id)
        return document

    async def list(
        self,
        *,
        where: DocumentFilter,
        after: int = 0,
        limit: int,
        view: View = View.STANDARD,
        room: Room | None = None,
    ) -> DocumentPage:
        """A page of documents in the order of first indexing, after position `after`."""
        refuse(filter_violations(where))
        return await read_within(room, self._offload, self._list, where, after, limit, view)

    async def count(self, where: DocumentFilter) -> tuple[int, FilterNotes]:
        """The number of matching documents, and the notes about the filters."""
        refuse(filter_violations(where))
        return await self._offload(self._count, where)

    async def delete(
        self,
        doc_id: str,
        *,
        request_id: str = "",
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: AckLevel = AckLevel.DURABLE,
    ) -> WriteReceipt:
        """Removes a document. DocumentNotFoundError if it does not exist, unless `allow_missing`."""
        refuse(removal_violations(doc_id, request_id, expected_revision))
        request = request_key(request_id, "delete", doc_id, expected_revision)
        future = self._records.delete_document(doc_id, request=request, expected_revision=expected_revision)
        receipt = await completion(future)
        if receipt.outcome is WriteOutcome.MISSING and not allow_missing:
            raise DocumentNotFoundError(doc_id)
        await acknowledge(self._applier, ack, receipt.sequence)
        return receipt

    async def delete_many(
        self,
        where: DocumentFilter,
        *,
        dry_run: bool = False,
        request_id: str = "",
        ack: AckLevel = AckLevel.DURABLE,
    ) -> BulkDeleteReceipt:
        """Removes every document that matches, in one transaction; with `dry_run` counts them and removes nothing.

        Raises:
            InvalidArgumentError: a key or value is invalid, everything would match, or no document could meet one of
                the filters.
        """
        refuse([*strict_violations(where), *request_id_violations(request_id)])
        records, matching = self._records, replace(strict_filter(where), is_writing=True)
        asked = (_typed(where.filters), where.scope, repr(where.expression))
        request = request_key(request_id, "delete-matching", *asked)
        receipt = await delete_matching(
            self._offload,
            lambda: BulkDeleteReceipt(records.count_documents(matching)),
            lambda: completion(records.delete_documents(matching, request=request)),
            unmet=unmet_violations(records, where),
            dry_run=dry_run,
        )
        await acknowledge(self._applier, ack, receipt.sequence)
        return receipt

    async def rebuild_index(self) -> AsyncIterator[RebuildProgress]:
        """Rebuilds the vector index; it continues after the caller leaves.

        Raises:
            InvalidOperationError: the backend has no vector index.
            BackendConnectionError: the index cannot be reached; it is built once it can.
        """
        if self._applier is None:
            raise InvalidOperationError(f"the backend {self.backend.name} has no vector index to rebuild")
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[RebuildProgress] = asyncio.Queue()

        def hear(progress: RebuildProgress) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, progress)

        end = self._applier.rebuild(hear)
        try:
            while True:
                progress = await _next_progress(queue, self._applier)
                yield progress
                if progress.done >= progress.total:
                    return
        finally:
            end()

    async def check_health(self) -> StoreHealth:
        """The health of the store. Never raises."""
        try:
            return await self._offload(self._health, await self.backend.outage())
        except Exception:
            log.exception("health check failed")
            return self._described(HealthStatus.UNHEALTHY, "the records cannot be read; the log says why")

    async def is_ready(self) -> bool:
        """Whether writes are accepted; tries to reopen failed records. Writes work without a vector database."""
        return not await self._offload(recovery_problem, self._records)

    async def aclose(self) -> None:
        """Waits for what has begun, and closes the vector index; calls after it fail."""
        await self._offload.aclose()
        await asyncio.to_thread(self._passages.close)
        await asyncio.to_thread(self.backend.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # Writing

    async def _store(self, requests: Sequence[IndexRequest]) -> Sequence[WriteReceipt | MnemonError]:
        guard = self._records.guard
        results = await take_in_own(requests, guard, lambda request: _write(request, ()), self._embed_and_write)
        return [_as_not_found(result) for result in results]

    async def _embed_and_write(self, requests: Sequence[IndexRequest]) -> Sequence[WriteReceipt | MnemonError]:
        texts = [placed(request.document, self._records.heads) for request in requests]
        try:
            passages = await embed_passages(self._embedder, texts)
        except MnemonError as error:
            return [error] * len(requests)
        writes = [_write(request, parts) for request, parts in zip(requests, passages, strict=True)]
        results = await put_all(self._puts, writes, "document")
        return await acknowledge_each(self._applier, [request.ack for request in requests], results)

    # Reading, on a reader's thread

    def _list(
        self,
        where: DocumentFilter,
        after: int,
        limit: int,
        view: View,
        *,
        fits: Fits | None,
    ) -> DocumentPage:
        matching, notes = lenient_filter(self._records, where)
        rows, position = read_page(self._records, matching, after=after, limit=limit, fits=fits, **_READ_AS[view])
        return DocumentPage(tuple(document for _, document in rows), position, notes)

    def _count(self, where: DocumentFilter) -> tuple[int, FilterNotes]:
        matching, notes = lenient_filter(self._records, where)
        return self._records.count_documents(matching), notes

    def _health(self, problem: str) -> StoreHealth:
        if unreadable := recovery_problem(self._records):
            return self._described(HealthStatus.UNHEALTHY, unreadable)
        stats = self._records.stats()
        return self._described(
            status_of_index(problem),
            problem,
            document_count=stats.document_count,
            passage_count=stats.passage_count,
            pending=self.backend.pending() or 0,
            latency_s=self._applier.pulse.latency_s if self._applier and not problem else None,
            removal_pending_count=self._records.removals_pending(),
            removal_out_of_reach_count=self.backend.removals(),
        )

    def _described(self, status: HealthStatus, message: str = "", **figures: Any) -> StoreHealth:
        return StoreHealth(
            status=status,
            message=message,
            backend=self.backend.name,
            host=self._applier.index.host if self._applier else "",
            collection=self.backend.collection,
            model_name=self._model.name,
            model_revision=self._model.revision,
            model_precision=self._model.precision,
            dimension=self._model.dimension,
            **figures,
        )


def _write(request: IndexRequest, passages: Sequence[PassageInput]) -> DocumentWrite:
    document = normalised(request.document)
    key = None
    if request.request_id:
        key = request_key(request.request_id, "index", document_digest(document), request.expected_revision)
    return DocumentWrite(document=document, passages=passages, request=key, expected_revision=request.expected_revision)


def _as_not_found(result: WriteReceipt | MnemonError) -> WriteReceipt | MnemonError:
    if not isinstance(result, RevisionMismatchError) or result.actual:
        return result
    error = DocumentNotFoundError(result.resource_id)
    error.__cause__ = result
    return error


async def _next_progress(queue: asyncio.Queue[RebuildProgress], applier: IndexApplier) -> RebuildProgress:
    while True:
        try:
            async with asyncio.timeout(1.0):
                return await queue.get()
        except TimeoutError:
            if failure := applier.failure:
                raise BackendConnectionError(failure) from None


def _typed(filters: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """JSON would call 1 and true different, and 1 and 1.0, but its keys must be in one order."""
    return sorted((key, type(value).__name__, value) for key, value in filters.items())
