"""A collection of which a caller sees only some records."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple, NoReturn, Unpack

import numpy as np

from mnemon_server.domain.access.bounds import Bounds, read_only
from mnemon_server.domain.access.shares import covers, narrowed
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import FACTS, RULES, VERSIONS, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import PermissionDeniedError
from mnemon_server.domain.filters import METADATA_PREFIX, AllOf, Condition, Expression, Operator, RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, MetadataValue, RequestKey, Scope, WriteReceipt, value_type
from mnemon_server.engines.bound.guard import BoundGuard
from mnemon_server.engines.bound.writing import write_own
from mnemon_server.engines.promises.records import DocumentReader, RecordEngine
from mnemon_server.engines.promises.related import NONE_RELATED, RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import (
    EXACT_BEST,
    DocumentUpdate,
    DocumentWrite,
    Excerpt,
    FieldsOnly,
    KeywordScores,
    Page,
    Parts,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
)
from mnemon_server.ranking.heads import Heads

_EVERYTHING = RecordFilter()
_HIDDEN_TOO = RecordFilter(hidden=None)
_STEP = 256


def refused() -> PermissionDeniedError:
    """The error for what concerns the whole tenant."""
    return PermissionDeniedError("this concerns the whole tenant; your credential is bound to users or namespaces")


def refuse(*_: object, **__: object) -> NoReturn:
    """Replaces every method that concerns the whole tenant. Raises PermissionDeniedError."""
    raise refused()


class Boundary:
    """The bounds within one collection."""

    def __init__(self, collection: Collection, bounds: Bounds) -> None:
        self._collection = collection
        self._bounds = bounds

    def where(self, where: RecordFilter) -> RecordFilter:
        return self._writable(where).restricted(self._collection, where)

    def _writable(self, where: RecordFilter) -> Bounds:
        """The bounds for a filter. Programs that tidy up their own records name no user, and must not delete shared
        records with them.

        Raises PermissionDeniedError if it names a namespace that is shared for reading only.
        """
        if not where.is_writing or where.scope.user:
            return self._bounds
        named = self._bounds.sharing_of(where.namespace) if where.namespace else None
        if named is None:
            return self._bounds.unshared
        if not named.may_write:
            raise read_only()
        return self._bounds

    def spans(self, field: str) -> list[tuple[str, str]] | None:
        """The ranges that a text field of the caller's documents has; None if that is any text.

        Raises PermissionDeniedError if a field does not tell whose a document is.
        """
        if self._collection == FACTS and field == "namespace":
            return self._bounds.namespace_spans
        if self._collection == RULES:
            return None
        raise refused()

    def related(self, records: DocumentReader, query: RelatedQuery, *, writing: bool = False) -> RelatedDocuments:
        """The related documents that exist for the caller, or that the caller may write as well."""
        scope = Scope(query.user, query.household, query.persona)
        scopes = self._bounds.scopes(writing=writing)
        if scopes is not None and all(narrowed(each, scope) is None for each in scopes):
            return NONE_RELATED
        is_whole = scopes is None or any(covers(each, scope) for each in scopes)
        if is_whole and not self._bounds.hidden:
            return records.related_documents(query)
        found = records.related_documents(query)
        kept: set[str] = set()
        for start in range(0, len(found), _STEP):
            named = Condition("id", Operator.IN, tuple(found.doc_ids[start : start + _STEP]))
            where = self._bounds.restricted(self._collection, RecordFilter(expression=named, is_writing=writing))
            kept.update(document.doc_id for _, document in records.list_documents(where, limit=_STEP, fields_only=True))
        return found.among(kept)

    @property
    def leaves_out_quarantine(self) -> bool:
        """Whether the quarantine is all that hides records from the caller."""
        return bool(self._bounds.hidden) and not self._bounds.is_bound

    @property
    def reads_origins(self) -> bool:
        """Whether a document's visibility depends on others: it may be derived from hidden ones."""
        return bool(self._bounds.hidden)

    def admits(self, document: Document) -> bool:
        return self._bounds.admits(self._collection, document)

    def admitted(self, records: DocumentReader, doc_ids: Sequence[str]) -> set[str]:
        """The documents with these ids that exist for the caller."""
        named = Condition("id", Operator.IN, tuple(dict.fromkeys(doc_ids)))
        where = self.where(replace(_HIDDEN_TOO, expression=named))
        rows = records.list_documents(where, limit=len(doc_ids), fields_only=True) if doc_ids else []
        return {document.doc_id for _, document in rows}

    def owned(self, document: Document) -> Document:
        """A document to store, with the scope that it gets."""
        self.check_writable()
        scope = self._bounds.sourced(document.scope)
        if self._collection == FACTS:
            self._bounds.check_namespace(str(document.fields["namespace"]))
            return replace(document, scope=scope)
        return replace(document, scope=self._bounds.owned(scope))

    def changeable(self, document: Document) -> bool:
        """Whether a document exists for the caller. Raises PermissionDeniedError if the caller may only read it."""
        if not self.admits(document):
            return False
        if not self._bounds.writable(self._collection, document):
            raise read_only()
        self._bounds.check_change(document.scope)
        return True

    def to_remove(self, records: DocumentReader, where: RecordFilter) -> RecordFilter:
        """The filter for documents to remove. Raises PermissionDeniedError if the caller may not write one of them."""
        self.check_writable()
        writable, foreign = self._writable(where), self._bounds.foreign()
        own = writable.restricted(self._collection, replace(where, is_writing=True))
        selects_all = not where.is_writing and self._bounds.reads_more
        if selects_all and records.count_documents(self.where(where)) > records.count_documents(own):
            raise read_only()
        if foreign is not None:
            parts = (foreign,) if own.expression is None else (foreign, own.expression)
            for _, document in records.list_documents(replace(own, expression=AllOf(parts)), limit=1, fields_only=True):
                self._bounds.check_change(document.scope)
        return own

    def check_writable(self) -> None:
        """Raises PermissionDeniedError if no caller with bounds may write to the collection."""
        if self._collection in (RULES, VERSIONS):
            raise refused()

    def replaceable(self, document: Document, scope: Scope) -> bool:
        """Like `changeable`, for a replacement with this scope. A shared record stays its owner's."""
        if not self.changeable(document):
            return False
        if self._collection != FACTS:
            self._bounds.check_owner(document.scope, scope)
        return True

    def put(self, write: DocumentWrite) -> DocumentWrite:
        document = self.owned(write.document)
        return replace(write, document=document, visible=lambda stored: self.replaceable(stored, document.scope))

    def update(self, update: DocumentUpdate) -> DocumentUpdate:
        def updated(stored: Document) -> Document:
            document = self.owned(update.update(stored))
            self.replaceable(stored, document.scope)
            return document

        return replace(update, update=updated, visible=self.changeable)


