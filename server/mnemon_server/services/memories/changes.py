"""Changes memories. Each change is computed inside its transaction, after the check for a replay.

So a call that is repeated with the same `request_id` does not fail because of its own first run, and the memory cannot
change between the check and the write.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import Clock
from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import InvalidOperationError, MemoryNotFoundError
from mnemon_server.domain.memories import DecayPolicy, Memory, UpdateMemory
from mnemon_server.domain.records import AckLevel, WriteOutcome, WriteReceipt
from mnemon_server.domain.validation import metadata_violations, refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, PassageInput
from mnemon_server.services.background.offload import completion
from mnemon_server.services.memories.checks import call_violations, update_violations
from mnemon_server.services.memories.stored_form import to_document, to_memory
from mnemon_server.services.search.embedded_passages import (
    PlacedText,
    TextMovedError,
    embed_passages,
    placed,
    whole_passage,
)
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.writing import field_masks as masks
from mnemon_server.services.writing.writes import acknowledge, request_key, vector_bytes

Change = Callable[[Document], Document]

SAME_COSINE = 0.99
"""Vectors that a model makes of the same text are at least so similar: rounding depends on the texts beside it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The receipt of a change, and the document after it; None for a replay."""

    receipt: WriteReceipt
    document: Document | None


class MemoryChanges:
    """Changes memories. Calls may run concurrently."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        *,
        applier: IndexApplier | None,
        confidence: ConfidenceModel,
        clock: Clock,
        bounds: Bounds,
    ) -> None:
        self._records = records
        self._embedder = embedder
        self._applier = applier
        self._confidence = confidence
        self._clock = clock
        self._bounds = bounds

    async def update(self, request: UpdateMemory) -> Changed:
        """Changes the fields in the mask, and single keys of the metadata."""
        refuse(update_violations(request, self._embedder.model.dimension))
        while True:
            text, passages = await self._new_passages(request)
            with suppress(TextMovedError):
                return await self._update(request, text, passages)

    async def _new_passages(
        self, request: UpdateMemory
    ) -> tuple[list[PlacedText] | None, Sequence[PassageInput] | None]:
        """The text after the change, and its passages; None if it stays the same, which then is not embedded."""
        heads = self._records.heads
        if not masks.may_change_text(request, heads):
            return None, None
        [stored] = await asyncio.to_thread(self._records.get_documents, [request.memory.memory_id], vectors=True)
        if stored is None or stored.hidden:
            return None, None
        new = self._changed(stored, request)
        text = placed(new, heads)
        if request.embedding is not None:
            return text, whole_passage(new.content, request.embedding)
        if text == placed(stored, heads):
            return None, None
        if new.content != stored.content:
            [passages] = await embed_passages(self._embedder, [text])
            return text, passages
        former, passages = await embed_passages(self._embedder, [placed(stored, heads), text])
        return text, _given(stored, former) or passages

    async def _update(
        self, request: UpdateMemory, text: list[PlacedText] | None, passages: Sequence[PassageInput] | None
    ) -> Changed:
        memory_id = request.memory.memory_id
        asked = to_document(masks.updated(Memory(memory_id, ""), request.memory, request))
        return await self._write(
            DocumentUpdate(
                doc_id=memory_id,
                update=lambda stored: self._updated(stored, request, text),
                change=ChangeType.MEMORY_UPDATED,
                passages=passages,
                expected_revision=request.expected_revision,
                request=request_key(
                    request.request_id,
                    "update",
                    document_digest(asked),
                    sorted(set(request.mask)),
                    sorted(set(request.remove_metadata)),
                    vector_bytes(request.embedding),
                    request.expected_revision,
                ),
            ),
            request.ack,
        )

    async def reinforce(self, memory_id: str, request_id: str, expected_revision: int | None) -> Changed:
        """Sets the confidence of a reinforceable memory back to 1."""
        return await self._change(
            memory_id, self._reinforced, ChangeType.MEMORY_REINFORCED, request_id, expected_revision, AckLevel.DURABLE
        )

    async def delete(
        self, memory_id: str, request_id: str, expected_revision: int | None, *, allow_missing: bool, ack: AckLevel
    ) -> WriteReceipt:
        """Deletes a memory softly: it is hidden from all calls that do not ask for deleted memories."""
        changed = await self._change(
            memory_id,
            self._deleted,
            ChangeType.MEMORY_DELETED,
            request_id,
            expected_revision,
            ack,
            allow_missing=allow_missing,
        )
        is_missing = changed.receipt.outcome is WriteOutcome.MISSING
        return changed.receipt if is_missing else replace(changed.receipt, outcome=WriteOutcome.DELETED)

    async def undelete(self, memory_id: str, request_id: str, expected_revision: int | None) -> Changed:
        """Reverts a soft deletion."""
        return await self._change(
            memory_id, _undeleted, ChangeType.MEMORY_UNDELETED, request_id, expected_revision, AckLevel.DURABLE
        )

    # Computing the new document

    def _updated(self, stored: Document, request: UpdateMemory, text: list[PlacedText] | None) -> Document:
        _check_not_deleted(stored)
        heads, new = self._records.heads, self._changed(stored, request)
        refuse(metadata_violations(new.metadata, "set_metadata"))
        if placed(new, heads) != (placed(stored, heads) if text is None else text):
            raise TextMovedError
        # The scope that is stored, because the answer shows it.
        return replace(new, scope=self._bounds.owned(self._bounds.sourced(new.scope))) if self._bounds else new

    def _changed(self, stored: Document, request: UpdateMemory) -> Document:
        new = to_document(masks.updated(to_memory(stored, self._confidence, self._clock()), request.memory, request))
        return replace(stored, content=new.content, metadata=new.metadata, scope=new.scope, fields=new.fields)

    def _reinforced(self, stored: Document) -> Document:
        _check_not_deleted(stored)
        policy = stored.fields.get("decay_policy")
        if policy != DecayPolicy.REINFORCEABLE.value:
            raise InvalidOperationError(
                f"a {policy} memory cannot be reinforced; only one with the decay policy reinforceable can"
            )
        return _with_fields(stored, reinforce_time=self._clock())

    def _deleted(self, stored: Document) -> Document:
        if stored.hidden:
            raise InvalidOperationError(f"the memory {stored.doc_id!r} is already deleted")
        return replace(_with_fields(stored, delete_time=self._clock()), hidden=True)

    # Writing

    async def _change(
        self,
        memory_id: str,
        make: Change,
        change: ChangeType,
        request_id: str,
        expected_revision: int | None,
        ack: AckLevel,
        *,
        allow_missing: bool = False,
    ) -> Changed:
        refuse(call_violations(memory_id, request_id, expected_revision))
        key = request_key(request_id, change.value, memory_id, expected_revision)
        update = DocumentUpdate(
            doc_id=memory_id, update=make, change=change, request=key, expected_revision=expected_revision
        )
        return await self._write(update, ack, allow_missing=allow_missing)

    async def _write(self, update: DocumentUpdate, ack: AckLevel, *, allow_missing: bool = False) -> Changed:
        changed: Document | None = None

        def remember(stored: Document) -> Document:
            nonlocal changed
            changed = update.update(stored)
            return changed

        receipt = await completion(self._records.update_document(replace(update, update=remember)))
        if receipt.outcome is WriteOutcome.MISSING and not allow_missing:
            raise MemoryNotFoundError(update.doc_id)
        await acknowledge(self._applier, ack, receipt.sequence)
        if changed is None or receipt.replayed:
            return Changed(receipt, None)
        if receipt.outcome is WriteOutcome.UNCHANGED:
            return Changed(receipt, changed)
        return Changed(receipt, replace(changed, revision=receipt.revision, update_time=receipt.commit_time))


def _given(stored: Document, embedded: Sequence[PassageInput]) -> list[PassageInput]:
    """The stored vector if the caller gave it: it is the only one, and not the one that the model makes of the text."""
    if len(stored.passages) != 1:
        return []
    given = PassageInput(0, len(stored.content), np.array(stored.passages[0].embedding, np.float32))
    is_made = len(embedded) == 1 and float(given.vector @ embedded[0].vector) > SAME_COSINE
    return [] if is_made else [given]


def _undeleted(stored: Document) -> Document:
    if not stored.hidden:
        raise InvalidOperationError(f"the memory {stored.doc_id!r} is not deleted")
    return replace(_with_fields(stored, delete_time=None), hidden=False)


def _check_not_deleted(stored: Document) -> None:
    if stored.hidden:
        raise MemoryNotFoundError(stored.doc_id)


def _with_fields(stored: Document, **changes: FieldValue) -> Document:
    return replace(stored, fields={**stored.fields, **changes})
