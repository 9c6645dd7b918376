"""The semantic memory service: statements about users, each with a vector, found by meaning.

A statement is a document of the collection SEMANTIC with one passage, and so one vector. A superseded statement is
hidden: only its id finds it, and it is kept until it is deleted for good.
"""

import asyncio
import builtins
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import IndexWarmingError, MemoryNotFoundError, MnemonError
from mnemon_server.domain.records import PageOf
from mnemon_server.domain.semantic import (
    FILTER_FIELDS,
    DeletedSemantic,
    IndexState,
    IndexStatus,
    SavedSemantic,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarAnswer,
    SimilarQuery,
    Snapshot,
)
from mnemon_server.domain.validation import doc_id_violations, refuse, request_id_violations
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import RecordStats
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.filter_expressions import unmet_conditions
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.passage_queries import fetch_vector
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import DEFAULT_SEARCH, SearchSettings
from mnemon_server.services.semantic.checks import deletion_violations
from mnemon_server.services.semantic.deletion import Deletion, delete, find_targets, from_answer
from mnemon_server.services.semantic.filters import filter_violations, record_filter
from mnemon_server.services.semantic.health import Capacity, SemanticHealth
from mnemon_server.services.semantic.resolver import Judged, Resolver
from mnemon_server.services.semantic.saving import SaveProgram, SemanticSaving
from mnemon_server.services.semantic.search import SemanticSearch
from mnemon_server.services.semantic.stored_form import to_semantic
from mnemon_server.services.writing.write_pressure import WriteLatency, WritePressure
from mnemon_server.services.writing.writes import delete_matching, done_once, recovery_problem, request_key

# The status of the index of statements, as far as the records know it, and the answers about its snapshots.


WARMING = "the index is warming up"


def read_status(
    records: RecordEngine, *, is_warm: bool, capacity: int, write_latency_target_s: float, judge_failed_count: int
) -> IndexStatus:
    """The status without the reasons that hold writes back. If the records failed, opens them again. Blocks.

    Raises the errors of reading the records.
    """
    problem = recovery_problem(records)
    usage, stats = records.vector_usage(), records.stats()
    in_graph = usage.graph_count + usage.building_count
    state = IndexState.READY if is_warm else IndexState.STARTING
    return IndexStatus(
        state=IndexState.DEGRADED if problem else state,
        message=problem or ("" if is_warm else warming_message(records)),
        record_count=stats.passage_count,
        superseded_count=stats.document_count - stats.passage_count,
        indexed_count=stats.passage_count if is_warm else min(in_graph, stats.passage_count),
        total_count=stats.passage_count,
        capacity=capacity,
        write_latency_target_s=write_latency_target_s,
        memory_bytes=usage.bytes,
        graph_count=usage.graph_count,
        snapshot_time=usage.snapshot_time,
        judge_failed_count=judge_failed_count,
    )


def warming_message(records: RecordEngine) -> str:
    """The progress of the index while it is being loaded or built."""
    usage, total = records.vector_usage(), records.stats().passage_count
    indexed = min(usage.graph_count + usage.building_count, total)
    return f"{WARMING}: it has {indexed:,} of {total:,} vectors"


def snapshot_answer(time: datetime | None, stats: RecordStats) -> str:
    """The stored answer to a request for a snapshot."""
    if time is not None:
        return json.dumps([to_microseconds(time), ""])
    return json.dumps([None, f"an index without a graph needs no snapshot (statements: {stats.passage_count:,})"])


def snapshot_of(receipt: TransactionReceipt) -> Snapshot:
    """The answer, whether to the first call or to a replay."""
    microseconds, message = json.loads(receipt.answer)
    time = None if microseconds is None else from_microseconds(microseconds)
    return Snapshot(time, message, receipt.replayed)


EVERYTHING = SemanticFilter()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SemanticSettings:
    """The limit on the number of statements, and how long a save may take."""

    capacity: int
    """The most statements, not counting superseded ones."""
    write_latency: WriteLatency
    """The time that a save should not exceed."""