class _Shown(NamedTuple):
    """All records that exist for a caller."""

    stats: RecordStats
    passages: PassageIds


class BoundRecords:
    """See RecordEngine. Whatever concerns the whole collection raises PermissionDeniedError.

    Searches compare all of the caller's passages, so no other passage has an influence on what they find.
    """

    def __init__(
        self,
        records: RecordEngine,
        collection: Collection,
        bounds: Bounds,
        owner: str,
        *,
        is_answered: Callable[[str], bool],
    ) -> None:
        """`owner` marks the caller's request ids, see RequestKey; `is_answered` says whether one has an answer."""
        self._records = records
        self._boundary = boundary = Boundary(collection, bounds)
        self._bounds, self._owner = bounds, owner
        self._shown: _Shown | None = None
        self.sourced, self.may_change, self.failure = bounds.sourced, bounds.may_change, records.failure
        """See RecordEngine."""
        self.guard = BoundGuard(records, owned=boundary.put, is_answered=is_answered)

    @property
    def heads(self) -> Heads:
        """See RecordEngine."""
        return self._records.heads

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._records.put_document(self._put(write))

    def put_documents(self, writes: Sequence[DocumentWrite]) -> Future[list[WriteReceipt | Exception]]:
        """See RecordEngine."""
        return write_own(writes, self._put, self._records.put_documents)

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._records.update_document(
            replace(self._boundary.update(update), request=self._request(update.request))
        )

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
        visible: Callable[[Document], bool] | None = None,
    ) -> Future[WriteReceipt]:
        """See RecordEngine."""
        self._boundary.check_writable()
        return self._records.delete_document(
            doc_id,
            request=self._request(request),
            expected_revision=expected_revision,
            change=change,
            visible=both(self._boundary.changeable, visible),
        )

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        own = self._boundary.to_remove(self._records, where)
        return self._records.delete_documents(own, request=self._request(request), change=change)

    def _put(self, write: DocumentWrite) -> DocumentWrite:
        return replace(self._boundary.put(write), request=self._request(write.request))

    def _request(self, request: RequestKey | None) -> RequestKey | None:
        return self._bounds.request(request, self._owner) if request else None

    # Reads

    def get_documents(self, doc_ids: Sequence[str], **parts: Unpack[Parts]) -> list[Document | None]:
        """See RecordEngine."""
        # Before `fits` hears of them: what is not read must take no room.
        seen = self._boundary.admitted(self._records, doc_ids)
        found = self._records.get_documents([doc_id for doc_id in doc_ids if doc_id in seen], **parts)
        by_id = {document.doc_id: self._as_shown(document) for document in found if document is not None}
        return [by_id.get(doc_id) for doc_id in doc_ids]

    def get_small_document(self, doc_id: str, *, fields_only: FieldsOnly = False) -> Document | None:
        """See RecordEngine."""
        # `get_documents` tells whether it exists for the caller.
        return None

    def list_documents(self, where: RecordFilter, **page: Unpack[Page]) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        rows = self._records.list_documents(self._boundary.where(where), **page)
        return [(position, self._as_shown(document)) for position, document in rows] if self._bounds.hidden else rows

    def _as_shown(self, document: Document) -> Document:
        """The document as the caller sees it."""
        if not self._bounds.hidden or not document.fields.get("versions"):
            return document
        # The earlier values inside a fact lack their origins, which VERSIONS has.
        return replace(document, fields={**document.fields, "versions": ""})

    def distinct_texts(
        self, field: str, *, after: str = "", within: tuple[str, str] | None = None, limit: int
    ) -> list[str]:
        """See RecordEngine."""
        if not self._bounds.hidden:
            return self._distinct(field, after, within, limit)
        shown: list[str] = []
        while len(shown) < limit and (texts := self._distinct(field, after, within, _STEP)):
            shown += [text for text in texts if self._shows(field, text)]
            after = texts[-1]
        return shown[:limit]

    def _distinct(self, field: str, after: str, within: tuple[str, str] | None, limit: int) -> list[str]:
        spans = self._boundary.spans(field)
        if spans is None:
            return self._records.distinct_texts(field, after=after, within=within, limit=limit)
        found: list[str] = []
        for first, end in spans:
            span = (max(first, within[0]), min(end, within[1])) if within else (first, end)
            found += self._records.distinct_texts(field, after=after, within=span, limit=limit - len(found))
        return found

    def _shows(self, field: str, text: str) -> bool:
        """Whether a document with this text exists for the caller."""
        where = replace(_HIDDEN_TOO, expression=Condition(field, Operator.EQ, (text,)))
        return bool(self.list_documents(where, limit=1, fields_only=True))

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        if where.is_writing:
            return self._records.count_documents(self._boundary.to_remove(self._records, where))
        return self._records.count_documents(self._boundary.where(where))

    def has_metadata_key(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """See RecordEngine."""
        where, after = replace(_HIDDEN_TOO, expression=_exists(METADATA_PREFIX + key)), 0
        while rows := self.list_documents(where, after=after, limit=_STEP):
            if like is None or any(value_type(each.metadata[key]) is value_type(like) for _, each in rows):
                return True
            after = rows[-1][0]
        return False

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        if where or not self._boundary.leaves_out_quarantine:
            return self._records.match_passages(self._boundary.where(where))
        return self._all_shown().passages

    def match_few_passages(self, where: RecordFilter, *, limit: int) -> PassageIds | None:
        """See RecordEngine."""
        return self._records.match_few_passages(self._boundary.where(where), limit=limit)

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        return self._records.filter_passages(passage_ids, self._boundary.where(where))

    def scan_vectors(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """See RecordEngine."""
        return self._records.scan_vectors(query, self._own(among), exact=exact)

    def nearest_vectors(self, query: Vector, *, limit: int, exact: bool = True) -> Scores | None:
        """See RecordEngine."""
        return None

    def search_keywords(self, query: str, among: PassageIds | None = None) -> KeywordScores:
        """See RecordEngine."""
        return self._records.search_keywords(query, self._own(among))

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine."""
        return self._boundary.related(self._records, query)

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        return self._records.locate_passages(self._own(np.array(passage_ids, np.int64)).tolist())

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """See RecordEngine."""
        own = self._own(np.array(passage_ids, np.int64)).tolist()
        return self._records.read_excerpts(own, metadata_keys=metadata_keys)

    def stats(self) -> RecordStats:
        """See RecordEngine. The sequence number is that of the collection."""
        if self._boundary.leaves_out_quarantine:
            return self._all_shown().stats
        documents = self.count_documents(_HIDDEN_TOO)
        return RecordStats(documents, len(self.match_passages(_EVERYTHING)), self._records.stats().sequence)

    def _all_shown(self) -> _Shown:
        """Everything outside the quarantine, kept until the next write. Documents read through it are checked again."""
        if self._shown is None or self._shown.stats.sequence != self._records.stats().sequence:
            sequence = self._records.stats().sequence
            passages = self._records.match_passages(self._boundary.where(_EVERYTHING))
            self._shown = _Shown(RecordStats(self.count_documents(_HIDDEN_TOO), len(passages), sequence), passages)
        return self._shown

    def _own(self, among: PassageIds | None) -> PassageIds:
        """The passages that exist for the caller; all of them if `among` is None."""
        if among is None:
            return self.match_passages(_EVERYTHING)
        return self.filter_passages(among, _EVERYTHING)

    # Refused: these concern the whole collection

    changes_after = count_changes_after = index_position = set_index_position = index_removals = refuse
    removals_pending = subscribe = recover = save_snapshot = vector_usage = refuse


def _exists(field: str) -> Expression:
    return AllOf((Condition(field, Operator.EXISTS, (True,)),))


def both(one: Callable[[Document], bool], other: Callable[[Document], bool] | None) -> Callable[[Document], bool]:
    """Combines two conditions into one that requires both; None stands for a condition that always holds."""
    return one if other is None else lambda document: one(document) and other(document)
