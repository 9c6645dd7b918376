"""The SQL of documents: every function works on a connection, and inside the caller's transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import apsw
import numpy as np

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.encoding import decode_metadata, encode_metadata, scope_values, text_digest
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.engines.base import DocumentWrite, PassageIds, PassageInput
from mnemon_server.engines.sqlite import keyword_index
from mnemon_server.engines.sqlite.query import fetch, id_array

SCOPE_FIELDS = ("user", "household", "persona", "agent", "project")
INDEXED_TEXT_MAX = 256
VECTOR_TYPE = np.dtype("<f4")

_COLUMNS = (
    "position, id, content, metadata, user, household, persona, agent, project, revision, sequence, create_time,"
    " update_time"
)


class Found(NamedTuple):
    """What a write must know of the document that is there."""

    position: int
    revision: int
    sequence: int
    digest: bytes


def find(connection: apsw.Connection, doc_id: str) -> Found | None:
    """The document with this id."""
    row = connection.execute(
        "SELECT position, revision, sequence, digest FROM document WHERE id = ?", (doc_id,)
    ).fetchone()
    return Found(*row) if row else None


def insert(connection: apsw.Connection, write: DocumentWrite, digest: bytes, sequence: int, time: int) -> list[int]:
    """Adds a document; returns the ids of its passages."""
    document = write.document
    connection.execute("DELETE FROM deletion WHERE id = ?", (document.doc_id,))
    connection.execute(
        "INSERT INTO document (id, content, metadata, digest, user, household, persona, agent, project, revision,"
        " sequence, create_time, update_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
        (*_values(document, digest), sequence, time, time),
    )
    return _insert_parts(connection, connection.last_insert_rowid(), document, write.passages)


def replace(
    connection: apsw.Connection, position: int, write: DocumentWrite, digest: bytes, sequence: int, time: int
) -> tuple[list[int], list[int]]:
    """Puts a document in the place of another; returns the ids of the passages removed and added."""
    removed = _delete_parts(connection, position)
    connection.execute(
        "UPDATE document SET id = ?, content = ?, metadata = ?, digest = ?, user = ?, household = ?, persona = ?,"
        " agent = ?, project = ?, revision = revision + 1, sequence = ?, update_time = ? WHERE position = ?",
        (*_values(write.document, digest), sequence, time, position),
    )
    return removed, _insert_parts(connection, position, write.document, write.passages)


def replace_passages(
    connection: apsw.Connection, position: int, document: Document, passages: Sequence[PassageInput], sequence: int
) -> None:
    """Gives a document other passages, for indexes to take up as a change; the document itself stays as it is."""
    _delete_parts(connection, position)
    _insert_parts(connection, position, document, passages)
    connection.execute("UPDATE document SET sequence = ? WHERE position = ?", (sequence, position))


def delete(connection: apsw.Connection, position: int) -> list[int]:
    """Removes a document; returns the ids of its passages."""
    removed = _delete_parts(connection, position)
    connection.execute("DELETE FROM document WHERE position = ?", (position,))
    return removed


def remember_deletion(connection: apsw.Connection, doc_id: str, sequence: int) -> None:
    """Keeps a deletion for the indexes that have yet to hear of it; for none, nothing is kept."""
    connection.execute(
        "INSERT OR REPLACE INTO deletion (sequence, id) SELECT ?, ? WHERE EXISTS (SELECT 1 FROM index_position)",
        (sequence, doc_id),
    )


def where_clause(where: RecordFilter) -> tuple[str, list[Any]]:
    """A condition on `document`, and its parameters; keys and values are only ever bound."""
    conditions, parameters = ["1"], []
    for name in SCOPE_FIELDS:
        if value := getattr(where.scope, name):
            conditions.append(f"({name} = ? AND {name} <> '')")
            parameters.append(value)
    for key, value in where.equal.items():
        kind, stored = _indexed(value)
        conditions.append(
            "position IN (SELECT position FROM document_metadata WHERE key = ? AND type = ? AND value = ?)"
        )
        parameters += [key, kind, stored]
    return " AND ".join(conditions), parameters


def select(
    connection: apsw.Connection, condition: str, parameters: Sequence[Any], *, vectors: bool
) -> list[tuple[int, int, Document]]:
    """Position, sequence and document of the rows that a condition (with its order and limit) picks."""
    statement = f"SELECT {_COLUMNS} FROM document WHERE {condition}"  # noqa: S608 - conditions are written here
    rows = fetch(connection, statement, parameters)
    passages = _passages(connection, [row[0] for row in rows], vectors=vectors)
    return [(row[0], row[10], _document(row, passages.get(row[0], []))) for row in rows]


def matching_passages(connection: apsw.Connection, where: RecordFilter) -> PassageIds:
    """Ids of the passages of matching documents, ascending."""
    condition, parameters = where_clause(where)
    rows = fetch(
        connection,
        "SELECT p.id FROM document AS d CROSS JOIN passage AS p ON p.position = d.position WHERE "  # noqa: S608
        f"d.position IN (SELECT position FROM document WHERE {condition}) ORDER BY p.id",
        parameters,
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _values(document: Document, digest: bytes) -> tuple[Any, ...]:
    metadata = encode_metadata(document.metadata)
    return (document.doc_id, document.content, metadata, digest, *scope_values(document.scope))


def _insert_parts(
    connection: apsw.Connection, position: int, document: Document, passages: Sequence[PassageInput]
) -> list[int]:
    ids = []
    for ordinal, passage in enumerate(passages):
        connection.execute(
            "INSERT INTO passage (position, ordinal, start, stop, vector) VALUES (?, ?, ?, ?, ?)",
            (position, ordinal, passage.start, passage.end, passage.vector.astype(VECTOR_TYPE).tobytes()),
        )
        ids.append(connection.last_insert_rowid())
        keyword_index.insert(connection, ids[-1], document.content[passage.start : passage.end])
    connection.executemany(
        "INSERT OR IGNORE INTO document_metadata (key, type, value, position) VALUES (?, ?, ?, ?)",
        [(key, *_indexed(value), position) for key, item in document.metadata.items() for value in _items(item)],
    )
    return ids


def _delete_parts(connection: apsw.Connection, position: int) -> list[int]:
    """Removes passages, keyword rows and metadata rows; the keyword index must be told the words again."""
    content = connection.execute("SELECT content FROM document WHERE position = ?", (position,)).get
    rows = fetch(connection, "SELECT id, start, stop FROM passage WHERE position = ?", (position,))
    for passage_id, start, end in rows:
        keyword_index.delete(connection, passage_id, content[start:end])
    connection.execute("DELETE FROM passage WHERE position = ?", (position,))
    connection.execute("DELETE FROM document_metadata WHERE position = ?", (position,))
    return [row[0] for row in rows]


def _passages(connection: apsw.Connection, positions: list[int], *, vectors: bool) -> dict[int, list[Passage]]:
    column = "p.vector" if vectors else "NULL"
    rows = fetch(
        connection,
        f"SELECT p.position, p.ordinal, p.start, p.stop, {column} FROM carray(?) AS wanted "  # noqa: S608
        "CROSS JOIN passage AS p ON p.position = wanted.value ORDER BY p.position, p.ordinal",
        (id_array(positions),),
    )
    found: dict[int, list[Passage]] = {}
    for position, ordinal, start, end, vector in rows:
        embedding = None if vector is None else tuple(np.frombuffer(vector, VECTOR_TYPE).tolist())
        found.setdefault(position, []).append(Passage(ordinal, start, end, embedding))
    return found


def _document(row: Sequence[Any], passages: list[Passage]) -> Document:
    return Document(
        doc_id=row[1],
        content=row[2],
        metadata=decode_metadata(row[3]),
        embedding=passages[0].embedding if passages else None,
        scope=Scope(*row[4:9]),
        revision=row[9],
        create_time=from_microseconds(row[11]),
        update_time=from_microseconds(row[12]),
        passages=tuple(passages),
    )


def _items(value: MetadataValue) -> Iterable[MetadataValue]:
    return [(item,) for item in value] if isinstance(value, tuple) else [value]


def _indexed(value: MetadataValue) -> tuple[str, Any]:
    """Type and value as the metadata index holds them; a long text is held by its digest."""
    match value:
        case bool():
            return "bool", int(value)
        case int():
            return "int", value
        case float():
            return "float", value
        case datetime():
            return "time", to_microseconds(value)
        case str() if len(value) <= INDEXED_TEXT_MAX:
            return "text", value
        case str():
            return "digest", text_digest(value)
        case _:
            kind, stored = _indexed(value[0])
            return f"item-{kind}", stored
