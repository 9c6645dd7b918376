"""The bulk methods of the services: the request for each item, and the meaning of its answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from google.protobuf.message import Message

from mnemon._bulk import BulkMethod
from mnemon._messages import documents, records
from mnemon._messages.translation import read
from mnemon._values import documents as values
from mnemon._values import facts, memories, semantic, timeline
from mnemon.shared.errors import MnemonError
from mnemon.v1 import episodic_pb2, facts_pb2, knowledge_store_pb2, memory_pb2, semantic_pb2

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class _Writes(BulkMethod[_Given, _Result]):
    """Writes records, all in the same way: each result has a position, and a receipt or an error."""

    kind: ClassVar[Callable[..., Message]]
    """The message of several requests."""
    write: ClassVar[Callable[..., Message]]
    """Makes the request of an item."""
    results: ClassVar[type[Any]]

    def __init__(self, **how: Any) -> None:
        """`how` are further arguments of `write`."""
        self._how = how

    def request(self, given: _Given) -> Message:
        """The request of one item."""
        return type(self).write(given, **self._how)

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""
        return type(self).kind(requests=requests)

    def result(self, position: int, request: Any, answer: Any) -> _Result:
        """The result of one item."""
        found: _Result = read(self.results, answer, position=position)
        return found

    def failure(self, position: int, given: _Given, error: MnemonError) -> _Result:
        """The result of an item that cannot be sent."""
        found: _Result = self.results(position, error=error)
        return found


class BulkIndexDocuments(_Writes[documents.DocumentLike, values.IndexResult]):
    """Stores documents; `scope` applies to those without one."""

    noun, noun_plural = "document", "documents"
    kind, write = knowledge_store_pb2.BulkIndexDocumentsRequest, documents.index_document_like

    def result(self, position: int, request: Any, answer: Any) -> values.IndexResult:
        """The result of one document, by its id."""
        return read(values.IndexResult, answer)

    def failure(self, position: int, given: Any, error: MnemonError) -> values.IndexResult:
        """The result of a document that cannot be sent."""
        return values.IndexResult(documents.id_of(given), error=error)


class BulkCreateMemories(_Writes[memories.MemoryLike, memories.RememberResult]):
    """Stores memories; `scope` applies to those without one."""

    noun, noun_plural = "memory", "memories"
    kind, write = memory_pb2.BulkCreateMemoriesRequest, records.create_memory_like
    results = memories.RememberResult


class SaveSemanticMemories(_Writes[semantic.SemanticMemoryLike, semantic.SaveResult]):
    """Saves statements, all with the same policy; `scope` applies to those without one."""

    noun, noun_plural = "statement", "statements"
    kind, write = semantic_pb2.BulkSaveSemanticMemoriesRequest, records.save_like
    results = semantic.SaveResult

    def result(self, position: int, request: Any, answer: Any) -> semantic.SaveResult:
        """The result of one statement."""
        return super().result(position, request, answer.saved if answer.HasField("saved") else answer)


class BulkPutFacts(_Writes[facts.FactLike, facts.PutResult]):
    """Stores facts, all of them in the same mode."""

    noun, noun_plural = "fact", "facts"
    kind, write = facts_pb2.BulkPutFactsRequest, records.put_like
    results = facts.PutResult


class RecordEvents(_Writes[timeline.EpisodicEvent, timeline.RecordResult]):
    """Records events; `scope` applies to those without one. Use it once: it remembers what it sent."""

    noun, noun_plural = "event", "events"
    kind, results = episodic_pb2.BulkRecordEventsRequest, timeline.RecordResult
    # Events are short, and a message costs more than most of them.
    batch_items_max = 1000

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._new_ids: set[str] = set()

    def request(self, given: timeline.EpisodicEvent) -> Message:
        """The event with an id, so that sending it again stores nothing new."""
        event = records.event_like(given, **self._how)
        if not event.event_id:
            event.event_id = records.new_event_id()
            self._new_ids.add(event.event_id)
        return episodic_pb2.RecordEventRequest(event=event)

    def result(self, position: int, request: Any, answer: Any) -> timeline.RecordResult:
        """The result of one event."""
        result, event_id = super().result(position, request, answer), request.event.event_id
        receipt, is_new = result.receipt, event_id in self._new_ids
        self._new_ids.discard(event_id)
        if receipt and receipt.duplicate and is_new and receipt.event_id == event_id:
            # Only this run knows the id, so an earlier try of this run stored the event.
            return replace(result, receipt=replace(receipt, duplicate=False, replayed=True))
        return result
