"""The order of a collection's changes, and how far each index has applied them."""

from collections.abc import Sequence

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import DocumentChange, IndexPosition, RecordStats
from mnemon_server.engines.sqlite.documents import VECTOR_TYPE, DocumentTable
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound


def stats(connection: apsw.Connection, tables: Tables) -> RecordStats:
    """The counts, and the position of the newest change. Counting reads every row of an index."""
    statement = (
        f"SELECT (SELECT count(*) FROM {tables.documents}), (SELECT count(*) FROM {tables.passages}"
        f" WHERE position NOT IN (SELECT position FROM {tables.documents} WHERE hidden = 1)),"
        " (SELECT coalesce(max(value), 0) FROM meta WHERE key = ?)"
    )
    return RecordStats(*fetch(connection, statement, (tables.sequence_key,))[0])


def set_last_sequence(connection: apsw.Connection, tables: Tables, sequence: int) -> None:
    """Stores the position of the newest change, so that it is not assigned again after a deletion record is dropped."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (tables.sequence_key, sequence))


def remember_deletion(connection: apsw.Connection, tables: Tables, doc_id: str, sequence: int) -> None:
    """Stores a deletion for the indexes that have not applied it yet."""
    connection.execute(f"INSERT OR REPLACE INTO {tables.deletions} (sequence, id) VALUES (?, ?)", (sequence, doc_id))


def forget_deletions(connection: apsw.Connection, tables: Tables, doc_ids: Sequence[str]) -> None:
    """Drops the deletion records of documents that are created again."""
    statement = f"DELETE FROM {tables.deletions} WHERE id IN (SELECT value FROM carray(?))"
    connection.execute(statement, (apsw.carray(tuple(doc_ids)),))


def after(connection: apsw.Connection, table: DocumentTable, sequence: int, limit: int) -> list[DocumentChange]:
    """Up to `limit` documents whose newest change came later, oldest change first. Hidden documents count as
    deleted.
    """
    found = table.select(connection, "d.sequence > ? ORDER BY d.sequence LIMIT ?", (sequence, limit), vectors=False)
    deleted = fetch(
        connection,
        f"SELECT sequence, id FROM {table.tables.deletions} WHERE sequence > ? ORDER BY sequence LIMIT ?",
        (sequence, limit),
    )
    changes = [DocumentChange(position, doc_id, None) for position, doc_id in deleted]
    changes += [
        DocumentChange(changed, document.doc_id, None)
        if document.hidden
        else DocumentChange(changed, document.doc_id, document, *_passages(connection, table.tables, position))
        for position, changed, document in found
    ]
    return sorted(changes, key=lambda change: change.sequence)[:limit]


def count_after(connection: apsw.Connection, tables: Tables, sequence: int) -> int:
    """The number of documents that changed later."""
    statement = (
        f"SELECT (SELECT count(*) FROM {tables.documents} WHERE sequence > ?1)"
        f" + (SELECT count(*) FROM {tables.deletions} WHERE sequence > ?1)"
    )
    return int(connection.execute(statement, (sequence,)).get)


def is_followed(connection: apsw.Connection, tables: Tables) -> bool:
    """Whether any index is fed from the collection."""
    statement = "SELECT EXISTS (SELECT 1 FROM index_position WHERE collection = ?)"
    return bool(connection.execute(statement, (tables.collection.name,)).get)


def position(connection: apsw.Connection, tables: Tables, index: str) -> IndexPosition:
    """How far the index has been updated."""
    rows = fetch(
        connection,
        "SELECT sequence, generation FROM index_position WHERE collection = ? AND name = ?",
        (tables.collection.name, index),
    )
    return IndexPosition(*rows[0]) if rows else IndexPosition()


def count_removal(connection: apsw.Connection, tables: Tables) -> None:
    """Counts a document whose data must be removed from the indexes' files."""
    connection.execute(
        "UPDATE index_position SET removed = removed + 1 WHERE collection = ?",
        (tables.collection.name,),
    )


def removed(connection: apsw.Connection, tables: Tables, index: str) -> int:
    """The number of documents removed or replaced since the index was first filled; 0 if unknown."""
    statement = "SELECT coalesce(max(removed), 0) FROM index_position WHERE collection = ? AND name = ?"
    return int(connection.execute(statement, (tables.collection.name, index)).get)


def set_position(connection: apsw.Connection, tables: Tables, index: str, position: IndexPosition) -> None:
    """Stores how far the index has been updated, and drops the deletions that every index has applied."""
    collection = tables.collection.name
    connection.execute(
        "INSERT INTO index_position (collection, name, sequence, generation, removed) VALUES (?, ?, ?, ?, 0)"
        " ON CONFLICT DO UPDATE SET sequence = excluded.sequence, generation = excluded.generation",
        (collection, index, position.sequence, position.generation),
    )
    connection.execute(
        f"DELETE FROM {tables.deletions} WHERE sequence <="
        " (SELECT min(sequence) FROM index_position WHERE collection = ?)",
        (collection,),
    )


def _passages(
    connection: apsw.Connection, tables: Tables, document: int
) -> tuple[tuple[int, ...], NDArray[np.float32]]:
    statement = f"SELECT id, vector FROM {tables.passages} WHERE position = ? ORDER BY ordinal"
    rows = fetch(connection, statement, (document,))
    if not rows:
        return (), np.empty((0, 0), np.float32)
    vectors = np.frombuffer(b"".join(row[1] for row in rows), VECTOR_TYPE).reshape(len(rows), -1)
    return tuple(row[0] for row in rows), vectors.astype(np.float32, copy=False)
