"""The reference record engine: plain Python, nothing kept on disk. The contract in its shortest form."""

import math
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import MnemonError, RequestIdReusedError, RevisionMismatchError, StorageFailedError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.base import (
    DocumentChange,
    DocumentWrite,
    IndexPosition,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
)
from mnemon_server.engines.keywords import analyze, query_terms

REQUEST_LIFETIME = timedelta(hours=24)


@dataclass(slots=True)
class _Stored:
    position: int
    sequence: int
    document: Document
    passage_ids: tuple[int, ...]
    vectors: tuple[Vector, ...]
    words: tuple[Counter[str], ...]


class InMemoryRecordEngine:
    """Keeps everything in dictionaries behind one lock."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._stem = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        self._documents: dict[str, _Stored] = {}
        self._deletions: dict[str, int] = {}
        self._requests: dict[str, tuple[RequestKey, Any, Any]] = {}
        self._positions: dict[str, IndexPosition] = {}
        self._listeners: list[Callable[[], None]] = []
        self._sequence = self._position = self._passage_id = 0
        self._closed = False

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._write(write.request, lambda: self._put(write))

    def delete_document(
        self, doc_id: str, *, request: RequestKey | None = None, expected_revision: int | None = None
    ) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._write(request, lambda: self._delete(doc_id, expected_revision))

    def delete_documents(self, where: RecordFilter, *, request: RequestKey | None = None) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        return self._write(request, lambda: self._delete_matching(where))

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """See RecordEngine."""
        return self._write(None, lambda: self._set_position(index, position))

    # Reads

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordEngine."""
        with self._lock:
            found = [self._documents.get(doc_id) for doc_id in doc_ids]
            return [_shown(stored, vectors=vectors) if stored else None for stored in found]

    def list_documents(
        self, where: RecordFilter, *, after: int = 0, limit: int, vectors: bool = False
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        with self._lock:
            matching = [stored for stored in self._matching(where) if stored.position > after]
            return [(stored.position, _shown(stored, vectors=vectors)) for stored in matching[:limit]]

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        with self._lock:
            return len(self._matching(where))

    def has_metadata_key(self, key: str) -> bool:
        """See RecordEngine."""
        with self._lock:
            return any(key in stored.document.metadata for stored in self._documents.values())

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._lock:
            ids = (passage_id for stored in self._matching(where) for passage_id in stored.passage_ids)
            return np.sort(np.fromiter(ids, np.int64))

    def scan_vectors(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        wanted = None if among is None else set(among.tolist())
        with self._lock:
            scores = {
                passage_id: float(np.clip(np.dot(vector, query), -1.0, 1.0))
                for stored in self._documents.values()
                for passage_id, vector in zip(stored.passage_ids, stored.vectors, strict=True)
                if wanted is None or passage_id in wanted
            }
        return _scores(scores)

    def search_keywords(self, query: str, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        wanted = None if among is None else set(among.tolist())
        terms = list(dict.fromkeys(self._words(" ".join(query_terms(query)))))
        with self._lock:
            counts = {
                passage_id: words
                for stored in self._documents.values()
                for passage_id, words in zip(stored.passage_ids, stored.words, strict=True)
            }
        mean = sum(words.total() for words in counts.values()) / max(len(counts), 1)
        searched = {p: words for p, words in counts.items() if wanted is None or p in wanted}
        weights = {term: _weight(sum(term in words for words in searched.values()), len(searched)) for term in terms}
        own = _bm25(Counter(self._words(query)), weights, mean)
        return _scores(
            {
                passage_id: min(1.0, _bm25(words, weights, mean) / own)
                for passage_id, words in searched.items()
                if any(term in words for term in terms)
            }
        )

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        with self._lock:
            found = {
                passage_id: PassageLocation(passage_id, doc_id, passage.index, passage.start, passage.end)
                for doc_id, stored in self._documents.items()
                for passage_id, passage in zip(stored.passage_ids, stored.document.passages, strict=True)
            }
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """See RecordEngine."""
        with self._lock:
            changes = [DocumentChange(changed, doc_id, None) for doc_id, changed in self._deletions.items()]
            changes += [
                DocumentChange(
                    stored.sequence, doc_id, _shown(stored, vectors=False), stored.passage_ids, np.stack(stored.vectors)
                )
                for doc_id, stored in self._documents.items()
            ]
        changes.sort(key=lambda change: change.sequence)
        start = bisect_right(changes, sequence, key=lambda change: change.sequence)
        return changes[start : start + limit]

    def count_changes_after(self, sequence: int) -> int:
        """See RecordEngine."""
        with self._lock:
            return len(self.changes_after(sequence, limit=len(self._documents) + len(self._deletions)))

    def index_position(self, index: str) -> IndexPosition:
        """See RecordEngine."""
        with self._lock:
            return self._positions.get(index, IndexPosition())

    def stats(self) -> RecordStats:
        """See RecordEngine."""
        with self._lock:
            passage_count = sum(len(stored.passage_ids) for stored in self._documents.values())
            return RecordStats(len(self._documents), passage_count, self._sequence)

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See RecordEngine."""
        with self._lock:
            self._listeners.append(on_commit)
        return lambda: self._listeners.remove(on_commit)

    # Life

    def failure(self) -> str | None:
        """See RecordEngine."""
        return None

    def recover(self) -> None:
        """See RecordEngine."""

    def close(self) -> None:
        """See RecordEngine."""
        self._closed = True

    # Behind the lock

    def _write(self, request: RequestKey | None, operation: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        if self._closed:
            future.set_exception(StorageFailedError("the records are closed"))
            return future
        with self._lock:
            try:
                future.set_result(self._answer_once(request, operation))
            except MnemonError as error:
                future.set_exception(error)
            else:
                for listener in list(self._listeners):
                    listener()
        return future

    def _answer_once(self, request: RequestKey | None, operation: Callable[[], Any]) -> Any:
        if request is None:
            return operation()
        known = self._requests.get(request.request_id)
        if known and known[2] > self._clock():
            if known[0] != request:
                raise RequestIdReusedError(
                    f"request_id {request.request_id!r} was used for a different request; take a new one for each"
                )
            return replace(known[1], replayed=True)
        answer = operation()
        self._requests[request.request_id] = (request, answer, self._clock() + REQUEST_LIFETIME)
        return answer

    def _put(self, write: DocumentWrite) -> WriteReceipt:
        known = self._documents.get(write.document.doc_id)
        _check_revision(write.document.doc_id, write.expected_revision, known)
        if known and _same(known.document, write.document):
            return self._receipt(write.document.doc_id, WriteOutcome.UNCHANGED, known.document.revision, known.sequence)
        self._sequence += 1
        if known is None:
            self._position += 1
        stored = self._stored(write, known)
        self._documents[write.document.doc_id] = stored
        self._deletions.pop(write.document.doc_id, None)
        outcome = WriteOutcome.REPLACED if known else WriteOutcome.CREATED
        return self._receipt(write.document.doc_id, outcome, stored.document.revision, self._sequence)

    def _stored(self, write: DocumentWrite, known: _Stored | None) -> _Stored:
        now = self._clock()
        document = replace(
            write.document,
            embedding=None,
            metadata=dict(write.document.metadata),
            revision=known.document.revision + 1 if known else 1,
            create_time=known.document.create_time if known else now,
            update_time=now,
            passages=tuple(Passage(i, passage.start, passage.end) for i, passage in enumerate(write.passages)),
        )
        first, self._passage_id = self._passage_id + 1, self._passage_id + len(write.passages)
        return _Stored(
            position=known.position if known else self._position,
            sequence=self._sequence,
            document=document,
            passage_ids=tuple(range(first, self._passage_id + 1)),
            vectors=tuple(passage.vector for passage in write.passages),
            words=tuple(Counter(self._words(document.content[part.start : part.end])) for part in write.passages),
        )

    def _delete(self, doc_id: str, expected_revision: int | None) -> WriteReceipt:
        known = self._documents.get(doc_id)
        _check_revision(doc_id, expected_revision, known)
        if known is None:
            return self._receipt(doc_id, WriteOutcome.MISSING, 0, self._sequence)
        self._remove(doc_id)
        return self._receipt(doc_id, WriteOutcome.DELETED, known.document.revision, self._sequence)

    def _delete_matching(self, where: RecordFilter) -> BulkDeleteReceipt:
        matching = [stored.document.doc_id for stored in self._matching(where)]
        for doc_id in matching:
            self._remove(doc_id)
        return BulkDeleteReceipt(len(matching), sequence=self._sequence)

    def _remove(self, doc_id: str) -> None:
        self._sequence += 1
        del self._documents[doc_id]
        if self._positions:
            self._deletions[doc_id] = self._sequence

    def _set_position(self, index: str, position: IndexPosition) -> None:
        self._positions[index] = position
        heard = min(position.sequence for position in self._positions.values())
        self._deletions = {doc_id: changed for doc_id, changed in self._deletions.items() if changed > heard}

    def _matching(self, where: RecordFilter) -> list[_Stored]:
        matching = [stored for stored in self._documents.values() if _matches(stored.document, where)]
        return sorted(matching, key=lambda stored: stored.position)

    def _receipt(self, doc_id: str, outcome: WriteOutcome, revision: int, sequence: int) -> WriteReceipt:
        return WriteReceipt(doc_id, outcome, revision, self._clock(), sequence=sequence)

    def _words(self, text: str) -> list[str]:
        return self._stem(  # type: ignore[return-value]  # words alone, by the last two arguments
            analyze(text).encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )


def _check_revision(doc_id: str, expected: int | None, known: _Stored | None) -> None:
    actual = known.document.revision if known else 0
    if expected is not None and expected != actual:
        raise RevisionMismatchError(doc_id, expected, actual)


def _matches(document: Document, where: RecordFilter) -> bool:
    scope = all(
        getattr(document.scope, name) == wanted
        for name in ("user", "household", "persona", "agent", "project")
        if (wanted := getattr(where.scope, name))
    )
    return scope and all(_identical(document.metadata.get(key), value) for key, value in where.equal.items())


def _same(left: Document, right: Document) -> bool:
    return (
        left.content == right.content
        and left.scope == right.scope
        and left.metadata.keys() == right.metadata.keys()
        and all(_identical(left.metadata[key], right.metadata[key]) for key in left.metadata)
    )


def _identical(left: object, right: object) -> bool:
    """Equal in type and value: 1, 1.0 and True are three values."""
    return type(left) is type(right) and left == right


def _shown(stored: _Stored, *, vectors: bool) -> Document:
    if not vectors:
        return stored.document
    passages = tuple(
        replace(passage, embedding=tuple(vector.tolist()))
        for passage, vector in zip(stored.document.passages, stored.vectors, strict=True)
    )
    return replace(stored.document, passages=passages, embedding=passages[0].embedding)


def _scores(scores: dict[int, float]) -> Scores:
    ids = sorted(scores)
    return Scores(np.array(ids, np.int64), np.array([scores[passage_id] for passage_id in ids], np.float64))


def _weight(holding: int, total: int) -> float:
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def _bm25(words: Counter[str], weights: dict[str, float], mean_length: float) -> float:
    norm = 1.2 * (0.25 + 0.75 * words.total() / max(mean_length, 1e-9))
    return max(sum(w * words[term] * 2.2 / (words[term] + norm) for term, w in weights.items() if words[term]), 1e-9)
