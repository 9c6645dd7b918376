"""Reads parts of documents within SQLite, so that a whole document need not be loaded for a few words."""

from collections.abc import Sequence

import apsw

from mnemon_server.engines.promises.values import EXCERPT_CHARACTERS_MAX, OPENING_CHARACTERS_MAX, Excerpt
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.engines.sqlite.tables import Tables

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
