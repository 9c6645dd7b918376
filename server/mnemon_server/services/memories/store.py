"""The memory service: what agents have learned, each with a confidence that fades by a policy.

A memory is a document of the collection MEMORIES. A deletion is soft: it hides the memory until it is undeleted. A
purge removes it for good. Confidence is not stored: it is computed each time a memory is read.
"""

import asyncio
import builtins
import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import Clock, system_clock, utc
from mnemon_server.domain.confidence import DEFAULT_DECAY, ConfidenceModel
from mnemon_server.domain.documents import Document, HealthStatus
from mnemon_server.domain.errors import (
    FieldViolation,
    MemoryNotFoundError,
    MnemonError,
)
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.history import Version
from mnemon_server.domain.memories import (
    MIN_CONFIDENCE_DEFAULT,
    CreateMemory,
    Decay,
    DecayPolicy,
    Memory,
    MemoryFilter,
    MemoryForecast,
    MemoryQuery,
    MemoryReceipt,
    MemorySearchAnswer,
    MemoryStatus,
    UpdateMemory,
)
from mnemon_server.domain.records import AckLevel, BulkDeleteReceipt, PageOf, WriteReceipt
from mnemon_server.domain.validation import doc_id_violations, refuse, request_id_violations
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.memories.changes import Changed, MemoryChanges
from mnemon_server.services.memories.checks import (
    bound_violations,
    fading_filter,
    filter_violations,
    record_filter,
    unmet_violations,
)
from mnemon_server.services.memories.search import MemorySearch
from mnemon_server.services.memories.stored_form import (
    MemoryCreation,
    created_memory,
    to_memory,
    with_confidence,
)
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.index_applier import status_of_index
from mnemon_server.services.search.passage_queries import fetch_vector
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import DEFAULT_SEARCH, LOCAL_BACKEND, SearchSettings, VectorBackend
from mnemon_server.services.writing.writes import Waiting, delete_matching, recovery_problem, request_key

# The status of the memory service, of its records and of its vector index.


EMBEDDED = "embedded"


def read_status(records: RecordEngine, backend: VectorBackend, problem: str) -> MemoryStatus:
    """The status, with the index's problem. If the records failed, opens them again.

    Blocks, and raises if they cannot be read.
    """
    if unreadable := recovery_problem(records):
        return described(backend, HealthStatus.UNHEALTHY, unreadable)
    usage = records.vector_usage()
    return described(
        backend,
        status_of_index(problem),
        problem,
        memory_count=records.count_documents(RecordFilter()),
        deleted_count=records.count_documents(RecordFilter(hidden=True)),
        flat_count=usage.flat_count,
        graph_count=usage.graph_count,
        dead_count=usage.dead_count,
        index_bytes=usage.bytes,
        snapshot_time=usage.snapshot_time,
        pending=backend.pending() or 0,
        removal_pending_count=records.removals_pending(),
        removal_out_of_reach_count=backend.removals(),
    )


def described(backend: VectorBackend, status: HealthStatus, error: str, **figures: Any) -> MemoryStatus:
    """The status of a service with this backend."""
    host = backend.applier.index.host if backend.applier else EMBEDDED
    return MemoryStatus(
        status=status, error=error, backend=backend.name, host=host, collection=backend.collection, **figures
    )


EVERYTHING = MemoryFilter()

log = logging.getLogger(__name__)


