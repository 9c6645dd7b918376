"""Small texts of the vault's own, by their keys."""

import apsw

CREATE_STATEMENT = """
CREATE TABLE value (
  key TEXT PRIMARY KEY,
  text TEXT NOT NULL
) STRICT, WITHOUT ROWID"""


def stored_value(connection: apsw.Connection, key: str) -> str | None:
    """What is kept under a key; None where nothing is."""
    text = connection.execute("SELECT text FROM value WHERE key = ?", (key,)).get
    return None if text is None else str(text)


def set_value(connection: apsw.Connection, key: str, text: str) -> None:
    """Keeps a text under a key, in place of what is there."""
    connection.execute("INSERT OR REPLACE INTO value (key, text) VALUES (?, ?)", (key, text))
