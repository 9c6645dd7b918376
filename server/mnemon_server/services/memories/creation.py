"""Stores new memories: checks them, embeds them together, and writes them to the records in their order."""

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import (
    MemoryExistsError,
    MnemonError,
    RevisionMismatchError,
)
from mnemon_server.domain.memories import CreateMemory, Memory
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.services.memories.checks import create_violations
from mnemon_server.services.memories.stored_form import to_document
from mnemon_server.services.search.embedded_passages import embed_passages, whole_passage
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.shared.engine_futures import completion
from mnemon_server.services.shared.intake import settled, take_in
from mnemon_server.services.shared.vectors import vector_bytes
from mnemon_server.services.shared.writes import acknowledge, request_key


@dataclass(frozen=True, slots=True)
class Created:
    """A memory as it was stored, and the receipt. For a replay the memory is None, and the receipt is the first one."""

    memory: Memory | None
    receipt: WriteReceipt


@dataclass(frozen=True, slots=True)
class _Write:
    request: CreateMemory
    memory: Memory
    future: "Future[WriteReceipt]"


class MemoryCreation:
    """Stores new memories. Calls may run concurrently."""

    def __init__(
        self, records: RecordEngine, embedder: EmbeddingBatcher, *, dimension: int, applier: IndexApplier | None
    ) -> None:
        self._records = records
        self._embedder = embedder
        self._dimension = dimension
        self._applier = applier

    async def create(self, requests: Sequence[CreateMemory]) -> list[Created | MnemonError]:
        """Stores memories in their order, with one result each; an invalid one does not affect the others."""
        return await take_in(requests, partial(create_violations, dimension=self._dimension), self._store)

    async def _store(self, requests: Sequence[CreateMemory]) -> list[Created | MnemonError]:
        passages = await self._passages(requests)
        # All are handed over before the first is awaited, so they keep their order.
        writes = [self._put(request, parts) for request, parts in zip(requests, passages, strict=True)]
        return [
            write if isinstance(write, MnemonError) else await settled(self._created(write), "memory")
            for write in writes
        ]

    async def _passages(self, requests: Sequence[CreateMemory]) -> list[list[PassageInput] | MnemonError]:
        """The passages of each memory. The memories without a given vector are embedded, or fail, together."""
        texts = [request.memory.content for request in requests if request.embedding is None]
        embedded: Sequence[list[PassageInput] | MnemonError]
        try:
            embedded = await embed_passages(self._embedder, texts) if texts else []
        except MnemonError as error:
            embedded = [error] * len(texts)
        of_texts = iter(embedded)
        return [
            next(of_texts) if request.embedding is None else whole_passage(request.memory.content, request.embedding)
            for request in requests
        ]

    def _put(self, request: CreateMemory, passages: list[PassageInput] | MnemonError) -> _Write | MnemonError:
        if isinstance(passages, MnemonError):
            return passages
        chosen = request.memory.memory_id
        memory = replace(request.memory, memory_id=chosen or str(uuid.uuid4()), reinforce_time=None, delete_time=None)
        document = to_document(memory)
        key = None
        if request.request_id:
            asked = document_digest(replace(document, doc_id=chosen))
            key = request_key(request.request_id, "create", asked, vector_bytes(request.embedding))
        write = DocumentWrite(
            document=document,
            passages=passages,
            request=key,
            change=ChangeType.MEMORY_CREATED,
            expected_revision=0 if chosen else None,
        )
        return _Write(request, memory, self._records.put_document(write))

    async def _created(self, write: _Write) -> Created:
        try:
            receipt = await completion(write.future)
        except RevisionMismatchError as error:
            raise MemoryExistsError(error.resource_id) from error
        await acknowledge(self._applier, write.request.ack, receipt.sequence)
        return Created(None if receipt.replayed else _stored(write.memory, receipt), receipt)


def _stored(memory: Memory, receipt: WriteReceipt) -> Memory:
    time = receipt.commit_time
    return replace(
        memory,
        metadata=normalised_metadata(memory.metadata),
        confidence=1.0,
        revision=receipt.revision,
        create_time=time,
        update_time=time,
    )
