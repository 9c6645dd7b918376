"""How documents change: decided inside the transaction that makes the change, after the check for a replay."""

from collections.abc import Sequence
from contextlib import suppress

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import Document, UpdateDocument
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import DocumentNotFoundError
from mnemon_server.domain.records import RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.domain.validation import metadata_violations, normalised, refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, PassageInput
from mnemon_server.services.background.offload import completion
from mnemon_server.services.documents.checks import update_violations
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.embedded_passages import PlacedText, TextMovedError, embed_passages, placed
from mnemon_server.services.writing import field_masks as masks
from mnemon_server.services.writing.writes import request_key


class DocumentChanges:
    """Changes documents; any number of calls at the same time."""

    def __init__(
        self, records: RecordEngine, embedder: EmbeddingBatcher, reads: "ReadBatcher[Document | None]"
    ) -> None:
        self._records = records
        self._embedder = embedder
        self._reads = reads

    async def update(self, request: UpdateDocument) -> WriteReceipt:
        """Changes what the request names. DocumentNotFoundError if the document does not exist."""
        refuse(update_violations(request))
        receipt = None
        while receipt is None:
            text, passages = await self._new_passages(request)
            with suppress(TextMovedError):
                receipt = await self._write(request, text, passages)
        if receipt.outcome is WriteOutcome.MISSING:
            raise DocumentNotFoundError(request.document.doc_id)
        return receipt

    async def _new_passages(
        self, request: UpdateDocument
    ) -> tuple[list[PlacedText] | None, Sequence[PassageInput] | None]:
        """The text after the change, and its passages; None if it stays the same, which then is not embedded."""
        heads = self._records.heads
        if not masks.may_change_text(request, heads):
            return None, None
        stored = await self._reads.get(request.document.doc_id)
        if stored is None or (text := placed(_changed(stored, request), heads)) == placed(stored, heads):
            return None, None
        [passages] = await embed_passages(self._embedder, [text])
        return text, passages

    async def _write(
        self, request: UpdateDocument, text: list[PlacedText] | None, passages: Sequence[PassageInput] | None
    ) -> WriteReceipt:
        heads = self._records.heads

        def update(stored: Document) -> Document:
            new = _changed(stored, request)
            if placed(new, heads) != (placed(stored, heads) if text is None else text):
                raise TextMovedError
            refuse(metadata_violations(new.metadata, "set_metadata"))
            return new

        change = DocumentUpdate(
            doc_id=request.document.doc_id,
            update=update,
            change=ChangeType.KNOWLEDGE_INDEXED,
            passages=passages,
            request=_key(request),
            expected_revision=request.expected_revision,
        )
        return await completion(self._records.update_document(change))


def _changed(stored: Document, request: UpdateDocument) -> Document:
    """The stored document with the change made."""
    return normalised(masks.updated(stored, request.document, request))


def _key(request: UpdateDocument) -> RequestKey | None:
    asked = _changed(Document(request.document.doc_id, ""), request)
    return request_key(
        request.request_id,
        "update-document",
        document_digest(asked),
        sorted(set(request.mask)),
        sorted(set(request.remove_metadata)),
        request.expected_revision,
    )
