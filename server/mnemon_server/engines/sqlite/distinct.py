"""The different texts of a field, by steps through its index: one look-up each, however many documents share one."""

import apsw

from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - names of tables and columns are constants of the program; whatever was sent is bound


def distinct_texts(connection: apsw.Connection, tables: Tables, field: str, *, after: str, limit: int) -> list[str]:
    """See RecordEngine."""
    if field not in tables.indexed_texts:
        raise ValueError(f"{field!r} is no text with an index")
    # The index holds no empty text, and serves where the condition says that it wants none.
    column = f'"{field}"'
    following = (
        f"(SELECT d.{column} FROM {tables.documents} AS d WHERE d.{column} > {{}} AND d.{column} <> '' AND d.hidden = 0"
        f" ORDER BY d.{column} LIMIT 1)"
    )
    first, next_one = following.format("?"), following.format("step.text")
    statement = (
        f"WITH RECURSIVE step (text) AS (SELECT {first} UNION ALL SELECT {next_one} FROM step"
        " WHERE step.text IS NOT NULL) SELECT text FROM step WHERE text IS NOT NULL LIMIT ?"
    )
    return [row[0] for row in fetch(connection, statement, (after, limit))]
