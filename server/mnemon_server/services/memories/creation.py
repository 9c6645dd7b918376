"""How memories are stored: checked, embedded together, and handed to the records in their order."""

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np

from mnemon_server.domain.changes import EventType
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import IndexingError, InvalidArgumentError, MnemonError
from mnemon_server.domain.memories import CreateMemory, Memory
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.base import DocumentWrite, PassageInput, RecordEngine
from mnemon_server.services.memories.checks import create_violations
from mnemon_server.services.memories.stored_form import to_document
from mnemon_server.services.search.embedded_passages import embed_passages, whole_passage
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.writes import acknowledge, request_key


@dataclass(frozen=True, slots=True)
class Created:
    """A memory as it was stored, and the receipt. For a replay both are others: the memory is None."""

    memory: Memory | None
    receipt: WriteReceipt


@dataclass(frozen=True, slots=True)
class _Write:
    request: CreateMemory
    memory: Memory
    future: "Future[WriteReceipt]"


class MemoryCreation:
    """Stores new memories; any number of calls at the same time."""

    def __init__(
        self, records: RecordEngine, embedder: EmbeddingBatcher, *, dimension: int, applier: IndexApplier | None
    ) -> None:
        self._records = records
        self._embedder = embedder
        self._dimension = dimension
        self._applier = applier

    async def create(self, requests: Sequence[CreateMemory]) -> list[Created | MnemonError]:
        """Stores memories in their order, one result each; what is wrong with one is no other's business."""
        results: list[Created | MnemonError | None] = [self._problem(request) for request in requests]
        valid = [i for i, result in enumerate(results) if result is None]
        passages = await self._passages([requests[i] for i in valid])
        # All are handed over before the first is awaited, and so keep their order.
        writes = [self._put(requests[i], parts) for i, parts in zip(valid, passages, strict=True)]
        for i, write in zip(valid, writes, strict=True):
            results[i] = await self._result(write)
        return [result for result in results if result is not None]

    def _problem(self, request: CreateMemory) -> InvalidArgumentError | None:
        violations = list(create_violations(request, self._dimension))
        return InvalidArgumentError(violations) if violations else None

    async def _passages(self, requests: Sequence[CreateMemory]) -> list[list[PassageInput] | MnemonError]:
        """The passages of each memory; those that came without a vector are embedded together, or fail together."""
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
        memory = replace(request.memory, memory_id=str(uuid.uuid4()), reinforce_time=None, delete_time=None)
        document = to_document(memory)
        key = None
        if request.request_id:
            asked = document_digest(replace(document, doc_id=""))
            key = request_key(request.request_id, "create", asked, vector_bytes(request.embedding))
        write = DocumentWrite(document=document, passages=passages, request=key, event=EventType.MEMORY_CREATED)
        return _Write(request, memory, self._records.put_document(write))

    async def _result(self, write: _Write | MnemonError) -> Created | MnemonError:
        if isinstance(write, MnemonError):
            return write
        try:
            receipt = await completion(write.future)
            await acknowledge(self._applier, write.request.ack, receipt.sequence)
        except MnemonError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one memory's failure must not take the others' receipts
            failure = IndexingError("the memory could not be stored")
            failure.__cause__ = error
            return failure
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


def vector_bytes(vector: Sequence[float] | None) -> bytes:
    """A vector as part of what a request asks for; empty where it has none."""
    return b"" if vector is None else np.array(vector, "<f8").tobytes()
