"""One collection of a vault in dictionaries."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from mnemon_server.domain.document_fields import changed_fields, document_matches
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import RevisionMismatchError
from mnemon_server.domain.events import Event, EventType
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.base import (
    DocumentChange,
    DocumentUpdate,
    DocumentWrite,
    IndexPosition,
    PassageIds,
    PassageInput,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
    VectorUsage,
)
from mnemon_server.engines.in_memory import keywords
from mnemon_server.engines.in_memory.events import InMemoryEventLog
from mnemon_server.engines.in_memory.lane import Lane


@dataclass(frozen=True, slots=True)
class _Stored:
    position: int
    sequence: int
    document: Document
    passages: tuple[PassageInput, ...]
    passage_ids: tuple[int, ...]
    """None of a hidden document."""
    words: tuple[Counter[str], ...]


class InMemoryCollection:
    """See RecordEngine."""

    def __init__(self, lane: Lane, events: InMemoryEventLog) -> None:
        self._lane = lane
        self._events = events
        self._documents: dict[str, _Stored] = {}
        self._deletions: dict[str, int] = {}
        self._positions: dict[str, IndexPosition] = {}
        self._sequence = self._position = self._passage_id = 0

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._lane.write(write.request, lambda: self._put(write))

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._lane.write(update.request, lambda: self._update(update))

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        event: EventType = EventType.KNOWLEDGE_DELETED,
    ) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._lane.write(request, lambda: self._delete(doc_id, expected_revision, request, event))

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        event: EventType = EventType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        return self._lane.write(request, lambda: self._delete_matching(where, request, event))

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """See RecordEngine."""
        return self._lane.write(None, lambda: self._set_position(index, position))

    # Reads

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordEngine."""
        with self._lane.lock:
            found = [self._documents.get(doc_id) for doc_id in doc_ids]
            return [_shown(stored, vectors=vectors) if stored else None for stored in found]

    def list_documents(
        self, where: RecordFilter, *, after: int = 0, limit: int, vectors: bool = False
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        with self._lane.lock:
            matching = [stored for stored in self._matching(where) if stored.position > after]
            return [(stored.position, _shown(stored, vectors=vectors)) for stored in matching[:limit]]

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        with self._lane.lock:
            return len(self._matching(where))

    def has_metadata_key(self, key: str) -> bool:
        """See RecordEngine."""
        with self._lane.lock:
            return any(key in stored.document.metadata for stored in self._documents.values())

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._lane.lock:
            ids = (passage_id for stored in self._matching(where) for passage_id in stored.passage_ids)
            return np.sort(np.fromiter(ids, np.int64))

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        matching = set(self.match_passages(where).tolist())
        return np.fromiter((passage_id for passage_id in passage_ids.tolist() if passage_id in matching), np.int64)

    def scan_vectors(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        wanted = None if among is None else set(among.tolist())
        with self._lane.lock:
            scores = {
                passage_id: float(np.clip(np.dot(passage.vector, query), -1.0, 1.0))
                for stored in self._searchable()
                for passage_id, passage in zip(stored.passage_ids, stored.passages, strict=True)
                if wanted is None or passage_id in wanted
            }
        return _scores(scores)

    def nearest_vectors(self, query: Vector, *, limit: int) -> Scores | None:
        """See RecordEngine."""
        return None

    def vector_usage(self) -> VectorUsage:
        """See RecordEngine."""
        with self._lane.lock:
            vectors = [passage.vector for stored in self._searchable() for passage in stored.passages]
            return VectorUsage(len(vectors), 0, 0, sum(vector.nbytes for vector in vectors))

    def save_snapshot(self) -> datetime | None:
        """See RecordEngine."""
        return None

    def search_keywords(self, query: str, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        with self._lane.lock:
            stored = {
                passage_id: words
                for each in self._searchable()
                for passage_id, words in zip(each.passage_ids, each.words, strict=True)
            }
        return _scores(keywords.search(query, stored, None if among is None else set(among.tolist())))

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        with self._lane.lock:
            found = {
                passage_id: PassageLocation(passage_id, stored.document.doc_id, i, passage.start, passage.end)
                for stored in self._searchable()
                for i, (passage_id, passage) in enumerate(zip(stored.passage_ids, stored.passages, strict=True))
            }
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """See RecordEngine."""
        with self._lane.lock:
            changes = [DocumentChange(changed, doc_id, None) for doc_id, changed in self._deletions.items()]
            changes += [_change(stored) for stored in self._documents.values()]
        changes.sort(key=lambda change: change.sequence)
        start = bisect_right(changes, sequence, key=lambda change: change.sequence)
        return changes[start : start + limit]

    def count_changes_after(self, sequence: int) -> int:
        """See RecordEngine."""
        with self._lane.lock:
            return len(self.changes_after(sequence, limit=len(self._documents) + len(self._deletions)))

    def index_position(self, index: str) -> IndexPosition:
        """See RecordEngine."""
        with self._lane.lock:
            return self._positions.get(index, IndexPosition())

    def stats(self) -> RecordStats:
        """See RecordEngine."""
        with self._lane.lock:
            passage_count = sum(len(stored.passage_ids) for stored in self._documents.values())
            return RecordStats(len(self._documents), passage_count, self._sequence)

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See RecordEngine."""
        return self._lane.subscribe(on_commit)

    def failure(self) -> str | None:
        """See RecordEngine."""
        return None

    def recover(self) -> None:
        """See RecordEngine."""

    # Behind the lock

    def _put(self, write: DocumentWrite) -> WriteReceipt:
        known = self._find(write.document.doc_id, write.expected_revision)
        return self._store(known, write.document, write.passages, write.request, write.event)

    def _update(self, update: DocumentUpdate) -> WriteReceipt:
        known = self._find(update.doc_id, update.expected_revision)
        if known is None:
            return self._receipt(update.doc_id, WriteOutcome.MISSING, 0, self._sequence)
        new = update.update(known.document)
        if new.doc_id != update.doc_id or (update.passages is None and new.content != known.document.content):
            raise ValueError("an update keeps the document's id, and its content where it brings no passages")
        passages = known.passages if update.passages is None else update.passages
        return self._store(known, new, passages, update.request, update.event)

    def _store(
        self,
        known: _Stored | None,
        new: Document,
        passages: Sequence[PassageInput],
        request: RequestKey | None,
        event: EventType,
    ) -> WriteReceipt:
        if known and document_digest(known.document) == document_digest(new):
            return self._receipt(new.doc_id, WriteOutcome.UNCHANGED, known.document.revision, known.sequence)
        self._sequence = self._lane.next_sequence()
        if known is None:
            self._position += 1
        stored = self._stored(known, new, passages)
        self._documents[new.doc_id] = stored
        self._deletions.pop(new.doc_id, None)
        changed = changed_fields(known.document, new) if known else ()
        self._events.append([self._event(self._sequence, stored.document, request, event, changed)])
        outcome = WriteOutcome.REPLACED if known else WriteOutcome.CREATED
        return self._receipt(new.doc_id, outcome, stored.document.revision, self._sequence)

    def _stored(self, known: _Stored | None, new: Document, passages: Sequence[PassageInput]) -> _Stored:
        now = self._lane.clock()
        document = replace(
            new,
            embedding=None,
            metadata=dict(new.metadata),
            fields=dict(new.fields),
            revision=known.document.revision + 1 if known else 1,
            create_time=known.document.create_time if known else now,
            update_time=now,
            passages=tuple(Passage(i, passage.start, passage.end) for i, passage in enumerate(passages)),
        )
        return _Stored(
            position=known.position if known else self._position,
            sequence=self._sequence,
            document=document,
            passages=tuple(passages),
            passage_ids=() if new.hidden else self._passage_ids(known, passages),
            words=tuple(keywords.words(new.content[part.start : part.end]) for part in passages),
        )

    def _passage_ids(self, known: _Stored | None, passages: Sequence[PassageInput]) -> tuple[int, ...]:
        if known and known.passages is passages and known.passage_ids:
            return known.passage_ids
        first, self._passage_id = self._passage_id + 1, self._passage_id + len(passages)
        return tuple(range(first, self._passage_id + 1))

    def _delete(
        self, doc_id: str, expected_revision: int | None, request: RequestKey | None, event: EventType
    ) -> WriteReceipt:
        known = self._find(doc_id, expected_revision)
        if known is None:
            return self._receipt(doc_id, WriteOutcome.MISSING, 0, self._sequence)
        self._remove([known], request, event)
        return self._receipt(doc_id, WriteOutcome.DELETED, known.document.revision, self._sequence)

    def _delete_matching(self, where: RecordFilter, request: RequestKey | None, event: EventType) -> BulkDeleteReceipt:
        matching = self._matching(where)
        self._remove(matching, request, event)
        return BulkDeleteReceipt(len(matching), sequence=self._sequence)

    def _remove(self, gone: Sequence[_Stored], request: RequestKey | None, event: EventType) -> None:
        events: list[Event] = []
        for stored in gone:
            self._sequence = self._lane.next_sequence()
            del self._documents[stored.document.doc_id]
            if self._positions:
                self._deletions[stored.document.doc_id] = self._sequence
            first = events[0].sequence if events else self._sequence
            events.append(self._event(first, stored.document, request, event))
        self._events.append(events)

    def _event(
        self,
        commit: int,
        document: Document,
        request: RequestKey | None,
        event: EventType,
        changed: tuple[str, ...] = (),
    ) -> Event:
        return Event(
            sequence=self._sequence,
            commit=commit,
            time=self._events.time(self._lane.clock()),
            type=event,
            record_id=document.doc_id,
            revision=document.revision,
            scope=document.scope,
            request_id=request.request_id if request else "",
            changed=changed,
        )

    def _set_position(self, index: str, position: IndexPosition) -> None:
        self._positions[index] = position
        heard = min(position.sequence for position in self._positions.values())
        self._deletions = {doc_id: changed for doc_id, changed in self._deletions.items() if changed > heard}

    def _find(self, doc_id: str, expected_revision: int | None) -> _Stored | None:
        known = self._documents.get(doc_id)
        actual = known.document.revision if known else 0
        if expected_revision is not None and expected_revision != actual:
            raise RevisionMismatchError(doc_id, expected_revision, actual)
        return known

    def _matching(self, where: RecordFilter) -> list[_Stored]:
        matching = [stored for stored in self._documents.values() if document_matches(stored.document, where)]
        return sorted(matching, key=lambda stored: stored.position)

    def _searchable(self) -> list[_Stored]:
        return [stored for stored in self._documents.values() if not stored.document.hidden]

    def _receipt(self, doc_id: str, outcome: WriteOutcome, revision: int, sequence: int) -> WriteReceipt:
        return WriteReceipt(doc_id, outcome, revision, self._lane.clock(), sequence=sequence)


def _change(stored: _Stored) -> DocumentChange:
    document = stored.document
    if document.hidden:
        return DocumentChange(stored.sequence, document.doc_id, None)
    vectors = np.stack([passage.vector for passage in stored.passages])
    return DocumentChange(stored.sequence, document.doc_id, document, stored.passage_ids, vectors)


def _shown(stored: _Stored, *, vectors: bool) -> Document:
    if not vectors:
        return stored.document
    passages = tuple(
        replace(passage, embedding=tuple(given.vector.tolist()))
        for passage, given in zip(stored.document.passages, stored.passages, strict=True)
    )
    return replace(stored.document, passages=passages, embedding=passages[0].embedding)


def _scores(scores: dict[int, float]) -> Scores:
    ids = sorted(scores)
    return Scores(np.array(ids, np.int64), np.array([scores[passage_id] for passage_id in ids], np.float64))
