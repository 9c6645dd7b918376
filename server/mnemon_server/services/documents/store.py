"""The knowledge store: documents that are found again by meaning and by word.

`KnowledgeStore` is what an agent's code depends on:

    async with get_knowledge_store() as store:
        await store.index_document("note-1", "Ada prefers window seats.", {"topic": "travel"})
        for result in await store.search("Where does Ada like to sit?", top_k=3, filters={"topic": "travel"}):
            print(result.score, result.content)

`DocumentStore` implements it over a record engine, which keeps the truth, and, for the backend chromadb, a vector index
that follows it. To move to another backend, configure it: the records stay, and the index is built from them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from mnemon_server.domain.documents import (
    TOP_K_DEFAULT,
    Document,
    DocumentPage,
    HealthStatus,
    IndexRequest,
    RebuildProgress,
    SearchAnswer,
    SearchQuery,
    SearchResult,
    StoreHealth,
)
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import (
    BackendConnectionError,
    DocumentNotFoundError,
    IndexingError,
    InvalidArgumentError,
    InvalidOperationError,
    MnemonError,
)
from mnemon_server.domain.records import (
    AckLevel,
    BulkDeleteReceipt,
    FilterValue,
    IgnoredFilter,
    MetadataValue,
    Scope,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.domain.validation import (
    doc_id_violations,
    document_violations,
    normalised,
    refuse,
    request_id_violations,
    revision_violations,
)
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.base import DocumentWrite, PassageInput, RecordEngine
from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.services.documents.filters import lenient_filter, strict_filter
from mnemon_server.services.documents.search import DocumentSearch
from mnemon_server.services.search.embedded_passages import embed_passages
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.reranking import Ranker
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.gathered_reads import GatheredReads
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.pages import content_bytes, read_page
from mnemon_server.services.shared.writes import acknowledge, request_key

log = logging.getLogger(__name__)


@runtime_checkable
class KnowledgeStore(Protocol):
    """Documents that are found by meaning. All methods are safe to call from many tasks at once.

    Errors are KnowledgeStoreErrors: EmbeddingError, IndexingError, SearchError, BackendConnectionError; arguments that
    are wrong raise InvalidArgumentError.
    """

    async def index_document(
        self, doc_id: str, content: str, metadata: Mapping[str, MetadataValue] | None = None
    ) -> bool:
        """Stores a document, replacing the one with its id as a whole. True once it is on stable storage."""

    async def search(
        self, query: str, top_k: int = TOP_K_DEFAULT, filters: Mapping[str, FilterValue] | None = None
    ) -> list[SearchResult]:
        """The `top_k` (at most 100) most relevant documents, best first.

        Filters compare type and value, and join by AND; an invalid key is ignored. A blank query, or a `top_k` of 0 or
        less, finds nothing.
        """

    async def get_by_id(self, doc_id: str) -> Document | None:
        """The document, or None."""

    async def delete(self, doc_id: str) -> bool:
        """Removes the document; False where there was none."""

    async def health_check(self) -> bool:
        """Whether the store and its backend answer. Never raises."""


class DocumentStore:
    """The knowledge store over its engines; see the module's docstring. Closes its index, not the records."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        *,
        model: EmbeddingModel,
        backend: str,
        collection: str = "",
        applier: IndexApplier | None = None,
        exact_scan_max: int = 20_000,
        fusion: Fusion = DEFAULT_FUSION,
        ranker: Ranker | None = None,
        reader_threads: int = 4,
    ) -> None:
        """Takes over the applier; the records and the embedder stay their owners'.

        Args:
            records: where documents are kept; open for as long as the store is.
            embedder: makes the vectors.
            model: what `embedder` runs.
            backend: the name that results and health carry.
            collection: the name of the collection in the vector index.
            applier: feeds the vector index; None for a backend without one.
            exact_scan_max: up to so many candidate passages are compared one by one.
            fusion: how meaning and words become the score of a hybrid search.
            ranker: takes a second look at what a hybrid search finds; None: nobody does.
            reader_threads: reads at the same time.
        """
        self._records = records
        self._embedder = embedder
        self._model = model
        self._backend = backend
        self._collection = collection
        self._applier = applier
        self._offload = Offload(reader_threads, "reader")
        self._reads = GatheredReads(records.get_documents, self._offload)
        self._search = DocumentSearch(
            records,
            embedder.embed_query,
            backend=backend,
            applier=applier,
            exact_scan_max=exact_scan_max,
            fusion=fusion,
            ranker=ranker,
            threads=reader_threads,
        )

    # The protocol

    async def index_document(
        self, doc_id: str, content: str, metadata: Mapping[str, MetadataValue] | None = None
    ) -> bool:
        """See KnowledgeStore."""
        await self.index(IndexRequest(document=Document(doc_id, content, metadata or {})))
        return True

    async def search(
        self, query: str, top_k: int = TOP_K_DEFAULT, filters: Mapping[str, FilterValue] | None = None
    ) -> list[SearchResult]:
        """See KnowledgeStore."""
        return list((await self.find(SearchQuery(text=query, top_k=top_k, filters=filters or {}))).results)

    async def get_by_id(self, doc_id: str) -> Document | None:
        """See KnowledgeStore."""
        refuse(doc_id_violations(doc_id))
        return await self._reads.get(doc_id)

    async def delete(self, doc_id: str) -> bool:
        """See KnowledgeStore."""
        receipt = await self.remove(doc_id, allow_missing=True)
        return receipt.outcome is WriteOutcome.DELETED

    async def health_check(self) -> bool:
        """See KnowledgeStore."""
        return (await self.check_health()).status is HealthStatus.HEALTHY

    # Everything

    async def index(self, request: IndexRequest) -> WriteReceipt:
        """Stores one document. Errors as RecordEngine.put_document, EmbeddingError, InvalidArgumentError."""
        [result] = await self.index_many([request])
        if isinstance(result, MnemonError):
            raise result
        return result

    async def index_many(self, requests: Sequence[IndexRequest]) -> list[WriteReceipt | MnemonError]:
        """Stores documents in their order, one result each; what is wrong with one is no other's business."""
        results: list[WriteReceipt | MnemonError | None] = [_problem(request) for request in requests]
        valid = [(i, request) for i, request in enumerate(requests) if results[i] is None]
        written = await self._embed_and_write([request for _, request in valid])
        for (i, _), result in zip(valid, written, strict=True):
            results[i] = result
        return [result for result in results if result is not None]

    async def find(self, query: SearchQuery) -> SearchAnswer:
        """Searches; see SearchQuery. Filters that cannot be applied are named in the answer."""
        return await self._offload(self._search.find, query)

    async def get(self, doc_id: str, *, vectors: bool = False) -> Document:
        """The document, with the embedding of each passage where wanted. DocumentNotFoundError where there is none."""
        refuse(doc_id_violations(doc_id))
        if vectors:
            [document] = await self._offload(self._records.get_documents, [doc_id], vectors=True)
        else:
            document = await self._reads.get(doc_id)
        if document is None:
            raise DocumentNotFoundError(doc_id)
        return document

    async def list(
        self, *, filters: Mapping[str, Any], scope: Scope, after: int = 0, limit: int, vectors: bool = False
    ) -> DocumentPage:
        """A page of documents in the order of first indexing, from behind position `after`."""
        return await self._offload(self._list, filters, scope, after, limit, vectors=vectors)

    async def count(self, *, filters: Mapping[str, Any], scope: Scope) -> tuple[int, tuple[IgnoredFilter, ...]]:
        """How many documents match, and the filters that were not applied."""
        return await self._offload(self._count, filters, scope)

    async def remove(
        self,
        doc_id: str,
        *,
        request_id: str = "",
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: AckLevel = AckLevel.DURABLE,
    ) -> WriteReceipt:
        """Removes a document. DocumentNotFoundError where there is none, unless `allow_missing`."""
        refuse(doc_id_violations(doc_id))
        refuse(request_id_violations(request_id))
        refuse(revision_violations(expected_revision))
        request = request_key(request_id, "delete", doc_id, expected_revision)
        future = self._records.delete_document(doc_id, request=request, expected_revision=expected_revision)
        receipt = await completion(future)
        if receipt.outcome is WriteOutcome.MISSING and not allow_missing:
            raise DocumentNotFoundError(doc_id)
        await acknowledge(self._applier, ack, receipt.sequence)
        return receipt

    async def remove_matching(
        self,
        *,
        filters: Mapping[str, Any],
        scope: Scope,
        dry_run: bool = False,
        request_id: str = "",
        ack: AckLevel = AckLevel.DURABLE,
    ) -> BulkDeleteReceipt:
        """Removes every document that matches, in one transaction; with `dry_run` counts them and removes nothing."""
        refuse(request_id_violations(request_id))
        where = strict_filter(filters, scope)
        if dry_run:
            return BulkDeleteReceipt(await self._offload(self._records.count_documents, where))
        request = request_key(request_id, "delete-matching", _typed(filters), scope)
        receipt = await completion(self._records.delete_documents(where, request=request))
        await acknowledge(self._applier, ack, receipt.sequence)
        return receipt

    async def rebuild_index(self) -> AsyncIterator[RebuildProgress]:
        """Builds the vector index anew; it goes on when the caller leaves.

        Raises:
            InvalidOperationError: the backend has no vector index.
            BackendConnectionError: the index cannot be reached; it is built once it can.
        """
        if self._applier is None:
            raise InvalidOperationError(f"the backend {self._backend} has no vector index to rebuild")
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
        """How the store is. Never raises."""
        try:
            return await self._offload(self._health)
        except Exception:
            log.exception("health check failed")
            return self._described(HealthStatus.UNHEALTHY, "the records cannot be read; the log says why")

    async def aclose(self) -> None:
        """Waits for what has begun, and closes the vector index; calls after it fail."""
        await asyncio.to_thread(self._offload.close)
        await asyncio.to_thread(self._search.close)
        if self._applier:
            await asyncio.to_thread(self._applier.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # Writing

    async def _embed_and_write(self, requests: Sequence[IndexRequest]) -> Sequence[WriteReceipt | MnemonError]:
        if not requests:
            return []
        try:
            passages = await embed_passages(self._embedder, [request.document.content for request in requests])
        except MnemonError as error:
            return [error] * len(requests)
        futures = [self._put(request, parts) for request, parts in zip(requests, passages, strict=True)]
        return [await self._result(request, future) for request, future in zip(requests, futures, strict=True)]

    def _put(self, request: IndexRequest, passages: Sequence[PassageInput]) -> Future[WriteReceipt]:
        document = normalised(request.document)
        key = request_key(request.request_id, "index", document_digest(document), request.expected_revision)
        return self._records.put_document(
            DocumentWrite(
                document=document, passages=passages, request=key, expected_revision=request.expected_revision
            )
        )

    async def _result(self, request: IndexRequest, future: Future[WriteReceipt]) -> WriteReceipt | MnemonError:
        try:
            receipt = await completion(future)
            await acknowledge(self._applier, request.ack, receipt.sequence)
        except MnemonError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one document's failure must not take the others' receipts
            failure = IndexingError("the document could not be stored")
            failure.__cause__ = error
            return failure
        return receipt

    # Reading, on a reader's thread

    def _list(self, filters: Mapping[str, Any], scope: Scope, after: int, limit: int, *, vectors: bool) -> DocumentPage:
        where, ignored = lenient_filter(self._records, filters, scope)
        documents, position = read_page(
            self._records,
            where,
            after=after,
            limit=limit,
            vectors=vectors,
            size_of=self._size_with_vectors if vectors else content_bytes,
        )
        return DocumentPage(tuple(documents), position, ignored)

    def _size_with_vectors(self, document: Document) -> int:
        return content_bytes(document) + 5 * self._model.dimension * len(document.passages)

    def _count(self, filters: Mapping[str, Any], scope: Scope) -> tuple[int, tuple[IgnoredFilter, ...]]:
        where, ignored = lenient_filter(self._records, filters, scope)
        return self._records.count_documents(where), ignored

    def _health(self) -> StoreHealth:
        if self._records.failure():
            try:
                self._records.recover()
            except MnemonError as error:
                return self._described(HealthStatus.UNHEALTHY, str(error))
        stats = self._records.stats()
        problem, latency_s = self._ask_index()
        return self._described(
            HealthStatus.DEGRADED if problem else HealthStatus.HEALTHY,
            problem,
            document_count=stats.document_count,
            passage_count=stats.passage_count,
            pending=self._applier.pending() if self._applier else 0,
            latency_s=latency_s,
        )

    def _ask_index(self) -> tuple[str, float | None]:
        """Why the vector index does not answer, or how long that took it, in seconds."""
        if self._applier is None or self._applier.outage:
            return self._applier.outage if self._applier else "", None
        started = perf_counter()
        try:
            self._applier.index.ping()
        except BackendConnectionError as error:
            self._applier.distrust()
            return str(error), None
        # While it was asked, it may have been found wanting.
        return self._applier.outage, perf_counter() - started

    def _described(self, status: HealthStatus, message: str = "", **figures: Any) -> StoreHealth:
        return StoreHealth(
            status=status,
            message=message,
            backend=self._backend,
            host=self._applier.index.host if self._applier else "",
            collection=self._collection,
            model_name=self._model.name,
            model_revision=self._model.revision,
            model_precision=self._model.precision,
            dimension=self._model.dimension,
            **figures,
        )


async def _next_progress(queue: asyncio.Queue[RebuildProgress], applier: IndexApplier) -> RebuildProgress:
    while True:
        try:
            return await asyncio.wait_for(queue.get(), timeout=1.0)
        except TimeoutError:
            if failure := applier.failure:
                raise BackendConnectionError(failure) from None


def _problem(request: IndexRequest) -> InvalidArgumentError | None:
    violations = [
        *document_violations(request.document),
        *request_id_violations(request.request_id),
        *revision_violations(request.expected_revision),
    ]
    return InvalidArgumentError(violations) if violations else None


def _typed(filters: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """JSON would call 1 and true different, and 1 and 1.0, but its keys must be in one order."""
    return sorted((key, type(value).__name__, value) for key, value in filters.items())
