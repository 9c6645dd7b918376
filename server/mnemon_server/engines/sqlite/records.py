"""One collection of a vault on SQLite."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TypeVar, Unpack

import apsw

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.history import Author, current_author
from mnemon_server.domain.records import BulkDeleteReceipt, MetadataValue, RequestKey, Scope, WriteReceipt
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import (
    EXACT_BEST,
    EXCERPT_CHARACTERS_MAX,
    NO_SCORES,
    OPENING_CHARACTERS_MAX,
    DocumentChange,
    DocumentUpdate,
    DocumentWrite,
    Excerpt,
    FieldsOnly,
    IndexPosition,
    KeywordScores,
    Page,
    Parts,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
    VectorUsage,
    Visible,
)
from mnemon_server.engines.sqlite import journal
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.document_writes import Effects
from mnemon_server.engines.sqlite.filters.plan import filter_passages, matching_few_passages, matching_passages
from mnemon_server.engines.sqlite.mutations import Mutations
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.ranking.heads import Heads
from mnemon_server.ranking.settings import RankingSettings

# Reads parts of documents within SQLite, so that a whole document need not be loaded for a few words.


# ruff: noqa: S608 - table and column names are constants; all input is bound

_TEXT_OF_KEY = (
    "CASE json_type(d.metadata, ?) WHEN 'text'"
    f" THEN substr(json_extract(d.metadata, ?), 1, {OPENING_CHARACTERS_MAX}) END"
)


def read_excerpts(
    connection: apsw.Connection, tables: Tables, passage_ids: Sequence[int], metadata_keys: Sequence[str]
) -> dict[int, Excerpt]:
    """See RecordEngine.read_excerpts."""
    columns = "".join(f", {_TEXT_OF_KEY}" for _ in metadata_keys)
    paths = [path for key in metadata_keys for path in [f'$."{key}"'] * 2]
    rows = fetch(
        connection,
        f"SELECT p.id, substr(d.content, p.start + 1, min(p.stop - p.start, {EXCERPT_CHARACTERS_MAX})),"
        f" substr(d.content, 1, {OPENING_CHARACTERS_MAX}){columns} FROM carray(?) AS wanted"
        f" CROSS JOIN {tables.passages} AS p ON p.id = wanted.value"
        f" CROSS JOIN {tables.documents} AS d ON d.position = p.position",
        (*paths, id_array(passage_ids)),
    )
    return {
        passage_id: Excerpt(
            passage_id,
            text,
            opening,
            {key: value for key, value in zip(metadata_keys, values, strict=True) if value is not None},
        )
        for passage_id, text, opening, *values in rows
    }


# ruff: noqa: S608 - table and column names are constants; all input is bound

R = TypeVar("R", WriteReceipt, BulkDeleteReceipt)

Subscribe = Callable[[Callable[[], None]], Callable[[], None]]


class RecordReads:
    """The reads that a collection and one inside a transaction share; see DocumentReader."""

    def __init__(self, mutations: Mutations, lend: Callable[[], AbstractContextManager[apsw.Connection]]) -> None:
        """`lend` lends the connection on which to read."""
        self._mutations, self._lend = mutations, lend
        self._table = mutations.table

    def get_documents(self, doc_ids: Sequence[str], **parts: Unpack[Parts]) -> list[Document | None]:
        """See RecordEngine."""
        with self._lend() as connection:
            return self._table.by_ids(connection, doc_ids, **parts)

    def list_documents(self, where: RecordFilter, **page: Unpack[Page]) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        with self._lend() as connection:
            return self._table.page(connection, where, **page)

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        with self._lend() as connection:
            return self._table.count(connection, where)

    def sourced(self, scope: Scope) -> Scope:
        """See RecordEngine."""
        return scope

    def may_change(self, scope: Scope) -> bool:
        """See RecordEngine."""
        return True

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine."""
        with self._lend() as connection:
            return self._mutations.related(connection, query)


