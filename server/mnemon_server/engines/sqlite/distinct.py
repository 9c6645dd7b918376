"""The distinct texts of a field, found by stepping through its index: one look-up per text, not per document."""

import apsw

from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound


def distinct_texts(
    connection: apsw.Connection,
    tables: Tables,
    field: str,
    *,
    after: str,
    within: tuple[str, str] | None,
    limit: int,
) -> list[str]:
    """See RecordEngine."""
    if field not in tables.indexed_texts:
        raise ValueError(f"{field!r} is not an indexed text field")
    # The index excludes empty texts, so SQLite uses it only if the condition excludes them too.
    column = f'd."{field}"'
    ends = f" AND {column} < ?2" if within else ""
    following = (
        f"(SELECT {column} FROM {tables.documents} AS d WHERE {column} {{}} AND {column} <> ''{ends} AND d.hidden = 0"
        f" ORDER BY {column} LIMIT 1)"
    )
    first, end = within or ("", "")
    start, next_one = following.format(">= ?1" if first > after else "> ?1"), following.format("> step.text")
    statement = (
        f"WITH RECURSIVE step (text) AS (SELECT {start} UNION ALL SELECT {next_one} FROM step"
        " WHERE step.text IS NOT NULL) SELECT text FROM step WHERE text IS NOT NULL LIMIT ?3"
    )
    return [row[0] for row in fetch(connection, statement, (max(first, after), end, limit))]
