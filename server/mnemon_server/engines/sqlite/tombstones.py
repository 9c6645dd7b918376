"""Tombstones: keyed hashes of what was erased, with the time of the erasure. They outlive the records."""

from collections.abc import Mapping, Sequence

import apsw

from mnemon_server.engines.sqlite.query import fetch

CREATE_STATEMENT = """
CREATE TABLE tombstone (
  key BLOB PRIMARY KEY,
  time INTEGER NOT NULL
) STRICT, WITHOUT ROWID"""

ADD_STATEMENT = "INSERT INTO tombstone VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET time = max(time, excluded.time)"


def add(connection: apsw.Connection, keys: Sequence[bytes], time_us: int) -> None:
    """Adds tombstones. One that exists gets the later time."""
    connection.executemany(ADD_STATEMENT, [(key, time_us) for key in keys])


def find(connection: apsw.Connection, keys: Sequence[bytes]) -> Mapping[bytes, int]:
    """The times, in microseconds, of those of these tombstones that exist."""
    statement = "SELECT key, time FROM tombstone WHERE key IN (SELECT value FROM carray(?))"
    return dict(fetch(connection, statement, (apsw.carray(tuple(keys)),))) if keys else {}


def page(connection: apsw.Connection, after: bytes, limit: int) -> list[tuple[bytes, int]]:
    """Up to `limit` tombstones by ascending key, with their times."""
    return fetch(connection, "SELECT key, time FROM tombstone WHERE key > ? ORDER BY key LIMIT ?", (after, limit))