class SemanticStore:
    """The statements of a vault. All methods are safe to call from many tasks at once.

    Until the index is warm, all methods but `status` raise IndexWarmingError.
    """

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        resolver: Resolver | None,
        settings: SemanticSettings,
        search: SearchSettings = DEFAULT_SEARCH,
    ) -> None:
        """The vault and the embedder belong to the caller, who closes them.

        Without a resolver, saves of statements whose conflicts matter are refused.
        """
        self._embedder = embedder
        self._offload = Offload(search.threads, "semantic-reader")
        self._all = vault.collection(SEMANTIC)
        self._pressure = WritePressure(settings.write_latency)
        self._capacity = Capacity(settings.capacity, lambda: self._all.stats().passage_count)
        self._health = SemanticHealth(vault, self._pressure, self._capacity, offload=self._offload)
        self._passages = PassageSearch(self._all, embedder.embed_query, settings=search)
        self._was_warm = False
        self._use(vault, resolver)

    def _use(self, vault: Vault, resolver: Resolver | None) -> None:
        self._vault = vault
        self._resolver = resolver
        self._read_from(vault.collection(SEMANTIC))
        self._saving = SemanticSaving(
            vault,
            self._embedder,
            resolver=resolver,
            pressure=self._pressure,
            capacity=self._capacity,
            offload=self._offload,
        )

    def _read_from(self, records: RecordEngine) -> None:
        self._records = records
        self._passages = self._passages.over(records)
        self._search = SemanticSearch(self._passages, dimension=self._embedder.model.dimension)
        self._reads: ReadBatcher[Document | None] = ReadBatcher(
            records.get_documents, self._offload, records.get_small_document
        )

    def over(self, vault: Vault) -> "SemanticStore":
        """The same store over a part of the vault. It shares the threads, the capacity, and how fast writes may come;
        close this one alone.
        """
        part = copy(self)
        part._use(vault, self._resolver and self._resolver.over(vault.collection(SEMANTIC)))
        return part

    def at(self, records: RecordEngine) -> "SemanticStore":
        """The same store over the records of a moment."""
        part = copy(self)
        part._read_from(records)
        return part

    @property
    def is_warm(self) -> bool:
        """Whether the index is loaded or built. Once True, it stays True."""
        if not self._was_warm:
            self._was_warm = self._all.vector_usage().warm
        return self._was_warm

    # Reading

    async def get(self, memory_id: str, *, embedding: bool = False, room: Room | None = None) -> SemanticMemory:
        """The statement, superseded or not. MemoryNotFoundError if it does not exist."""
        self._check_warm()
        refuse(doc_id_violations(memory_id, "memory_id"))
        if embedding:
            [document] = await read_within(room, self._offload, self._records.get_documents, [memory_id], vectors=True)
        else:
            document = await self._reads.get(memory_id, room)
        if document is None:
            raise MemoryNotFoundError(memory_id, noun="statement")
        return to_semantic(document)

    async def list(
        self,
        where: SemanticFilter = EVERYTHING,
        *,
        after: int = 0,
        limit: int,
        show_superseded: bool = False,
        room: Room | None = None,
    ) -> PageOf[SemanticMemory]:
        """A page of statements in the order in which they were saved, after position `after`."""
        self._check_warm()
        refuse(filter_violations(where))
        records = record_filter(where, hidden=None if show_superseded else False)
        rows, position = await read_within(
            room, self._offload, read_page, self._records, records, after=after, limit=limit
        )
        return PageOf(tuple(to_semantic(document) for _, document in rows), position)

    async def search(self, query: SimilarQuery, *, room: Room | None = None) -> SimilarAnswer:
        """The statements nearest to a vector or a text, best first; see SimilarQuery."""
        self._check_warm()
        await fetch_vector(self._embedder, query)
        return await read_within(room, self._offload, self._search.find, query)

    async def status(self) -> IndexStatus:
        """The status of the index. Never raises."""
        try:
            status = await self._offload(self._read_status)
            if status.state is not IndexState.READY:
                return status
            return self._with_pressure(status)
        except Exception:
            log.exception("the status cannot be read")
            return IndexStatus(state=IndexState.UNAVAILABLE, message="the records cannot be read; the log says why")

    # Writing

    async def save(self, request: SaveSemantic) -> SavedSemantic:
        """Stores a statement, or handles its conflicts as the policy says.

        A replay gets the statement and the decision as they are now.

        Raises:
            InvalidArgumentError, EmbeddingError, RuleNotFoundError: nothing was stored.
            ThrottledError: the capacity is reached, or writes are too slow.
            and the errors of a RecordEngine's write.
        """
        [result] = await self.save_many([request])
        if isinstance(result, MnemonError):
            raise result
        return result

    async def save_many(self, requests: Sequence[SaveSemantic]) -> builtins.list[SavedSemantic | MnemonError]:
        """Stores statements in their order, with one result each; an invalid one does not affect the others."""
        self._check_warm()
        try:
            return await self._saving.save(requests)
        finally:
            self._health.notice()

    @asynccontextmanager
    async def prepared(
        self, requests: Sequence[SaveSemantic], judged: Sequence[Judged] = ()
    ) -> AsyncIterator[builtins.list[SaveProgram | MnemonError]]:
        """Yields the programs that save these statements in a transaction of the caller; see SemanticSaving."""
        self._check_warm()
        try:
            async with self._saving.prepared(requests, judged) as programs:
                yield programs
        finally:
            self._health.notice()

    async def delete(
        self,
        memory_ids: Sequence[str],
        where: SemanticFilter | None = None,
        *,
        allow_missing: bool = False,
        expected_revision: int | None = None,
        dry_run: bool = False,
        request_id: str = "",
    ) -> DeletedSemantic:
        """Removes statements for good, in one transaction, with what they superseded and the decisions about any.

        They are named, or a filter selects them, which matches superseded ones, too. Only a statement that is named
        alone may have an expected revision. With `dry_run`, counts them and removes nothing.

        Raises:
            MemoryNotFoundError: some of the ids do not exist; nothing was removed.
            RevisionMismatchError: the statement does not have the expected revision.
        """
        self._check_warm()
        refuse(deletion_violations(memory_ids, where, request_id, expected_revision))
        deletion = Deletion(tuple(memory_ids), where, allow_missing, expected_revision)
        named, which = builtins.list(memory_ids), repr(where or EVERYTHING)
        key = request_key(request_id, "semantic-delete", named, which, allow_missing, expected_revision)

        async def remove() -> DeletedSemantic:
            receipt = await completion(self._vault.transact(lambda tx: delete(tx, deletion), request=key))
            self._health.notice()
            return from_answer(receipt, deletion)

        return await delete_matching(
            self._offload,
            lambda: find_targets(self._records, deletion).counted(),
            remove,
            unmet=unmet_conditions((where or EVERYTHING).expression, self._records.has_metadata_key, FILTER_FIELDS),
            dry_run=dry_run,
        )

    async def create_snapshot(self, *, request_id: str = "") -> Snapshot:
        """Writes the graph of the index to disk now; once for the same request id."""
        self._check_warm()
        refuse(request_id_violations(request_id))

        async def write() -> str:
            return snapshot_answer(await self._offload(self._records.save_snapshot), self._records.stats())

        return snapshot_of(await done_once(self._vault, request_key(request_id, "semantic-snapshot"), write))

    async def aclose(self) -> None:
        """Waits for the calls that have begun; calls after it fail."""
        await self._health.aclose()
        await self._offload.aclose()
        await asyncio.to_thread(self._passages.close)

    # Health

    def _check_warm(self) -> None:
        if not self.is_warm:
            # How much others have is nothing that a part tells.
            raise IndexWarmingError(warming_message(self._all) if self._records is self._all else WARMING)
        self._health.notice()

    def _read_status(self) -> IndexStatus:
        return read_status(
            self._records,
            is_warm=self.is_warm,
            capacity=self._capacity.limit,
            write_latency_target_s=self._pressure.target_s,
            judge_failed_count=self._resolver.judge_failed_count if self._resolver else 0,
        )

    def _with_pressure(self, status: IndexStatus) -> IndexStatus:
        self._health.notice()
        # First, since this computes the median again: the state must match this latency.
        latency_s = self._pressure.median_s
        problem = self._health.problem()
        return replace(
            status,
            state=IndexState.DEGRADED if problem else IndexState.READY,
            message=problem,
            write_latency_s=latency_s,
        )
