"""The records that events are about, as they are now."""

from collections.abc import Callable, Mapping, Sequence

from mnemon_server.domain.changes import Event, EventType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.episodic import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import Record
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.feed.identity import details_of, is_told_of
from mnemon_server.wire.events import decode

BYTES_MAX = 3 << 20
READ_AT_ONCE = 32

ReadDocuments = Callable[[Sequence[str]], list[Document | None]]
ReadMemories = Callable[[Sequence[str]], list[Memory | None]]
ReadSemantic = Callable[[Sequence[str]], list[SemanticMemory | None]]
ReadEpisodic = Callable[[Sequence[str]], list[StoredEvent | None]]
ReadFacts = Callable[[Sequence[str]], list[Fact | None]]
_Reader = ReadDocuments | ReadMemories | ReadSemantic | ReadEpisodic | ReadFacts

_OF_DOCUMENTS = (EventType.KNOWLEDGE_INDEXED, EventType.KNOWLEDGE_DELETED)
_OF_MEMORIES = (
    EventType.MEMORY_CREATED,
    EventType.MEMORY_UPDATED,
    EventType.MEMORY_REINFORCED,
    EventType.MEMORY_DELETED,
    EventType.MEMORY_UNDELETED,
    EventType.MEMORY_PURGED,
)
_OF_SEMANTIC = (EventType.SEMANTIC_SAVED, EventType.SEMANTIC_PRUNED)
_OF_FACTS = (EventType.FACT_CREATED, EventType.FACT_UPDATED, EventType.FACT_DELETED)


class EventRecords:
    """Reads the records of events; blocks."""

    def __init__(
        self,
        read_documents: ReadDocuments,
        read_memories: ReadMemories,
        read_semantic: ReadSemantic,
        read_episodic: ReadEpisodic,
        read_facts: ReadFacts,
    ) -> None:
        """Takes what reads records by id, in their order, None for those that are gone."""
        self._readers: Mapping[EventType, _Reader] = {
            **dict.fromkeys(_OF_DOCUMENTS, read_documents),
            **dict.fromkeys(_OF_MEMORIES, read_memories),
            **dict.fromkeys(_OF_SEMANTIC, read_semantic),
            EventType.EPISODIC_SAVED: read_episodic,
            **dict.fromkeys(_OF_FACTS, read_facts),
        }

    def read(self, events: Sequence[Event]) -> tuple[Record | None, ...]:
        """The record of each event, None where it is gone; of the first events only, where that is enough text.

        At least one, and no more once they hold 3 MiB: what comes after is for the next message. Events of rules,
        decisions and warnings have no record, and those of pruned events none any more.
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
        wanted: dict[_Reader, dict[str, Record | None]] = {}
        for event in events:
            if (reader := self._readers.get(event.type)) is not None:
                wanted.setdefault(reader, {})[event.record_id] = None
        for reader, records in wanted.items():
            records.update(zip(records, reader([*records]), strict=True))
        return [
            _if_meant(event, wanted[reader][event.record_id])
            if (reader := self._readers.get(event.type)) is not None
            else None
            for event in events
        ]


def _if_meant(event: Event, record: Record | None) -> Record | None:
    """The record; None where another event of the timeline, and be it another user's, has the id now."""
    if not isinstance(record, StoredEvent) or is_told_of(event, details_of(event), decode(record.body)):
        return record
    return None


def _size(record: Record | None) -> int:
    """Bytes of what can be large in a record."""
    if record is None:
        return 0
    if isinstance(record, StoredEvent):
        return len(record.body)
    content = (str(record.value),) if isinstance(record, Fact) else (record.content,)
    texts = [value for value in record.metadata.values() if isinstance(value, str)]
    lists = [text for value in record.metadata.values() if isinstance(value, tuple) for text in value]
    own = (record.summary, *record.keywords) if isinstance(record, SemanticMemory) else ()
    return sum(len(text.encode()) for text in (*content, *own, *texts, *lists))
