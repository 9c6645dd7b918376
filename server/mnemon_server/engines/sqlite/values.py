"""Small texts of the vault's own, by key."""

import apsw

from mnemon_server.engines.sqlite.query import fetch

CREATE_STATEMENT = """
CREATE TABLE value (
  key TEXT PRIMARY KEY,
  text TEXT NOT NULL
) STRICT, WITHOUT ROWID"""


def stored_value(connection: apsw.Connection, key: str) -> str | None:
    """The text stored under a key, or None."""
    text = connection.execute("SELECT text FROM value WHERE key = ?", (key,)).get
    return None if text is None else str(text)


def stored_values(connection: apsw.Connection, prefix: str) -> dict[str, str]:
    """The texts whose keys have a prefix, by key in code point order."""
    statement = "SELECT key, text FROM value WHERE substr(key, 1, ?) = ? ORDER BY key"
    return dict(fetch(connection, statement, (len(prefix), prefix)))


def set_value(connection: apsw.Connection, key: str, text: str) -> None:
    """Stores a text under a key. Replaces the previous one."""
    connection.execute("INSERT OR REPLACE INTO value (key, text) VALUES (?, ?)", (key, text))


def remove_value(connection: apsw.Connection, key: str) -> None:
    """Removes the text under a key."""
    connection.execute("DELETE FROM value WHERE key = ?", (key,))
