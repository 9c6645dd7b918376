"""A collection of a vault, in dictionaries."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import numpy as np

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, MetadataValue, RequestKey, WriteReceipt, value_type
from mnemon_server.engines.in_memory import keywords
from mnemon_server.engines.in_memory.change_log import Call, InMemoryChangeLog
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.in_memory.related import related_documents
from mnemon_server.engines.in_memory.state import CollectionState
from mnemon_server.engines.in_memory.stored import Stored, View, change, excerpt
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import (
    EXACT_BEST,
    SMALL_BYTES,
    DocumentChange,
    DocumentUpdate,
    DocumentWrite,
    Excerpt,
    FieldsOnly,
    Fits,
    IndexPosition,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
    VectorUsage,
    Visible,
)
from mnemon_server.ranking.heads import Heads


class InMemoryCollection:
    """See RecordEngine."""

    guard = None

    def __init__(self, collection: Collection, commits: CommitLock, events: InMemoryChangeLog, heads: Heads) -> None:
        self.heads = heads
        self._collection = collection
        self._commits = commits
        self._events = events
        self.state = CollectionState(commits, heads)

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._call(write.request, lambda call: self.state.put(call, write))

    def put_documents(self, writes: Sequence[DocumentWrite]) -> Future[list[WriteReceipt | Exception]]:
        """See RecordEngine."""
        results: list[WriteReceipt | Exception] = []
        for write in writes:
            try:
                results.append(self.put_document(write).result())
            except Exception as error:  # noqa: BLE001 - it is the result of this write
                results.append(error)
        together: Future[list[WriteReceipt | Exception]] = Future()
        together.set_result(results)
        return together

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._call(update.request, lambda call: self.state.update(call, update))

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
        visible: Visible | None = None,
    ) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._call(
            request,
            lambda call: self.state.delete(call, doc_id, change, expected_revision=expected_revision, visible=visible),
        )

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        return self._call(request, lambda call: self.state.delete_matching(call, where, change))

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """See RecordEngine."""
        return self._commits.write(None, lambda: self.state.set_position(index, position))

    def _call(self, request: RequestKey | None, perform: Callable[[Call], Any]) -> "Future[Any]":
        return self._commits.write(request, lambda: self._events.run(request, perform))

    # Reads

    def get_documents(
        self,
        doc_ids: Sequence[str],
        *,
        vectors: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> list[Document | None]:
        """See RecordEngine."""
        with self._commits.lock:
            found = {doc_id: stored for doc_id in doc_ids if (stored := self.state.documents.get(doc_id))}
            view = View(vectors=vectors, fields_only=fields_only)
            if fits is not None:
                found = {doc_id: stored for doc_id, stored in found.items() if fits(doc_id, view.size_of(stored))}
            return [view.shown(found[doc_id]) if doc_id in found else None for doc_id in doc_ids]

    def get_small_document(self, doc_id: str, *, fields_only: FieldsOnly = False) -> Document | None:
        """See RecordEngine."""
        [document] = self.get_documents([doc_id], fields_only=fields_only, fits=lambda _, size: size <= SMALL_BYTES)
        return document and replace(document, passages=())

    def list_documents(
        self,
        where: RecordFilter,
        *,
        after: int = 0,
        limit: int,
        skip: int = 0,
        vectors: bool = False,
        descending: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        with self._commits.lock:
            matching = self.state.matching(where)
            if descending:
                behind = [stored for stored in reversed(matching) if not after or stored.position < after]
            else:
                behind = [stored for stored in matching if stored.position > after]
            view = View(vectors=vectors, fields_only=fields_only)
            run: Iterable[Stored] = behind[skip : skip + limit]
            if fits is not None:
                run = takewhile(lambda stored: fits(stored.document.doc_id, view.size_of(stored)), run)
            return [(stored.position, view.shown(stored)) for stored in run]

    def distinct_texts(
        self, field: str, *, after: str = "", within: tuple[str, str] | None = None, limit: int
    ) -> list[str]:
        """See RecordEngine."""
        with self._commits.lock:
            texts = {str(stored.document.fields.get(field) or "") for stored in self.state.searchable()}
        return sorted(text for text in texts if text > after and (not within or within[0] <= text < within[1]))[:limit]

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        with self._commits.lock:
            return len(self.state.matching(where))

    def has_metadata_key(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """See RecordEngine."""
        with self._commits.lock:
            found = [stored.document.metadata for stored in self.state.documents.values()]
            return any(key in each and (like is None or value_type(each[key]) is value_type(like)) for each in found)

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._commits.lock:
            ids = (passage_id for stored in self.state.matching(where) for passage_id in stored.passage_ids)
            return np.sort(np.fromiter(ids, np.int64))

    def match_few_passages(self, where: RecordFilter, *, limit: int) -> PassageIds | None:
        """See RecordEngine."""
        with self._commits.lock:
            return self.match_passages(where) if self.count_documents(where) <= limit else None

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        matching = set(self.match_passages(where).tolist())
        return np.fromiter((passage_id for passage_id in passage_ids.tolist() if passage_id in matching), np.int64)

    def scan_vectors(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """See RecordEngine."""
        wanted = None if among is None else set(among.tolist())
        with self._commits.lock:
            scores = {
                passage_id: float(np.clip(np.dot(passage.vector, query), -1.0, 1.0))
                for stored in self.state.searchable()
                for passage_id, passage in zip(stored.passage_ids, stored.passages, strict=True)
                if wanted is None or passage_id in wanted
            }
        return _scores(scores)

    def nearest_vectors(self, query: Vector, *, limit: int, exact: bool = True) -> Scores | None:
        """See RecordEngine."""
        return None

    def vector_usage(self) -> VectorUsage:
        """See RecordEngine."""
        with self._commits.lock:
            vectors = [passage.vector for stored in self.state.searchable() for passage in stored.passages]
            return VectorUsage(len(vectors), 0, 0, sum(vector.nbytes for vector in vectors))

    def save_snapshot(self) -> datetime | None:
        """See RecordEngine."""
        return None

    def search_keywords(self, query: str, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        with self._commits.lock:
            stored = {
                passage_id: words
                for each in (self.state.searchable() if self._collection.words else ())
                for passage_id, words in zip(each.passage_ids, each.words, strict=True)
            }
        return _scores(keywords.search(query, stored, None if among is None else set(among.tolist())))

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine."""
        fields = self._collection.related
        if fields is None:
            raise ValueError(f"documents of {self._collection.name!r} have no related fields")
        with self._commits.lock:
            return RelatedDocuments.of(related_documents(self.state.searchable(), fields, query))

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        with self._commits.lock:
            found = {
                passage_id: PassageLocation(passage_id, stored.document.doc_id, i, passage.start, passage.end)
                for stored in self.state.searchable()
                for i, (passage_id, passage) in enumerate(zip(stored.passage_ids, stored.passages, strict=True))
            }
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """See RecordEngine."""
        with self._commits.lock:
            return {
                passage_id: excerpt(stored, passage_id, passage, metadata_keys)
                for stored in self.state.searchable()
                for passage_id, passage in zip(stored.passage_ids, stored.passages, strict=True)
                if passage_id in passage_ids
            }

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """See RecordEngine."""
        with self._commits.lock:
            changes = [DocumentChange(changed, doc_id, None) for doc_id, changed in self.state.deletions.items()]
            changes += [change(stored) for stored in self.state.documents.values()]
        changes.sort(key=lambda change: change.sequence)
        start = bisect_right(changes, sequence, key=lambda change: change.sequence)
        return changes[start : start + limit]

    def count_changes_after(self, sequence: int) -> int:
        """See RecordEngine."""
        with self._commits.lock:
            return len(self.changes_after(sequence, limit=len(self.state.documents) + len(self.state.deletions)))

    def index_position(self, index: str) -> IndexPosition:
        """See RecordEngine."""
        with self._commits.lock:
            return self.state.positions.get(index, IndexPosition())

    def stats(self) -> RecordStats:
        """See RecordEngine."""
        with self._commits.lock:
            passage_count = sum(len(stored.passage_ids) for stored in self.state.documents.values())
            return RecordStats(len(self.state.documents), passage_count, self.state.sequence)

    def index_removals(self, index: str) -> int:
        """See RecordEngine."""
        with self._commits.lock:
            return self.state.removed.get(index, 0)

    def removals_pending(self) -> int:
        """See RecordEngine: there are no files."""
        return 0

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See RecordEngine."""
        return self._commits.subscribe(on_commit)

    def failure(self) -> str | None:
        """See RecordEngine."""
        return None

    def recover(self) -> None:
        """See RecordEngine."""


def _scores(scores: dict[int, float]) -> Scores:
    ids = sorted(scores)
    return Scores(np.array(ids, np.int64), np.array([scores[passage_id] for passage_id in ids], np.float64))
