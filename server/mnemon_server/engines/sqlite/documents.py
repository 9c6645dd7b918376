"""The SQL of a collection's documents. Every method works on a connection within the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import apsw
import numpy as np

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import Collection, FieldType
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.encoding import SCOPE_FIELDS, decode_metadata, encode_metadata, scope_values
from mnemon_server.domain.errors import RecordDamagedError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import INT64_MAX, MetadataValue, Scope
from mnemon_server.engines.promises.values import SMALL_BYTES, FieldsOnly, Fits, PassageInput, RecordStamps, Vector
from mnemon_server.engines.sqlite.filters.metadata_index import metadata_rows, metadata_types
from mnemon_server.engines.sqlite.filters.plan import prepare_filter, prepare_positions
from mnemon_server.engines.sqlite.passage_map import PassageRun
from mnemon_server.engines.sqlite.query import fetch, id_array, insert_rows
from mnemon_server.engines.sqlite.related import RelatedTable
from mnemon_server.engines.sqlite.tables import BLOCK_ID_BITS, DECODERS, ENCODERS, Tables, stored_heads
from mnemon_server.ranking.heads import Heads

# ruff: noqa: S608 - table and column names are constants; all input is bound

Placed = Sequence[tuple[int, Document, Sequence[PassageInput]]]
VECTOR_TYPE = np.dtype("<f4")
NORM_MAX = 1.001
"""Maximum length of an intact vector, with a margin for rounding."""

_SCOPE = ", ".join(SCOPE_FIELDS)
_CONTENT_COLUMNS = f"id, content, metadata, digest, {_SCOPE}, hidden"
_SCOPE_OF_D = ", ".join(f"d.{name}" for name in SCOPE_FIELDS)
_CONTENT_COUNT = _AFTER_SCOPE = 5 + len(SCOPE_FIELDS)
_FIRST_FIELD = _AFTER_SCOPE + 4
_EMPTY = {FieldType.TEXT: "''", FieldType.TEXTS: "'[]'"}
"""Text field types, with the value that stands for a field that is not read."""
_SELECTED = (
    f"d.position, d.sequence, d.id, {{content}}, {_SCOPE_OF_D}, d.revision, d.create_time, d.update_time, d.hidden"
)


class Found(NamedTuple):
    """The parts of a stored document that a write needs. `scope` has the order of SCOPE_FIELDS."""

    position: int
    revision: int
    sequence: int
    digest: bytes
    hidden: int
    scope: tuple[str, ...]


class NewDocument(NamedTuple):
    """A document that does not exist so far. `time` is in microseconds."""

    document: Document
    passages: Sequence[PassageInput]
    digest: bytes
    sequence: int
    time: int


@dataclass(slots=True)
class PassageChanges:
    """Passages that were added to the searches, with their vectors, and those that were removed."""

    added: list[int] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    runs: list[PassageRun] = field(default_factory=list)
    """The passages of each changed document, in the order of the changes."""

    def add(self, later: "PassageChanges") -> None:
        """Adds later changes."""
        self.added += later.added
        self.vectors += later.vectors
        self.removed += later.removed
        self.runs += later.runs


class DocumentTable:
    """The documents of one collection. Statements are built once, so that SQLite can reuse the prepared ones."""

    def __init__(self, collection: Collection) -> None:
        self.tables = Tables(collection)
        self.related = RelatedTable(self.tables, collection.related) if collection.related else None
        self._fields = collection.fields
        # Looked up once: an enum's hash is written in Python, and every document has several fields.
        self._decoders = [(item.name, DECODERS[item.type]) for item in self._fields]
        self._encoders = [(item.name, ENCODERS[item.type]) for item in self._fields]
        tables, own = self.tables, self.tables.field_columns
        columns = ", ".join((_CONTENT_COLUMNS, *own))
        self._find = (
            f"SELECT position, revision, sequence, digest, hidden, {_SCOPE} FROM {tables.documents} WHERE id = ?"
        )
        self._existing = f"SELECT id FROM {tables.documents} WHERE id IN (SELECT value FROM carray(?))"
        self._insert = (
            f"INSERT INTO {tables.documents} (position, {columns}, revision, sequence, create_time, update_time) VALUES"
        )
        self._update = (
            f"UPDATE {tables.documents} SET ({columns}) = ({', '.join('?' * (_CONTENT_COUNT + len(own)))}),"
            " revision = revision + ?, sequence = ?, update_time = coalesce(?, update_time) WHERE position = ?"
        )
        self._stamp = f"UPDATE {tables.documents} SET create_time = ?, update_time = ?, revision = ? WHERE id = ?"
        self._insert_passage = f"INSERT INTO {tables.passages} (id, position, ordinal, start, stop, vector) VALUES"
        self._insert_metadata = f"INSERT OR IGNORE INTO {tables.metadata} (key, type, value, position) VALUES"
        self._select, self.small = cache(self._new_select), cache(self._new_small)
        sizes = f"{tables.passages} AS p WHERE p.position = d.position"
        self._vectors_size = f"(SELECT coalesce(sum(octet_length(p.vector)), 0) FROM {sizes})"

    def _new_select(self, fields_only: FieldsOnly) -> tuple[str, str]:
        """The columns to select for these parts of a document, and the expression for their size."""
        left_out = {
            item.name: _EMPTY[item.type]
            for item in self._fields
            if item.type in _EMPTY and not isinstance(fields_only, bool) and item.name not in fields_only
        }
        fields = (left_out.get(item.name, f'd."{item.name}"') for item in self._fields)
        content = "'', '{}'" if fields_only else "d.content, d.metadata"
        columns = ", ".join((_SELECTED.format(content=content), *fields))
        # SQLite gets a text's length from the row header, without reading the text.
        own = (f'"{item.name}"' for item in self._fields if item.type in _EMPTY and item.name not in left_out)
        texts = ("id", *SCOPE_FIELDS, *own, *(() if fields_only else ("content", "metadata")))
        return f"SELECT {columns}", " + ".join(f"octet_length(d.{column})" for column in texts)

    def _new_small(self, fields_only: FieldsOnly) -> str:
        """The statement that selects a document by its id, unless it is large."""
        select, size = self._select(fields_only)
        condition = f"d.id = ? AND {size} <= {SMALL_BYTES}"
        return f"{select} FROM {self.tables.documents} AS d WHERE {condition}"

    # Writing

    def find(self, connection: apsw.Connection, doc_id: str) -> Found | None:
        """The document with this id."""
        try:
            row: Any = connection.execute(self._find, (doc_id,)).fetchone()
        except (UnicodeDecodeError, apsw.CorruptError) as error:
            raise RecordDamagedError(self.tables.collection.name, doc_id) from error
        return _found(row) if row else None

    def existing(self, connection: apsw.Connection, doc_ids: Sequence[str]) -> set[str]:
        """The given ids that belong to a document."""
        if not doc_ids:
            return set()
        try:
            return {row[0] for row in fetch(connection, self._existing, (apsw.carray(tuple(doc_ids)),))}
        except (UnicodeDecodeError, apsw.CorruptError) as error:
            raise RecordDamagedError(self.tables.collection.name) from error

    def insert(self, connection: apsw.Connection, new: Sequence[NewDocument]) -> PassageChanges:
        """Adds documents, in their order."""
        placed = list(enumerate(new, _next_id(connection, self.tables.documents)))
        rows = [
            (position, *self._values(document, encode_metadata(document.metadata), digest), 1, sequence, time, time)
            for position, (document, _, digest, sequence, time) in placed
        ]
        insert_rows(connection, self._insert, rows)
        self.add_metadata(connection, [(position, each.document) for position, each in placed])
        if self.related is not None:
            self.related.insert(connection, [(position, each.document) for position, each in placed])
        return self._add_passages(connection, [(position, each.document, each.passages) for position, each in placed])

    def replace(
        self,
        connection: apsw.Connection,
        found: Found,
        old: Document,
        new: Document,
        passages: Sequence[PassageInput] | None,
        *,
        digest: bytes,
        sequence: int,
        time: int | None,
    ) -> PassageChanges:
        """Replaces a document. `passages` None keeps the stored ones.

        If `time` is None, its revision and its update time stay the same.
        """
        metadata = encode_metadata(new.metadata)
        values = self._values(new, metadata, digest)
        connection.execute(self._update, (*values, int(time is not None), sequence, time, found.position))
        if metadata != encode_metadata(old.metadata):
            self._delete_rows(connection, self.tables.metadata, found.position)
            self.add_metadata(connection, [(found.position, new)])
        if self.related is not None:
            self.related.replace(connection, found.position, old, new)
        is_reworded = not stored_heads(connection).are_equal(old.metadata, new.metadata)
        if passages is None and not new.hidden and (found.hidden or is_reworded):
            passages = self.stored_passages(connection, found.position)
        if passages is not None:
            return self.replace_passages(connection, found.position, old, new, passages)
        if new.hidden and not found.hidden:
            return self._hide_passages(connection, found.position, old)
        return PassageChanges()

    def replace_passages(
        self,
        connection: apsw.Connection,
        position: int,
        old: Document,
        new: Document,
        passages: Sequence[PassageInput],
        heads: Heads | None = None,
    ) -> PassageChanges:
        """Replaces the passages of a document, under new ids. The present ones are of `old`; the new ones get the heads
        of the vault or, while these change, `heads`.
        """
        changes = PassageChanges() if old.hidden else self._hide_passages(connection, position, old)
        self._delete_rows(connection, self.tables.passages, position)
        changes.add(self._add_passages(connection, [(position, new, passages)], heads))
        return changes

    def set_stamps(self, connection: apsw.Connection, doc_id: str, stamps: RecordStamps, revision: int) -> None:
        """Sets the times and the revision of an imported document."""
        times = to_microseconds(stamps.create_time), to_microseconds(stamps.update_time)
        connection.execute(self._stamp, (*times, revision, doc_id))

    def delete(self, connection: apsw.Connection, found: Found) -> PassageChanges:
        """Removes a document."""
        changes = PassageChanges()
        if not found.hidden:
            # The keyword index needs the original words to delete them.
            [(_, _, old)] = self.select(connection, "d.position = ?", (found.position,), vectors=False)
            changes = self._hide_passages(connection, found.position, old)
        if self.related is not None:
            self.related.delete(connection, found.position)
        for table in (self.tables.passages, self.tables.metadata, self.tables.documents):
            self._delete_rows(connection, table, found.position)
        return changes

    def _values(self, document: Document, metadata: str, digest: bytes) -> tuple[Any, ...]:
        return (
            document.doc_id,
            document.content,
            metadata,
            digest,
            *scope_values(document.scope),
            int(document.hidden),
            *(encode(document.fields.get(name)) for name, encode in self._encoders),
        )

    def add_metadata(self, connection: apsw.Connection, placed: Sequence[tuple[int, Document]]) -> None:
        """Adds the metadata of documents, each with its position."""
        rows = [
            (key, *row, position)
            for position, document in placed
            for key, value in document.metadata.items()
            for row in metadata_rows(value)
        ]
        insert_rows(connection, self._insert_metadata, rows)

    def _add_passages(self, connection: apsw.Connection, placed: Placed, heads: Heads | None = None) -> PassageChanges:
        """Adds the passages of documents, each with its position."""
        changes, rows, texts = PassageChanges(), [], {}
        heads = heads or stored_heads(connection)
        passage_id = _next_id(connection, self.tables.passages) - 1
        for position, document, passages in placed:
            if not document.hidden and passages:
                changes.runs.append(PassageRun(position, passage_id + 1, len(passages)))
            for ordinal, (start, end, vector) in enumerate(passages):
                passage_id += 1
                rows.append((passage_id, position, ordinal, start, end, vector.astype(VECTOR_TYPE, copy=False)))
                if not document.hidden:
                    texts[passage_id] = heads.passage(document.metadata, document.content, start, end)
                    changes.vectors.append(vector)
        insert_rows(connection, self._insert_passage, rows)
        changes.added += texts
        if texts and self.tables.collection.words:
            self.tables.keywords.insert(connection, texts)
        return changes

    def _hide_passages(self, connection: apsw.Connection, position: int, old: Document) -> PassageChanges:
        """Removes the passages of a document from the keyword index, which needs their words for that, and the blocks
        that have their rounded vectors.
        """
        statement = f"SELECT id, start, stop FROM {self.tables.passages} WHERE position = ?"
        rows = fetch(connection, statement, (position,))
        heads = stored_heads(connection)
        for passage_id, start, end in rows if self.tables.collection.words else ():
            self.tables.keywords.delete(connection, passage_id, heads.passage(old.metadata, old.content, start, end))
        if rows:
            numbers = sorted({row[0] >> BLOCK_ID_BITS for row in rows})
            connection.execute(self.tables.delete_vector_blocks, (id_array(numbers),))
        return PassageChanges(removed=[row[0] for row in rows], runs=[PassageRun(position)])

    def stored_passages(self, connection: apsw.Connection, position: int) -> list[PassageInput]:
        """The passages of a document, with their vectors."""
        statement = f"SELECT start, stop, vector FROM {self.tables.passages} WHERE position = ? ORDER BY ordinal"
        return [
            PassageInput(start, end, np.frombuffer(vector, VECTOR_TYPE).astype(np.float32))
            for start, end, vector in fetch(connection, statement, (position,))
        ]

    def _delete_rows(self, connection: apsw.Connection, table: str, position: int) -> None:
        connection.execute(f"DELETE FROM {table} WHERE position = ?", (position,))

    # Reading

    def select(
        self,
        connection: apsw.Connection,
        condition: str,
        parameters: Sequence[Any],
        *,
        vectors: bool,
        fields_only: FieldsOnly = False,
    ) -> list[tuple[int, int, Document]]:
        """Position, sequence and document of the rows that a condition on `d` selects. It includes the order and the
        limit.

        Raises:
            RecordDamagedError: one of them cannot be read.
        """
        try:
            return self._read(connection, condition, parameters, vectors=vectors, fields_only=fields_only)
        except (*UNREADABLE, apsw.CorruptError) as error:
            raise self._damage(connection, condition, parameters, vectors=vectors) from error

    def by_ids(
        self,
        connection: apsw.Connection,
        doc_ids: Sequence[str],
        *,
        vectors: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> list[Document | None]:
        """See RecordEngine.get_documents."""
        wanted = list(dict.fromkeys(doc_ids))
        marks = ", ".join("?" * len(wanted))
        if fits is not None:
            rows = self._sizes(connection, f"d.id IN ({marks})", wanted, vectors=vectors, fields_only=fields_only)
            sizes = {doc_id: size for _, doc_id, size in rows}
            wanted = [doc_id for doc_id in wanted if doc_id in sizes and fits(doc_id, sizes[doc_id])]
            marks = ", ".join("?" * len(wanted))
        read = self.select(connection, f"d.id IN ({marks})", wanted, vectors=vectors, fields_only=fields_only)
        found = {document.doc_id: document for _, _, document in read}
        return [found.get(doc_id) for doc_id in doc_ids]

    def page(
        self,
        connection: apsw.Connection,
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
        """See RecordEngine.list_documents."""
        condition, parameters = prepare_filter(connection, self.tables, where, by_position=True)
        if descending:
            behind, after = "d.position < ? ORDER BY d.position DESC", after or INT64_MAX
        else:
            behind = "d.position > ? ORDER BY d.position"
        condition = f"{condition} AND {behind} LIMIT ? OFFSET ?"
        parameters = [*parameters, after, limit, skip]
        if fits is not None:
            sizes = self._sizes(connection, condition, parameters, vectors=vectors, fields_only=fields_only)
            parameters = [id_array([position for position, _, _ in takewhile(lambda row: fits(*row[1:]), sizes)])]
            condition = f"d.position IN carray(?) ORDER BY d.position {'DESC' if descending else ''}"
        rows = self.select(connection, condition, parameters, vectors=vectors, fields_only=fields_only)
        return [(position, document) for position, _, document in rows]

    def _sizes(
        self,
        connection: apsw.Connection,
        condition: str,
        parameters: Sequence[Any],
        *,
        vectors: bool,
        fields_only: FieldsOnly,
    ) -> list[tuple[int, str, int]]:
        """Position, id and size in bytes of the documents that a condition selects. Raises the same errors as
        `select`.
        """
        _, size = self._select(fields_only)
        if vectors:
            size = f"{size} + {self._vectors_size}"
        statement = f"SELECT d.position, d.id, {size} FROM {self.tables.documents} AS d WHERE {condition}"
        try:
            rows = fetch(connection, statement, parameters)
            return [(position, doc_id, int(size)) for position, doc_id, size in rows]
        except (*UNREADABLE, apsw.CorruptError) as error:
            raise self._damage(connection, condition, parameters, vectors=vectors) from error

    def count(self, connection: apsw.Connection, where: RecordFilter) -> int:
        """The number of matching documents."""
        if not replace(where, hidden=False):
            return int(connection.execute(self.tables.counts[where.hidden]).get)
        source, parameters = prepare_positions(connection, self.tables, where)
        return int(connection.execute(f"SELECT count(*) {source}", parameters).get)

    def has_metadata_key(self, connection: apsw.Connection, key: str, like: MetadataValue | None) -> bool:
        """Whether any document has the key; with `like`, whether any has it with a value of the same type."""
        types = metadata_types(like)
        condition = f"key = ? AND type IN ({', '.join('?' * len(types))})" if types else "key = ?"
        statement = f"SELECT EXISTS (SELECT 1 FROM {self.tables.metadata} WHERE {condition})"
        return bool(connection.execute(statement, (key, *types)).get)

    def matching(self, connection: apsw.Connection, where: RecordFilter) -> list[tuple[str, Found]]:
        """The ids of the matching documents, each with what a write needs to know."""
        condition, parameters = prepare_filter(connection, self.tables, where)
        columns = f"d.id, d.position, d.revision, d.sequence, d.digest, d.hidden, {_SCOPE_OF_D}"
        statement = f"SELECT {columns} FROM {self.tables.documents} AS d WHERE {condition} ORDER BY d.position"
        try:
            return [(row[0], _found(row[1:])) for row in fetch(connection, statement, parameters)]
        except (UnicodeDecodeError, apsw.CorruptError) as error:
            raise self._damage(connection, condition, parameters, vectors=False) from error

    def _read(
        self,
        connection: apsw.Connection,
        condition: str,
        parameters: Sequence[Any],
        *,
        vectors: bool,
        fields_only: FieldsOnly = False,
    ) -> list[tuple[int, int, Document]]:
        select, _ = self._select(fields_only)
        rows = fetch(connection, f"{select} FROM {self.tables.documents} AS d WHERE {condition}", parameters)
        read_passages = rows and (vectors or not fields_only)
        passages = self._passages(connection, [row[0] for row in rows], vectors=vectors) if read_passages else {}
        return [(row[0], row[1], self.document(row, passages.get(row[0], []))) for row in rows]

    def _damage(
        self, connection: apsw.Connection, condition: str, parameters: Sequence[Any], *, vectors: bool
    ) -> RecordDamagedError:
        """The error for the first of these rows that cannot be read, found by reading them one by one."""
        tables = self.tables
        statement = f"SELECT d.position, CAST(d.id AS BLOB) FROM {tables.documents} AS d WHERE {condition}"
        for position, doc_id in fetch(connection, statement, parameters):
            try:
                self._read(connection, "d.position = ?", (position,), vectors=vectors)
            except (*UNREADABLE, apsw.CorruptError):
                return RecordDamagedError(tables.collection.name, doc_id.decode("utf-8", "backslashreplace"))
        return RecordDamagedError(tables.collection.name)

    def _passages(
        self, connection: apsw.Connection, positions: list[int], *, vectors: bool
    ) -> dict[int, list[Passage]]:
        column = "p.vector" if vectors else "NULL"
        rows = fetch(
            connection,
            f"SELECT p.position, p.ordinal, p.start, p.stop, {column} FROM carray(?) AS wanted "
            f"CROSS JOIN {self.tables.passages} AS p ON p.position = wanted.value ORDER BY p.position, p.ordinal",
            (id_array(positions),),
        )
        found: dict[int, list[Passage]] = {}
        for position, ordinal, start, end, vector in rows:
            embedding = None if vector is None else _vector(vector)
            found.setdefault(position, []).append(Passage(ordinal, start, end, embedding))
        return found

    def document(self, row: Sequence[Any], passages: Sequence[Passage] = ()) -> Document:
        """The document of a selected row."""
        revision, created, updated, hidden = row[_AFTER_SCOPE:_FIRST_FIELD]
        return Document(
            doc_id=row[2],
            content=row[3],
            metadata=decode_metadata(row[4]),
            embedding=passages[0].embedding if passages else None,
            scope=Scope(*row[5:_AFTER_SCOPE]),
            revision=revision,
            create_time=from_microseconds(created),
            update_time=from_microseconds(updated),
            passages=tuple(passages),
            fields={
                name: decode(value) for (name, decode), value in zip(self._decoders, row[_FIRST_FIELD:], strict=True)
            },
            hidden=bool(hidden),
        )


def _vector(stored: bytes) -> tuple[float, ...]:
    vector = np.frombuffer(stored, VECTOR_TYPE)
    if not np.dot(vector, vector) <= NORM_MAX**2:
        raise ValueError("the vector is longer than any stored vector can be")
    return tuple(vector.tolist())


def _next_id(connection: apsw.Connection, table: str) -> int:
    """The id that the next row of a table gets; ids are never reused."""
    return int(connection.execute("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = ?", (table,)).get)


def _found(row: Sequence[Any]) -> Found:
    position, revision, sequence, digest, hidden, *scope = row
    return Found(position, revision, sequence, digest, hidden, tuple(scope))
