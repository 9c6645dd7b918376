"""The order of changes, and how far each index has followed it."""

import apsw
import numpy as np

from mnemon_server.engines.base import DocumentChange, IndexPosition, RecordStats
from mnemon_server.engines.sqlite import documents
from mnemon_server.engines.sqlite.query import fetch


def stats(connection: apsw.Connection) -> RecordStats:
    """Counts, and the position of the newest change; counting reads every row of an index."""
    statement = (
        "SELECT (SELECT count(*) FROM document), (SELECT count(*) FROM passage),"
        " (SELECT coalesce(max(value), 0) FROM meta WHERE key = 'sequence')"
    )
    return RecordStats(*fetch(connection, statement)[0])


def set_last_sequence(connection: apsw.Connection, sequence: int) -> None:
    """Remembers the newest change: deletions that are forgotten must not give their position to another."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('sequence', ?)", (sequence,))


def after(connection: apsw.Connection, sequence: int, limit: int) -> list[DocumentChange]:
    """Up to `limit` documents whose newest change came later, oldest change first."""
    found = documents.select(connection, "sequence > ? ORDER BY sequence LIMIT ?", (sequence, limit), vectors=False)
    deleted = fetch(
        connection, "SELECT sequence, id FROM deletion WHERE sequence > ? ORDER BY sequence LIMIT ?", (sequence, limit)
    )
    changes = [DocumentChange(position, doc_id, None) for position, doc_id in deleted]
    changes += [
        DocumentChange(changed, document.doc_id, document, *_passages(connection, position))
        for position, changed, document in found
    ]
    return sorted(changes, key=lambda change: change.sequence)[:limit]


def count_after(connection: apsw.Connection, sequence: int) -> int:
    """How many documents changed later."""
    statement = (
        "SELECT (SELECT count(*) FROM document WHERE sequence > ?1)"
        " + (SELECT count(*) FROM deletion WHERE sequence > ?1)"
    )
    return int(connection.execute(statement, (sequence,)).get)


def position(connection: apsw.Connection, index: str) -> IndexPosition:
    """How far the index has come."""
    rows = fetch(connection, "SELECT sequence, generation FROM index_position WHERE name = ?", (index,))
    return IndexPosition(*rows[0]) if rows else IndexPosition()


def set_position(connection: apsw.Connection, index: str, position: IndexPosition) -> None:
    """Remembers how far the index has come, and forgets the deletions that every index has heard of."""
    connection.execute(
        "INSERT OR REPLACE INTO index_position (name, sequence, generation) VALUES (?, ?, ?)",
        (index, position.sequence, position.generation),
    )
    connection.execute("DELETE FROM deletion WHERE sequence <= (SELECT min(sequence) FROM index_position)")


def _passages(connection: apsw.Connection, document: int) -> "tuple[tuple[int, ...], np.typing.NDArray[np.float32]]":
    rows = fetch(connection, "SELECT id, vector FROM passage WHERE position = ? ORDER BY ordinal", (document,))
    vectors = np.frombuffer(b"".join(row[1] for row in rows), documents.VECTOR_TYPE).reshape(len(rows), -1)
    return tuple(row[0] for row in rows), vectors.astype(np.float32, copy=False)
