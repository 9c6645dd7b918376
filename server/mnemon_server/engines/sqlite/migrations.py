"""Migrates records.db from each format to the next.

To add a format, append a function to MIGRATIONS, and change how new files are created (`tables.py`, `journal.py`,
`schema.py`, `values.py`, and `engines/events/rows/tables.py`). Each function works on the format of its time: if it
shares statements with new files and those change, it must keep a copy of the old statements.
"""

import os
from collections.abc import Callable

import apsw

from mnemon_server.domain.collections import DECISIONS, DOCUMENTS, FACTS, MEMORIES, RULES, SEMANTIC
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.engines.sqlite import tombstones, values
from mnemon_server.engines.sqlite.keywords import collection
from mnemon_server.engines.sqlite.tables import (
    TIMELINE_STATEMENTS,
    Tables,
    create_statements,
    document_indexes,
    unusual_indexes,
    vector_block_statements,
)
from mnemon_server.engines.sqlite.upkeep.figure_repair import repair_figures

EPOCH_BYTES = 16

_INDEX_POSITION_2 = """
CREATE TABLE index_position (
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation TEXT NOT NULL,
  PRIMARY KEY (collection, name)
) STRICT, WITHOUT ROWID"""

_EVENT_2 = """
CREATE TABLE event (
  sequence INTEGER PRIMARY KEY,
  commit_sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  type TEXT NOT NULL,
  record_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  request_id TEXT NOT NULL,
  changed TEXT NOT NULL
) STRICT"""

_EMPTY_LISTS = """
INSERT INTO document_metadata (key, type, value, position)
SELECT j.key, 'empty', 0, d.position
FROM document AS d CROSS JOIN json_each(d.metadata) AS j
WHERE j.type = 'array' AND j.value = '[]'"""


def set_epoch(connection: apsw.Connection) -> None:
    """Creates the secret to which the log's cursors are bound."""
    connection.execute("INSERT INTO meta (key, value) VALUES ('epoch', ?)", (os.urandom(EPOCH_BYTES),))


def _to_format_2(connection: apsw.Connection) -> None:
    """Adds memories and the change log. Tables get the name of their collection."""
    for statement in (
        "ALTER TABLE document ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0",
        *(f"DROP INDEX document_{name}" for name in SCOPE_FIELDS),
        *document_indexes(DOCUMENTS),
        "ALTER TABLE passage RENAME TO document_passage",
        "DROP INDEX passage_document",
        "CREATE UNIQUE INDEX document_passage_position ON document_passage (position, ordinal)",
        "DROP TABLE passage_terms",
        "DROP TABLE passage_fts",
        "ALTER TABLE deletion RENAME TO document_deletion",
        "ALTER TABLE index_position RENAME TO index_position_1",
        _INDEX_POSITION_2,
        "INSERT INTO index_position SELECT 'document', name, sequence, generation FROM index_position_1",
        "DROP TABLE index_position_1",
        # Empty lists had no row in the metadata index.
        _EMPTY_LISTS,
        "UPDATE meta SET key = 'document.sequence' WHERE key = 'sequence'",
        *create_statements(MEMORIES),
        _EVENT_2,
    ):
        connection.execute(statement)
    set_epoch(connection)


def _to_format_3(connection: apsw.Connection) -> None:
    """Adds statements, decisions, rules, event details, and values of the vault."""
    for statement in (
        "ALTER TABLE event ADD COLUMN details TEXT NOT NULL DEFAULT ''",
        values.CREATE_STATEMENT,
        *(statement for each in (SEMANTIC, DECISIONS, RULES) for statement in create_statements(each)),
    ):
        connection.execute(statement)


def _to_format_4(connection: apsw.Connection) -> None:
    """Adds the timeline."""
    for statement in TIMELINE_STATEMENTS:
        connection.execute(statement)


def _to_format_5(connection: apsw.Connection) -> None:
    """Facts."""
    for statement in create_statements(FACTS):
        connection.execute(statement)


def _to_format_7(connection: apsw.Connection) -> None:
    """Adds the count of removed records that an index's files may contain. Older programs did not count them."""
    connection.execute("ALTER TABLE index_position ADD COLUMN removed INTEGER NOT NULL DEFAULT 1")


def _to_format_9(connection: apsw.Connection) -> None:
    """Adds the index of memories that fade."""
    for statement in unusual_indexes(MEMORIES):
        connection.execute(statement)


def _to_format_11(connection: apsw.Connection) -> None:
    """Adds the tables of rounded vectors."""
    for statement in vector_block_statements():
        connection.execute(statement)


def _to_format_12(connection: apsw.Connection) -> None:
    """Adds the list of keyword indexes that are filled again."""
    connection.execute(collection.CREATE_STATEMENT)


def _to_format_13(connection: apsw.Connection) -> None:
    """Adds the tombstones of erased records."""
    connection.execute(tombstones.CREATE_STATEMENT)


def _to_format_15(connection: apsw.Connection) -> None:
    """Adds keyword indexes that know the parts of compounds, and has the passages re-indexed in the background; at once
    if they are in an index of format 11 or before, which this program cannot read.
    """
    for each in (DOCUMENTS, MEMORIES, FACTS):
        Tables(each).keywords.replace(connection)


def _to_format_16(connection: apsw.Connection) -> None:
    """Adds the keyword index of statements."""
    Tables(SEMANTIC).keywords.fill(connection)


def _nothing(connection: apsw.Connection) -> None:
    """Changes nothing: the step only keeps older programs from opening the file, or its addition is now obsolete."""


MIGRATIONS: tuple[Callable[[apsw.Connection], None], ...] = (
    _to_format_2,
    _to_format_3,
    _to_format_4,
    _to_format_5,
    # Older versions imported archives with numbers that are too large to increment.
    repair_figures,
    _to_format_7,
    _nothing,
    _to_format_9,
    _nothing,
    _to_format_11,
    _to_format_12,
    _to_format_13,
    # An older program would delete words from one place only while their blocks are merged.
    _nothing,
    _to_format_15,
    _to_format_16,
)
"""The first function migrates format 1 to 2. Each runs in one transaction with all that follow it."""
