"""One collection as it was at a moment; see RecordEngine."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, NoReturn, Unpack

import numpy as np

from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.domain.filters import AllOf, Condition, Operator, RecordFilter
from mnemon_server.domain.history import Version
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.engines.past.passages import FIRST_ID, PastPassages
from mnemon_server.engines.past.versions import PastVersions
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import (
    EXACT_BEST,
    Excerpt,
    FieldsOnly,
    Fits,
    KeywordScores,
    Parts,
    PassageIds,
    PassageLocation,
    Scores,
    Vector,
)

_VISIBLE = RecordFilter()
_ANY = RecordFilter(hidden=None)


class _Row(NamedTuple):
    """A record of that moment: a version, or one that has not changed since."""

    position: int
    doc_id: str
    version: Version | None


def _refuse(*_: object, **__: object) -> NoReturn:
    """Replaces every method that is meaningless for the past."""
    raise InvalidOperationError("this is not possible as of a moment in the past")


class PastRecords:
    """See RecordEngine. Nothing can be written. Belongs to one call, for which it remembers what it has read.

    It reads the present before it reads versions, so that a change in between hides nothing.
    """

    guard = None

    def __init__(self, records: RecordEngine, versions: RecordEngine, collection: Collection, at: datetime) -> None:
        """`versions` is the collection VERSIONS; both may be a part that a caller sees."""
        self._records = records
        self._at = at
        self._past = PastVersions(versions, collection, at)
        self._has_key = versions.has_metadata_key
        self._passages = PastPassages(records.heads)
        self.heads, self.vector_usage, self.failure = records.heads, records.vector_usage, records.failure
        """See RecordEngine."""
        self.stats = records.stats
        """See RecordEngine. The present, which is close to it."""

    # Documents

    def get_documents(self, doc_ids: Sequence[str], **parts: Unpack[Parts]) -> list[Document | None]:
        """See RecordEngine."""
        named = Condition("id", Operator.IN, tuple(dict.fromkeys(doc_ids)))
        where = self._unchanged(replace(_ANY, expression=named))
        rows = self._records.list_documents(where, limit=len(doc_ids), fields_only=True) if doc_ids else []
        present = {document.doc_id for _, document in rows}
        past = self._past.of([doc_id for doc_id in doc_ids if doc_id not in present])
        known = present | past.keys()
        wanted = [_Row(0, doc_id, past.get(doc_id)) for doc_id in dict.fromkeys(doc_ids) if doc_id in known]
        read = self._read(wanted, **parts)
        return [read.get(doc_id) for doc_id in doc_ids]

    def get_small_document(self, doc_id: str, *, fields_only: FieldsOnly = False) -> Document | None:
        """See RecordEngine."""
        # `get_documents` tells whether it existed.
        return None

    def list_documents(
        self,
        where: RecordFilter,
        *,
        after: int = 0,
        limit: int,
        skip: int = 0,
        descending: bool = False,
        **parts: Unpack[Parts],
    ) -> list[tuple[int, Document]]:
        """See RecordEngine. A page may be longer by records that have the same position, which an import may give."""
        rows = self._rows(where, after=after, limit=limit, skip=skip, descending=descending)
        read = self._read(rows, **parts)
        found = []
        for row in rows:
            document = read.get(row.doc_id)
            if document is None:
                break
            found.append((row.position, document))
        return found

    def _rows(self, where: RecordFilter, *, after: int, limit: int, skip: int, descending: bool) -> list[_Row]:
        present = self._records.list_documents(
            self._unchanged(where), after=after, limit=skip + limit, descending=descending, fields_only=True
        )
        sign = -1 if descending else 1
        rows = {document.doc_id: _Row(position, document.doc_id, None) for position, document in present}
        for each in self._past.matching(where):
            if not after or sign * each.position > sign * after:
                rows[each.document.doc_id] = _Row(each.position, each.document.doc_id, each)
        ordered = sorted(rows.values(), key=lambda row: (sign * row.position, row.doc_id))
        end = skip + limit
        while 0 < end < len(ordered) and ordered[end].position == ordered[end - 1].position:
            end += 1
        return ordered[skip:end]

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        return self._records.count_documents(self._unchanged(where)) + len(self._past.matching(where))

    def has_metadata_key(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """See RecordEngine. Asks about all times."""
        return self._records.has_metadata_key(key, like=like) or self._has_key(key, like=like)

    def _read(
        self,
        rows: Sequence[_Row],
        *,
        vectors: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> dict[str, Document]:
        """The documents of these rows by id, in their order, up to the first that does not fit."""
        found: dict[str, Document] = {}
        is_full = False

        def asked(doc_id: str, size: int) -> bool:
            nonlocal is_full
            is_full = is_full or (fits is not None and not fits(doc_id, size))
            return not is_full

        waiting: list[str] = []

        def read_present() -> None:
            documents = self._records.get_documents(waiting, vectors=vectors, fields_only=fields_only, fits=asked)
            found.update({document.doc_id: document for document in documents if document is not None})
            waiting.clear()

        for row in rows:
            if row.version is None:
                waiting.append(row.doc_id)
                continue
            if waiting:
                read_present()
            document = _part(row.version.document, vectors=vectors, fields_only=fields_only)
            if asked(row.doc_id, _size(document)):
                found[row.doc_id] = document
        if waiting:
            read_present()
        return found

    # Searches

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        present = self._records.match_passages(self._unchanged(where))
        return np.concatenate([present, self._passages.ids_of(self._past.matching(where))])

    def match_few_passages(self, where: RecordFilter, *, limit: int) -> PassageIds | None:
        """See RecordEngine."""
        return self.match_passages(where)

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        matching = self.match_passages(where)
        return passage_ids[np.isin(passage_ids, matching)]

    def scan_vectors(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """See RecordEngine."""
        present, past = self._split(among)
        return Scores.joined(
            [self._records.scan_vectors(query, present, exact=exact), self._passages.scan(query, past)]
        )

    def nearest_vectors(self, query: Vector, *, limit: int, exact: bool = True) -> Scores | None:
        """See RecordEngine."""
        return None

    def search_keywords(self, query: str, among: PassageIds | None = None) -> KeywordScores:
        """See RecordEngine."""
        present, past = self._split(among)
        found = self._records.search_keywords(query, present)
        return Scores.joined([Scores(found.passage_ids, found.scores), self._passages.search(query, past)])

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        present = [passage_id for passage_id in passage_ids if passage_id < FIRST_ID]
        found = {place.passage_id: place for place in self._records.locate_passages(present)}
        places = (found.get(each) or self._passages.locate(each) for each in passage_ids)
        return [place for place in places if place is not None]

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """See RecordEngine."""
        present = [passage_id for passage_id in passage_ids if passage_id < FIRST_ID]
        found = self._records.read_excerpts(present, metadata_keys=metadata_keys)
        for passage_id in passage_ids:
            if self._passages.locate(passage_id) is not None:
                found[passage_id] = self._passages.excerpt(passage_id, metadata_keys)
        return found

    def _unchanged(self, where: RecordFilter) -> RecordFilter:
        """The filter for the records that match, and have not changed since."""
        unchanged = Condition("update_time", Operator.LTE, (self._at,))
        parts = (unchanged,) if where.expression is None else (unchanged, where.expression)
        return replace(where, expression=AllOf(parts))

    def _split(self, among: PassageIds | None) -> tuple[PassageIds, PassageIds]:
        """The current passages, and the passages of versions."""
        ids = self.match_passages(_VISIBLE) if among is None else among
        is_stored = ids < FIRST_ID
        return ids[is_stored], ids[~is_stored]

    # Not possible as of a moment in the past

    def sourced(self, scope: Scope) -> Scope:
        """See RecordEngine."""
        return scope

    def may_change(self, scope: Scope) -> bool:
        """See RecordEngine."""
        return False

    put_document = put_documents = update_document = delete_document = delete_documents = _refuse
    distinct_texts = related_documents = save_snapshot = changes_after = count_changes_after = _refuse
    index_position = set_index_position = index_removals = removals_pending = subscribe = recover = _refuse


def _part(document: Document, *, vectors: bool, fields_only: FieldsOnly) -> Document:
    """The parts of a document that a read asks for."""
    passages = document.passages if vectors else tuple(replace(each, embedding=None) for each in document.passages)
    if not fields_only:
        return replace(document, passages=passages, embedding=document.embedding if vectors else None)
    return replace(document, content="", metadata={}, passages=passages if vectors else (), embedding=None)


def _size(document: Document) -> int:
    """About how many bytes a document has."""
    texts = (value for value in document.fields.values() if isinstance(value, str))
    numbers = sum(len(passage.embedding or ()) for passage in document.passages)
    return len(document.content.encode("utf-8", "surrogatepass")) + sum(map(len, texts)) + 4 * numbers
