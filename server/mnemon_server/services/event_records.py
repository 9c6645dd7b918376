"""The records that events are about, as they are now."""

from collections.abc import Callable, Sequence

from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import Event, EventType
from mnemon_server.domain.feed import Record
from mnemon_server.domain.memories import Memory

BYTES_MAX = 3 << 20
READ_AT_ONCE = 32

ReadDocuments = Callable[[Sequence[str]], list[Document | None]]
ReadMemories = Callable[[Sequence[str]], list[Memory | None]]

_OF_DOCUMENTS = frozenset({EventType.KNOWLEDGE_INDEXED, EventType.KNOWLEDGE_DELETED})


class EventRecords:
    """Reads the records of events; blocks."""

    def __init__(self, read_documents: ReadDocuments, read_memories: ReadMemories) -> None:
        """Takes what reads records by id, in their order, None for those that are gone."""
        self._read_documents = read_documents
        self._read_memories = read_memories

    def read(self, events: Sequence[Event]) -> tuple[Record | None, ...]:
        """The record of each event, None where it is gone; of the first events only, where that is enough text.

        At least one, and no more once they hold 3 MiB: what comes after is for the next message.
        """
        found: list[Record | None] = []
        size = 0
        for start in range(0, len(events), READ_AT_ONCE):
            for record in self._read_some(events[start : start + READ_AT_ONCE]):
                found.append(record)
                size += _size(record)
                if size >= BYTES_MAX:
                    return tuple(found)
        return tuple(found)

    def _read_some(self, events: Sequence[Event]) -> list[Record | None]:
        document_ids = list(dict.fromkeys(event.record_id for event in events if event.type in _OF_DOCUMENTS))
        memory_ids = list(dict.fromkeys(event.record_id for event in events if event.type not in _OF_DOCUMENTS))
        documents = dict(zip(document_ids, self._read_documents(document_ids), strict=True)) if document_ids else {}
        memories = dict(zip(memory_ids, self._read_memories(memory_ids), strict=True)) if memory_ids else {}
        return [
            documents[event.record_id] if event.type in _OF_DOCUMENTS else memories[event.record_id] for event in events
        ]


def _size(record: Record | None) -> int:
    """Bytes of what can be large in a record."""
    if record is None:
        return 0
    texts = [value for value in record.metadata.values() if isinstance(value, str)]
    lists = [text for value in record.metadata.values() if isinstance(value, tuple) for text in value]
    return sum(len(text.encode()) for text in (record.content, *texts, *lists))
