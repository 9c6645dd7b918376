"""The bulk methods of the services: the request for each item, and the meaning of its answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from mnemon._bulk import BulkMethod
from mnemon._errors import MnemonError
from mnemon._messages import document_requests as requests
from mnemon._messages import fact_requests, memory_requests, semantic_requests, timeline_requests
from mnemon._messages import timeline as timeline_convert
from mnemon._messages.documents import receipt_from_pb
from mnemon._messages.semantic import saved_from_pb
from mnemon._status import error_from_item
from mnemon._values import documents as values
from mnemon._values import facts, memories, semantic, timeline
from mnemon.v1 import episodic_pb2, facts_pb2, knowledge_store_pb2, memory_pb2, semantic_pb2


class BulkIndexDocuments(BulkMethod[requests.DocumentLike, values.IndexResult]):
    """Stores documents; `scope` applies to those without one."""

    noun = "document"
    noun_plural = "documents"

    def __init__(self, *, scope: values.Scope | None, ack: str) -> None:
        self._scope, self._ack = scope, ack

    def request(self, given: requests.DocumentLike) -> Message:
        """The request of one document."""
        return requests.index_document_like(given, scope=self._scope, ack=self._ack)

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return knowledge_store_pb2.BulkIndexDocumentsRequest(requests=requests)  # type: ignore[arg-type]

    def result(
        self, position: int, request: Message, answer: knowledge_store_pb2.IndexDocumentResult
    ) -> values.IndexResult:
        """The result of one document."""
        if answer.WhichOneof("outcome") == "receipt":
            return values.IndexResult(answer.doc_id, receipt=receipt_from_pb(answer.receipt))
        return values.IndexResult(answer.doc_id, error=error_from_item(answer.error))

    def failure(self, position: int, given: Any, error: MnemonError) -> values.IndexResult:
        """The result of a document that cannot be sent."""
        return values.IndexResult(requests.id_of(given), error=error)


class BulkCreateMemories(BulkMethod[memories.MemoryLike, memories.RememberResult]):
    """Stores memories; `scope` applies to those without one."""

    noun = "memory"
    noun_plural = "memories"

    def __init__(self, *, scope: values.Scope | None, ack: str) -> None:
        self._scope, self._ack = scope, ack

    def request(self, given: memories.MemoryLike) -> Message:
        """The request of one memory."""
        return memory_requests.create_memory_like(given, scope=self._scope, ack=self._ack)

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return memory_pb2.BulkCreateMemoriesRequest(requests=requests)  # type: ignore[arg-type]

    def result(self, position: int, request: Message, answer: memory_pb2.CreateMemoryResult) -> memories.RememberResult:
        """The result of one memory."""
        if answer.WhichOneof("outcome") == "receipt":
            return memories.RememberResult(position, receipt=receipt_from_pb(answer.receipt))
        return memories.RememberResult(position, error=error_from_item(answer.error))

    def failure(self, position: int, given: Any, error: MnemonError) -> memories.RememberResult:
        """The result of a memory that cannot be sent."""
        return memories.RememberResult(position, error=error)


class SaveSemanticMemories(BulkMethod[semantic.SemanticMemoryLike, semantic.SaveResult]):
    """Saves statements, all with the same policy; `scope` applies to those without one."""

    noun = "statement"
    noun_plural = "statements"

    def __init__(self, *, scope: values.Scope | None, conflict_policy: str, rule: str) -> None:
        self._scope, self._conflict_policy, self._rule = scope, conflict_policy, rule

    def request(self, given: semantic.SemanticMemoryLike) -> Message:
        """The request of one statement."""
        return semantic_requests.save_like(
            given, scope=self._scope, conflict_policy=self._conflict_policy, rule=self._rule
        )

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return semantic_pb2.BulkSaveSemanticMemoriesRequest(requests=requests)  # type: ignore[arg-type]

    def result(
        self, position: int, request: Message, answer: semantic_pb2.SaveSemanticMemoryResult
    ) -> semantic.SaveResult:
        """The result of one statement."""
        if answer.WhichOneof("outcome") == "saved":
            return saved_from_pb(position, answer.saved)
        return semantic.SaveResult(position, error=error_from_item(answer.error))

    def failure(self, position: int, given: Any, error: MnemonError) -> semantic.SaveResult:
        """The result of a statement that cannot be sent."""
        return semantic.SaveResult(position, error=error)


class RecordEvents(BulkMethod[timeline.EpisodicEvent, timeline.RecordResult]):
    """Records events; `scope` applies to those without one. Use it once: it remembers what it sent."""

    noun = "event"
    noun_plural = "events"
    # Events are short, and a message costs more than most of them.
    batch_items_max = 1000

    def __init__(self, *, scope: values.Scope | None) -> None:
        self._scope = scope
        self._new_ids: set[str] = set()

    def request(self, given: timeline.EpisodicEvent) -> Message:
        """The event with an id, so that sending it again stores nothing new."""
        event = timeline_requests.event_like(given, scope=self._scope)
        if not event.event_id:
            event.event_id = timeline_requests.new_id()
            self._new_ids.add(event.event_id)
        return episodic_pb2.RecordEventRequest(event=event)

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return episodic_pb2.BulkRecordEventsRequest(requests=requests)  # type: ignore[arg-type]

    def result(
        self, position: int, request: episodic_pb2.RecordEventRequest, answer: episodic_pb2.RecordEventResult
    ) -> timeline.RecordResult:
        """The result of one event."""
        event_id = request.event.event_id
        is_new = event_id in self._new_ids
        self._new_ids.discard(event_id)
        if answer.WhichOneof("outcome") != "receipt":
            return timeline.RecordResult(position, error=error_from_item(answer.error))
        receipt = timeline_convert.receipt_from_pb(answer.receipt)
        if receipt.duplicate and is_new and receipt.event_id == event_id:
            # Only this run knows the id, so an earlier try of this run stored the event.
            receipt = replace(receipt, duplicate=False, replayed=True)
        return timeline.RecordResult(position, receipt=receipt)

    def failure(self, position: int, given: Any, error: MnemonError) -> timeline.RecordResult:
        """The result of an event that cannot be sent."""
        return timeline.RecordResult(position, error=error)


class BulkPutFacts(BulkMethod[facts.FactLike, facts.PutResult]):
    """Stores facts, all of them in the same mode."""

    noun = "fact"
    noun_plural = "facts"

    def __init__(self, *, mode: str, ack: str) -> None:
        self._mode, self._ack = mode, ack

    def request(self, given: facts.FactLike) -> Message:
        """The request of one fact."""
        return fact_requests.put_like(given, mode=self._mode, ack=self._ack)

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return facts_pb2.BulkPutFactsRequest(requests=requests)  # type: ignore[arg-type]

    def result(self, position: int, request: Message, answer: facts_pb2.PutFactResult) -> facts.PutResult:
        """The result of one fact."""
        if answer.WhichOneof("outcome") == "receipt":
            return facts.PutResult(position, receipt=receipt_from_pb(answer.receipt))
        return facts.PutResult(position, error=error_from_item(answer.error))

    def failure(self, position: int, given: Any, error: MnemonError) -> facts.PutResult:
        """The result of a fact that cannot be sent."""
        return facts.PutResult(position, error=error)