class MemoryStore:
    """Memories over the records of a vault. All methods are safe to call from many tasks at once."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        backend: VectorBackend = LOCAL_BACKEND,
        *,
        search: SearchSettings = DEFAULT_SEARCH,
        decay: Mapping[DecayPolicy, Decay] = DEFAULT_DECAY,
        clock: Clock = system_clock,
    ) -> None:
        """Takes ownership of the backend, and closes it. The vault owns the records.

        The confidence is that at the time of `clock`. `decay` has all policies except `stable`.
        """
        self._embedder = embedder
        self.backend = backend
        """Indexes the vectors."""
        self._applier = backend.applier
        self._confidence = ConfidenceModel(decay)
        self._clock = clock
        self._offload = Offload(search.threads, "memory-reader")
        self._passages = PassageSearch(records, embedder.embed_query, applier=self._applier, settings=search)
        self.waiting = Waiting()
        """Memories that wait for the engine."""
        self._use(records, UNBOUNDED)

    def _use(self, records: RecordEngine, bounds: Bounds) -> None:
        self._records = records
        self._bounds = bounds
        dimension = self._embedder.model.dimension
        self._search = MemorySearch(self._passages, self._confidence, dimension=dimension, clock=self._clock)
        self._reads = ReadBatcher(self.read_many, self._offload, self._read_small)
        self._creation = MemoryCreation(records, self._embedder, applier=self._applier, waiting=self.waiting)
        self._changes = MemoryChanges(
            records,
            self._embedder,
            applier=self._applier,
            confidence=self._confidence,
            clock=self._clock,
            bounds=bounds,
        )

    def over(self, records: RecordEngine, bounds: Bounds) -> "MemoryStore":
        """The same store over the records within bounds. It shares the threads; close this one alone."""
        part = copy(self)
        part._passages = self._passages.over(records)
        part._use(records, bounds)
        return part

    def at(self, records: RecordEngine, time: datetime) -> "MemoryStore":
        """The same store over the records of a moment, with the confidence that they had then."""
        part = copy(self)
        part._clock = lambda: time
        part._passages = self._passages.over(records)
        part._use(records, self._bounds)
        return part

    # Reading

    async def get(self, memory_id: str, *, room: Room | None = None) -> Memory:
        """The memory, whatever its confidence. MemoryNotFoundError if it does not exist, or is deleted."""
        refuse(doc_id_violations(memory_id, "memory_id"))
        memory = await self._reads.get(memory_id, room)
        if memory is None:
            raise MemoryNotFoundError(memory_id)
        return memory

    async def list(
        self,
        where: MemoryFilter = EVERYTHING,
        *,
        after: int = 0,
        limit: int,
        show_deleted: bool = False,
        room: Room | None = None,
    ) -> PageOf[Memory]:
        """A page of the memories after position `after`, in the order of their creation."""
        refuse(filter_violations(where))
        now = self._clock()
        records = record_filter(where, self._confidence, now, hidden=None if show_deleted else False)
        rows, position = await read_within(
            room, self._offload, read_page, self._records, records, after=after, limit=limit
        )
        return PageOf(tuple(to_memory(document, self._confidence, now) for _, document in rows), position)

    async def search(self, query: MemoryQuery, *, room: Room | None = None) -> MemorySearchAnswer:
        """The memories most relevant to a text or a vector, best first; see MemoryQuery."""
        await fetch_vector(self._embedder, query)
        return await read_within(room, self._offload, self._search.find, query)

    async def count(self, where: MemoryFilter = EVERYTHING, *, show_deleted: bool = False) -> int:
        """How many memories match."""
        refuse(filter_violations(where))
        records = record_filter(where, self._confidence, self._clock(), hidden=None if show_deleted else False)
        return await self._offload(self._records.count_documents, records)

    async def forecast(
        self,
        where: MemoryFilter = EVERYTHING,
        *,
        min_confidence: float = MIN_CONFIDENCE_DEFAULT,
        by: datetime,
        after: int = 0,
        limit: int,
        room: Room | None = None,
    ) -> PageOf[MemoryForecast]:
        """A page of the memories whose confidence will be below `min_confidence` at the time `by`, or is already.

        The page has the memories after position `after`, in the order of their creation. A past `by` means now.
        """
        refuse([*filter_violations(where), *bound_violations(min_confidence)])
        now = self._clock()
        by = max(utc(by), now)
        records = fading_filter(where, self._confidence, now, bound=min_confidence, by=by)
        rows, position = await read_within(
            room, self._offload, read_page, self._records, records, after=after, limit=limit
        )
        memories = (to_memory(document, self._confidence, now) for _, document in rows)
        return PageOf(tuple(self._forecast(memory, min_confidence, by) for memory in memories), position)

    async def status(self) -> MemoryStatus:
        """The status of the service, of its records and of its index. Never raises."""
        try:
            return await self._offload(read_status, self._records, self.backend, await self.backend.outage())
        except Exception:
            log.exception("the status cannot be read")
            problem = "the records cannot be read; the log says why"
            return described(self.backend, HealthStatus.UNHEALTHY, problem)

    def as_it_was(self, version: Version) -> Memory:
        """The memory of a version, with its confidence at the end of the version."""
        return to_memory(version.document, self._confidence, version.until)

    async def shown(self, receipt: WriteReceipt) -> MemoryReceipt:
        """The receipt of a write, with the memory as it is now."""
        return MemoryReceipt(receipt, await self._reads.get(receipt.id))

    # Writing

    async def create(self, request: CreateMemory) -> MemoryReceipt:
        """Stores a memory under a new id, with confidence 1.

        A replay returns the id that the memory got the first time, and the memory as it is now.

        Raises:
            InvalidArgumentError, EmbeddingError: nothing was stored.
            and the errors of RecordEngine.put_document.
        """
        request = self._owned(request)
        [result] = await self._creation.create([request])
        if isinstance(result, MnemonError):
            raise result
        memory = await self._reads.get(result.id) if result.replayed else created_memory(request.memory, result)
        return MemoryReceipt(result, memory)

    async def create_many(self, requests: Sequence[CreateMemory]) -> builtins.list[WriteReceipt | MnemonError]:
        """Stores memories in their order, with one result each; an invalid one does not affect the others."""
        return await self._creation.create(requests)

    async def update(self, request: UpdateMemory) -> MemoryReceipt:
        """Changes what the request says. MemoryNotFoundError if the memory does not exist, or is deleted."""
        return await self._answer(await self._changes.update(request))

    async def reinforce(
        self, memory_id: str, *, request_id: str = "", expected_revision: int | None = None
    ) -> MemoryReceipt:
        """Sets a memory's confidence back to 1.

        Raises:
            MemoryNotFoundError: the memory does not exist, or is deleted.
            InvalidOperationError: its policy is not `reinforceable`.
        """
        answer = await self._answer(await self._changes.reinforce(memory_id, request_id, expected_revision))
        if answer.receipt.replayed or answer.memory is None or answer.memory.reinforce_time is None:
            return answer
        # The confidence at the time of the reinforcement is exactly 1; a moment later it would already be lower.
        memory = with_confidence(answer.memory, self._confidence, answer.memory.reinforce_time)
        return MemoryReceipt(answer.receipt, memory)

    async def delete(
        self,
        memory_id: str,
        *,
        request_id: str = "",
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: AckLevel = AckLevel.DURABLE,
    ) -> WriteReceipt:
        """Deletes softly: hides the memory until it is undeleted.

        Raises:
            MemoryNotFoundError: the memory does not exist, and `allow_missing` is not set.
            InvalidOperationError: it is already deleted.
        """
        return await self._changes.delete(
            memory_id, request_id, expected_revision, allow_missing=allow_missing, ack=ack
        )

    async def undelete(
        self, memory_id: str, *, request_id: str = "", expected_revision: int | None = None
    ) -> MemoryReceipt:
        """Reverts a soft deletion.

        Raises:
            MemoryNotFoundError: the memory does not exist.
            InvalidOperationError: it is not deleted.
        """
        return await self._answer(await self._changes.undelete(memory_id, request_id, expected_revision))

    async def purge(
        self, where: MemoryFilter, *, only_deleted: bool = False, dry_run: bool = False, request_id: str = ""
    ) -> BulkDeleteReceipt:
        """Removes for good, in one transaction, every memory that matches, deleted ones included.

        With `only_deleted`, only memories that are already deleted softly, and the filter may be empty. With `dry_run`,
        counts them and removes nothing.
        """
        refuse([*filter_violations(where), *_purge_violations(where, only_deleted), *request_id_violations(request_id)])
        matching = record_filter(where, self._confidence, self._clock(), hidden=True if only_deleted else None)
        records, matching = self._records, replace(matching, is_writing=True)
        # The key needs the filter as given: `matching` depends on the time of the call if it bounds the confidence.
        asked = replace(where, metadata=dict(sorted(where.metadata.items())))
        key = request_key(request_id, "purge", repr(asked), only_deleted)
        return await delete_matching(
            self._offload,
            lambda: BulkDeleteReceipt(records.count_documents(matching)),
            lambda: completion(records.delete_documents(matching, request=key, change=ChangeType.MEMORY_PURGED)),
            unmet=unmet_violations(records, where),
            dry_run=dry_run,
        )

    async def aclose(self) -> None:
        """Waits for the calls that have begun, and closes the applier, but not the records; calls after it fail."""
        await self._offload.aclose()
        await asyncio.to_thread(self._passages.close)
        await asyncio.to_thread(self.backend.close)

    def _owned(self, request: CreateMemory) -> CreateMemory:
        """The request with the scope that the memory gets, which the answer shows."""
        if not self._bounds:
            return request
        return replace(
            request,
            memory=replace(request.memory, scope=self._bounds.owned(self._bounds.sourced(request.memory.scope))),
        )

    # From documents to memories

    async def _answer(self, changed: Changed) -> MemoryReceipt:
        """The answer to a change: its receipt, and the memory as it is now."""
        receipt = changed.receipt
        if changed.document is None:
            return MemoryReceipt(receipt, await self._reads.get(receipt.id))
        return MemoryReceipt(receipt, to_memory(changed.document, self._confidence, receipt.commit_time))

    def read_many(self, memory_ids: Sequence[str], *, fits: Fits | None = None) -> builtins.list[Memory | None]:
        """The memories with these ids, in their order; None for each that does not exist or is deleted. Blocks.

        Calls `fits` before it reads a memory; one that does not fit is None, too.
        """
        now = self._clock()
        return [self._shown(document, now) for document in self._records.get_documents(memory_ids, fits=fits)]

    def _read_small(self, memory_id: str) -> Memory | None:
        return self._shown(self._records.get_small_document(memory_id), self._clock())

    def _shown(self, document: Document | None, now: datetime) -> Memory | None:
        return None if document is None or document.hidden else to_memory(document, self._confidence, now)

    def _forecast(self, memory: Memory, bound: float, by: datetime) -> MemoryForecast:
        fade_time = self._confidence.fade_time(memory, bound)
        # The fade time is None only if the confidence never falls below the bound.
        return MemoryForecast(memory, self._confidence.at(memory, by), fade_time or by)


def _purge_violations(where: MemoryFilter, only_deleted: bool) -> Iterable[FieldViolation]:  # noqa: FBT001
    if not where and not only_deleted:
        yield FieldViolation("filter", "must not be empty unless only_deleted is set: it would mean every memory")