class SQLiteCollection(RecordReads):
    """See RecordEngine. Belongs to a vault, which opens and closes it."""

    guard = None

    def __init__(
        self, mutations: Mutations, connections: Connections, subscribe: Subscribe, *, ranking: RankingSettings
    ) -> None:
        super().__init__(mutations, connections.lend)
        self._tables, self._writes = self._table.tables, mutations.writes
        self._connections = connections
        self.subscribe, self.failure, self.recover = subscribe, connections.failure, connections.recover
        """See RecordEngine."""
        self._ranking = ranking

    @property
    def heads(self) -> Heads:
        """See RecordEngine."""
        return self._mutations.heads

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._connections.submit(partial(self._put, write=write))

    def put_documents(self, writes: Sequence[DocumentWrite]) -> Future[list[WriteReceipt | Exception]]:
        """See RecordEngine."""
        return self._connections.submit(
            partial(self._put_each, writes=writes), [partial(self._put, write=write) for write in writes]
        )

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._once(update.request, WriteReceipt, partial(self._writes.update, update=update))

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
        delete = partial(
            self._writes.delete, doc_id=doc_id, change=change, expected_revision=expected_revision, visible=visible
        )
        return self._once(request, WriteReceipt, delete, current_author.get())

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        delete = partial(self._writes.delete_matching, where=where, change=change)
        return self._once(request, BulkDeleteReceipt, delete, current_author.get())

    def _once(
        self,
        request: RequestKey | None,
        kind: type[R],
        perform: Callable[[apsw.Connection, Effects], R],
        author: Author | None = None,
    ) -> Future[R]:
        return self._connections.submit(
            lambda connection: self._mutations.once(connection, request, kind, perform, author)
        )

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """See RecordEngine."""
        return self._connections.submit(
            lambda connection: self._mutations.set_index_position(connection, index, position)
        )

    # The digests are computed on the writer's thread, while the caller's event loop serves other calls.

    def _put(self, connection: apsw.Connection, write: DocumentWrite) -> WriteReceipt:
        return self._mutations.put(connection, write, document_digest(write.document))

    def _put_each(self, connection: apsw.Connection, writes: Sequence[DocumentWrite]) -> list[WriteReceipt | Exception]:
        return self._mutations.put_each(connection, writes, [document_digest(write.document) for write in writes])

    # Reads

    def get_small_document(self, doc_id: str, *, fields_only: FieldsOnly = False) -> Document | None:
        """See RecordEngine."""
        rows = self._connections.fetch_at_once(self._table.small(fields_only), (doc_id,))
        if not rows:
            return None
        try:
            return self._table.document(rows[0])
        except UNREADABLE:
            return None

    def distinct_texts(
        self, field: str, *, after: str = "", within: tuple[str, str] | None = None, limit: int
    ) -> list[str]:
        """See RecordEngine. Steps through the index of the field: one look-up per text, not per document."""
        if field not in self._tables.indexed_texts:
            raise ValueError(f"{field!r} is not an indexed text field")
        # The index excludes empty texts, so SQLite uses it only if the condition excludes them too.
        column = f'd."{field}"'
        ends = f" AND {column} < ?2" if within else ""
        following = (
            f"(SELECT {column} FROM {self._tables.documents} AS d WHERE {column} {{}} AND {column} <> ''{ends}"
            f" AND d.hidden = 0 ORDER BY {column} LIMIT 1)"
        )
        first, end = within or ("", "")
        start, next_one = following.format(">= ?1" if first > after else "> ?1"), following.format("> step.text")
        statement = (
            f"WITH RECURSIVE step (text) AS (SELECT {start} UNION ALL SELECT {next_one} FROM step"
            " WHERE step.text IS NOT NULL) SELECT text FROM step WHERE text IS NOT NULL LIMIT ?3"
        )
        with self._lend() as connection:
            return [row[0] for row in fetch(connection, statement, (max(first, after), end, limit))]

    def has_metadata_key(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """See RecordEngine."""
        with self._lend() as connection:
            return self._table.has_metadata_key(connection, key, like)

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._lend() as connection:
            return matching_passages(connection, self._tables, self._mutations.passages, where)

    def match_few_passages(self, where: RecordFilter, *, limit: int) -> PassageIds | None:
        """See RecordEngine."""
        with self._lend() as connection:
            return matching_few_passages(connection, self._tables, self._mutations.passages, where, limit)

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._lend() as connection:
            return filter_passages(connection, self._tables, passage_ids, where)

    def scan_vectors(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """See RecordEngine."""
        return self._mutations.vectors.scan(query, among, exact=exact)

    def nearest_vectors(self, query: Vector, *, limit: int, exact: bool = True) -> Scores | None:
        """See RecordEngine."""
        return self._mutations.vectors.nearest(query, limit, exact=exact)

    def vector_usage(self) -> VectorUsage:
        """See RecordEngine."""
        return self._mutations.vectors.usage()

    def save_snapshot(self) -> datetime | None:
        """See RecordEngine."""
        return self._mutations.vectors.save_snapshot()

    def search_keywords(self, query: str, among: PassageIds | None = None) -> KeywordScores:
        """See RecordEngine."""
        if not self._tables.collection.words:
            return NO_SCORES
        with self._lend() as connection:
            return self._tables.keywords.search(connection, query, among, context_weight=self._ranking.context_weight)

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        statement = (
            f"SELECT p.id, d.id, p.ordinal, p.start, p.stop FROM carray(?) AS wanted CROSS JOIN {self._tables.passages}"
            f" AS p ON p.id = wanted.value CROSS JOIN {self._tables.documents} AS d ON d.position = p.position"
            " WHERE d.hidden = 0"
        )
        with self._lend() as connection:
            rows = fetch(connection, statement, (id_array(passage_ids),))
        found = {row[0]: PassageLocation(*row) for row in rows}
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """See RecordEngine."""
        try:
            with self._lend() as connection:
                return read_excerpts(connection, self._tables, passage_ids, metadata_keys)
        except (UnicodeDecodeError, apsw.CorruptError, apsw.SQLError):
            # Reading whole documents raises an error that names the damaged one.
            self.get_documents([place.doc_id for place in self.locate_passages(passage_ids)])
            raise

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """See RecordEngine."""
        with self._lend() as connection:
            return journal.after(connection, self._table, sequence, limit)

    def count_changes_after(self, sequence: int) -> int:
        """See RecordEngine."""
        with self._lend() as connection:
            return journal.count_after(connection, self._tables, sequence)

    def index_position(self, index: str) -> IndexPosition:
        """See RecordEngine."""
        with self._lend() as connection:
            return journal.position(connection, self._tables, index)

    def stats(self) -> RecordStats:
        """See RecordEngine."""
        return self._mutations.stats

    # Lifecycle

    def index_removals(self, index: str) -> int:
        """See RecordEngine."""
        with self._lend() as connection:
            return journal.removed(connection, self._table.tables, index)

    def removals_pending(self) -> int:
        """See RecordEngine."""
        return self._connections.removals.records
