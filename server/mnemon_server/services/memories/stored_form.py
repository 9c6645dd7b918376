"""Memories as stored documents, in both directions, and the creation of new ones."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import (
    IdTakenError,
    MemoryExistsError,
    MnemonError,
    RevisionMismatchError,
)
from mnemon_server.domain.memories import (
    TAGS,
    CreateMemory,
    DecayPolicy,
    Memory,
)
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.memories.checks import (
    create_violations,
)
from mnemon_server.services.search.embedded_passages import embed_passages, given_or_made, placed, whole_passage
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.writing.writes import (
    Puts,
    Waiting,
    WriteBatcher,
    acknowledge_each,
    new_id,
    put_all,
    request_key,
    take_in,
    take_in_own,
    vector_bytes,
)

_POLICIES = {policy.value: policy for policy in DecayPolicy}
"""By their values: to call an enum takes several times as long, and searches read many memories."""
_STABLE = DecayPolicy.STABLE.value


def to_document(memory: Memory) -> Document:
    """The stored document of a memory: everything but its confidence."""
    return _document(memory, memory.memory_id, memory.reinforce_time, memory.delete_time)


def new_document(memory: Memory, memory_id: str) -> Document:
    """The document of a memory that is stored under this id, and has been neither reinforced nor deleted."""
    return _document(memory, memory_id, None, None)


def _document(
    memory: Memory, memory_id: str, reinforce_time: datetime | None, delete_time: datetime | None
) -> Document:
    return Document(
        memory_id,
        memory.content,
        normalised_metadata(memory.metadata),
        scope=memory.scope,
        fields={
            **{name: getattr(memory, name) for name in TAGS},
            "global": memory.is_global,
            "decay_policy": memory.decay_policy.value,
            "reinforce_time": reinforce_time,
            "delete_time": delete_time,
        },
        hidden=delete_time is not None,
    )


@reads(MEMORIES)
def to_memory(document: Document, confidence: ConfidenceModel, now: datetime) -> Memory:
    """The memory of a stored document, with its confidence at `now`."""
    fields = document.fields
    policy = _POLICIES[str(fields.get("decay_policy") or _STABLE)]
    created, reinforced = document.create_time or EPOCH, _time(fields.get("reinforce_time"))
    tags: dict[str, Any] = {name: str(fields.get(name) or "") for name in TAGS}
    return Memory(
        memory_id=document.doc_id,
        content=document.content,
        scope=document.scope,
        **tags,
        is_global=bool(fields.get("global")),
        decay_policy=policy,
        metadata=document.metadata,
        confidence=confidence.of(policy, created, reinforced, now),
        revision=document.revision,
        create_time=created,
        update_time=document.update_time or EPOCH,
        reinforce_time=reinforced,
        delete_time=_time(fields.get("delete_time")),
        embeddings=tuple(passage.embedding for passage in document.passages if passage.embedding),
    )


def with_confidence(memory: Memory, confidence: ConfidenceModel, now: datetime) -> Memory:
    """The memory, with its confidence at `now`."""
    return replace(memory, confidence=confidence.at(memory, now))


def _time(value: FieldValue) -> datetime | None:
    return value if isinstance(value, datetime) else None


class MemoryCreation:
    """Stores new memories. Calls may run concurrently."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        *,
        applier: IndexApplier | None,
        waiting: Waiting,
    ) -> None:
        self._guard, self._heads = records.guard, records.heads
        self._puts: Puts = WriteBatcher(records.put_documents, waiting)
        self._embedder = embedder
        self._applier = applier

    async def create(self, requests: Sequence[CreateMemory]) -> list[WriteReceipt | MnemonError]:
        """Stores memories in their order, with one result each; an invalid one does not affect the others."""
        return await take_in(
            requests, partial(create_violations, dimension=self._embedder.model.dimension), self._store
        )

    async def _store(self, requests: Sequence[CreateMemory]) -> list[WriteReceipt | MnemonError]:
        guard = self._guard
        results = await take_in_own(requests, guard, lambda request: _write(request, ()), self._embed_and_write)
        return [_as_exists(result) for result in results]

    async def _embed_and_write(self, requests: Sequence[CreateMemory]) -> list[WriteReceipt | MnemonError]:
        passages = await self._passages(requests)
        writes: list[DocumentWrite | MnemonError] = []
        pause = Pause()
        for request, parts in zip(requests, passages, strict=True):
            if writes:
                await pause.where_due()
            writes.append(parts if isinstance(parts, MnemonError) else _write(request, parts))
        results = await put_all(self._puts, writes, "memory")
        return await acknowledge_each(self._applier, [request.ack for request in requests], results)

    async def _passages(self, requests: Sequence[CreateMemory]) -> list[list[PassageInput] | MnemonError]:
        """The passages of each memory. The memories without a given vector are embedded, or fail, together."""
        texts = [
            placed(new_document(request.memory, ""), self._heads) for request in requests if request.embedding is None
        ]
        given = [
            None if request.embedding is None else whole_passage(request.memory.content, request.embedding)
            for request in requests
        ]
        return await given_or_made(given, lambda: embed_passages(self._embedder, texts))


def created_memory(memory: Memory, receipt: WriteReceipt) -> Memory:
    """The stored memory."""
    time = receipt.commit_time
    return replace(
        memory,
        memory_id=receipt.id,
        metadata=normalised_metadata(memory.metadata),
        confidence=1.0,
        revision=receipt.revision,
        create_time=time,
        update_time=time,
        reinforce_time=None,
        delete_time=None,
    )


def _write(request: CreateMemory, passages: Sequence[PassageInput]) -> DocumentWrite:
    chosen = request.memory.memory_id
    key = None
    if request.request_id:
        asked = document_digest(new_document(request.memory, chosen))
        key = request_key(request.request_id, "create", asked, vector_bytes(request.embedding))
    return DocumentWrite(
        document=new_document(request.memory, chosen or new_id()),
        passages=passages,
        request=key,
        change=ChangeType.MEMORY_CREATED,
        expected_revision=0 if chosen else None,
    )


def _as_exists(result: WriteReceipt | MnemonError) -> WriteReceipt | MnemonError:
    if isinstance(result, RevisionMismatchError):
        error = MemoryExistsError(result.resource_id)
    elif isinstance(result, IdTakenError):
        error = MemoryExistsError(result.record_id)
    else:
        return result
    error.__cause__ = result
    return error
